"""Readers of results killed again and again at random moments: the example that fills DuckDB, and files of `read`."""

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.kafka.admin import TopicAdmin
from tests.broker.test_read_and_results import (
    EXAMPLE,
    check_duckdb,
    check_files,
    look_at_new_files,
    read_command,
    stored,
    visible,
)
from tests.chaos.seeds import FIRST_SEED
from tests.result_readers import ResultsLog, kill_in_the_middle

NUM_KILLS = 20
# Long enough for several files or transactions, short enough that most kills fall into one.
LONGEST_DELAY_S = 0.6

pytestmark = [pytest.mark.timeout(900), pytest.mark.parametrize("seed", [FIRST_SEED])]


@pytest.fixture
def log(kafka: str, topic_prefix: str, seed: int) -> Iterator[ResultsLog]:
    made = ResultsLog(kafka, topic_prefix, random.Random(seed))
    yield made
    TopicAdmin(made.config).delete(made.space)


def test_a_killed_sink_has_each_request_once_and_misses_none(seed: int, log: ResultsLog, tmp_path: Path) -> None:
    path, rng = tmp_path / "results.duckdb", random.Random(seed)
    log.write(200)
    with log.growing():
        for _ in range(NUM_KILLS):
            kill_in_the_middle(
                log,
                [sys.executable, EXAMPLE, path],
                seen=lambda: stored(path),
                look=lambda: None,
                delay_s=rng.uniform(0.0, LONGEST_DELAY_S),
            )
    check_duckdb(log, path)


def test_killed_files_are_never_half_there_and_no_row_is_lost_or_repeated(
    seed: int, log: ResultsLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, rng = tmp_path / "out", random.Random(seed)
    known: dict[Path, int] = {}
    log.write(200)
    with log.growing():
        for _ in range(NUM_KILLS):
            kill_in_the_middle(
                log,
                read_command(out, "--follow", "--every", "50ms"),
                seen=lambda: len(visible(out)),
                look=lambda: look_at_new_files(out, known),
                delay_s=rng.uniform(0.0, LONGEST_DELAY_S),
            )
    check_files(log, out, monkeypatch)
