"""Readers of results against a real broker: the consumer, the example that fills DuckDB, and files of `read`."""

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import jsonschema
import pyarrow.parquet as pq
import pytest

from ops.cli import main
from ranking.client.results import PositionError, ResultsBatch, ResultsConsumer, ResultsOptions
from schemas.kafka.admin import TopicAdmin
from schemas.kafka.config import BOOTSTRAP_ENV, NAMESPACE_ENV
from tests.result_readers import NUM_PARTITIONS, ROOT, TIMEOUT_S, ResultsLog, kill_in_the_middle

EXAMPLE = ROOT / "docs/examples/results_to_duckdb.py"
NUM_KILLS = 2


@pytest.fixture
def log(kafka: str, topic_prefix: str) -> Iterator[ResultsLog]:
    made = ResultsLog(kafka, topic_prefix, random.Random(7))
    yield made
    TopicAdmin(made.config).delete(made.space)


class Reader:
    """A consumer in this process, and what it was given."""

    def __init__(self, log: ResultsLog, **given) -> None:
        options = ResultsOptions(max_batch=50, **given.pop("options", {}))
        self.results = ResultsConsumer(
            log.space,
            group="t",
            options=options,
            environ={BOOTSTRAP_ENV: str(log.config["bootstrap.servers"])},
            **given,
        )
        self.batches: list[ResultsBatch] = []

    def __enter__(self) -> "Reader":
        self.results.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.results.close()

    def take(self) -> ResultsBatch | None:
        batch = self.results.next_batch(0.1)
        if batch is not None:
            self.batches.append(batch)
        return batch

    def read_until(self, is_enough, *, commit: bool = False) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        while not is_enough():
            assert time.monotonic() < deadline_s
            if self.take() is not None and commit:
                assert self.results.commit()

    @property
    def places(self) -> dict[int, int]:
        return {batch.partition: batch.next_offset for batch in self.batches}

    def request_ids(self) -> Counter[str]:
        return Counter(result.request_id for batch in self.batches for result in batch)


def test_a_group_goes_on_where_it_acknowledged_and_gives_each_request_once(log: ResultsLog) -> None:
    log.write(1_000)
    ends = log.ends()
    with Reader(log) as first:
        first.read_until(lambda: len(first.batches) == 3, commit=True)
        committed = first.places
        kept = first.request_ids()
        # Given out and not acknowledged: it comes again.
        first.read_until(lambda: len(first.batches) == 6)
    with Reader(log) as second:
        second.read_until(lambda: second.places == ends, commit=True)
        assert all(lag == 0 for lag in second.results.lag().values())
        # Nobody but the log decides what is a duplicate: each request once over both.
        assert kept + second.request_ids() == Counter(log.request_ids)
        begun = {batch.partition: batch.first_offset for batch in reversed(second.batches)}
        assert begun == {number: committed.get(number, 0) for number in range(NUM_PARTITIONS)}
        assert {bad.error.reason for batch in second.batches for bad in batch.unreadable} == {"bad_framing"}

        # Another member joins: nothing that was acknowledged comes again, and nothing is missing.
        second.results.pause(0)
        log.write(200)
        with Reader(log) as third:
            third.read_until(lambda: second.take() is None and bool(third.results.lag()))
            wanted = log.ends()
            second.batches.clear()
            third.read_until(
                lambda: second.take() is None and {**wanted, **second.places, **third.places} == wanted,
                commit=True,
            )
            assert set(second.results.lag()) | set(third.results.lag()) == set(range(NUM_PARTITIONS))
            assert not set(second.results.lag()) & set(third.results.lag())


def test_a_time_can_be_gone_back_to_and_a_paused_partition_waits(log: ResultsLog) -> None:
    log.write(200)
    between = datetime.now(UTC)
    time.sleep(0.01)
    log.write(200)
    ends = log.ends()
    with Reader(log, start=between) as reader:
        reader.read_until(lambda: reader.places == ends)
        since_then = reader.request_ids()
        assert 0 < len(since_then) < len(log.request_ids)
        reader.batches.clear()
        reader.results.seek(between)
        reader.read_until(lambda: reader.places == ends)
        assert reader.request_ids() == since_then
        reader.batches.clear()
        reader.results.seek(between - timedelta(days=1))
        reader.results.pause(2)
        reader.read_until(lambda: set(reader.places) == {0, 1, 3} and reader.places.items() <= ends.items())
        reader.results.resume(2)
        reader.read_until(lambda: reader.places == ends)
        assert reader.request_ids() == Counter(log.request_ids)
    # The group was told where it went back to, though nothing was acknowledged since.
    with Reader(log, start="latest") as after:
        after.read_until(lambda: after.places == ends)
        assert after.request_ids() == Counter(log.request_ids)
    with Reader(log) as sought:
        # Nothing is assigned yet: it counts for what will be.
        sought.results.seek(between)
        sought.read_until(lambda: sought.places == ends)
        assert sought.request_ids() == since_then


def test_the_sink_is_asked_and_a_sink_of_another_log_refused(log: ResultsLog) -> None:
    class Places:
        def __init__(self, places: dict[int, int]) -> None:
            self.next_offset = places.get

    log.write(400)
    ends = log.ends()
    with Reader(log, sink=Places({0: ends[0] - 5, 1: ends[1]})) as reader:
        reader.read_until(lambda: {1: ends[1], **reader.places} == ends)
        assert min(batch.first_offset for batch in reader.batches if batch.partition == 0) == ends[0] - 5
        with pytest.raises(ValueError, match="sink"):
            reader.results.commit()
    with Reader(log, sink=Places({0: ends[0] + 1})) as reader, pytest.raises(PositionError, match="partition 0"):
        reader.read_until(lambda: False)


def stored(path: Path) -> object:
    """What tells that the database has taken something."""
    return [found.stat().st_size for found in sorted(path.parent.glob(f"{path.name}*"))]


def check_duckdb(log: ResultsLog, path: Path) -> None:
    """Let the example catch up and end as it is asked to, then look: each request once, none missing."""
    ends = log.ends()
    for _ in range(20):
        process = subprocess.Popen([sys.executable, EXAMPLE, path], env=log.environ, cwd=ROOT)
        try:
            before, deadline_s = stored(path), time.monotonic() + TIMEOUT_S
            while stored(path) == before and time.monotonic() < deadline_s:
                time.sleep(0.05)
            time.sleep(0.2)
            process.terminate()
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()
        with duckdb.connect(str(path)) as db:
            places = dict(db.execute("SELECT log_partition, next_offset FROM places").fetchall())
        if places == ends:
            break
        # So that there is a change to wait for.
        log.write(1)
        ends = log.ends()
    with duckdb.connect(str(path)) as db:
        found = Counter(row[0] for row in db.execute("SELECT request_id FROM results").fetchall())
        unreadable = db.execute("SELECT DISTINCT reason FROM unreadable").fetchall()
        (num_unreadable,) = db.execute("SELECT count(*) FROM unreadable").fetchone() or (0,)
    assert found == Counter(log.request_ids)
    assert unreadable == [("bad_framing",)]
    assert num_unreadable == sum(ends.values()) - len(log.readable())


def test_a_killed_example_has_each_request_once(log: ResultsLog, tmp_path: Path) -> None:
    path, rng = tmp_path / "results.duckdb", random.Random(11)
    log.write(200)
    with log.growing():
        for _ in range(NUM_KILLS):
            kill_in_the_middle(
                log,
                [sys.executable, EXAMPLE, path],
                seen=lambda: stored(path),
                look=lambda: None,
                delay_s=rng.uniform(0.0, 0.2),
            )
    check_duckdb(log, path)


def read_here(log: ResultsLog, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Runs the verb in this process."""
    for name in (BOOTSTRAP_ENV, NAMESPACE_ENV):
        monkeypatch.setenv(name, log.environ[name])
    return main(["read", "ranking.results", *arguments])


def read_command(out: Path, *more: str) -> list[str | Path]:
    return [sys.executable, "-m", "ops.cli", "read", "ranking.results", "--format", "parquet", "--out", out, *more]


def visible(out: Path) -> list[Path]:
    return sorted(out.glob("hour=*/*"))


def look_at_new_files(out: Path, known: dict[Path, int]) -> None:
    """Every file that can be seen is whole, and stays as it was."""
    for path in visible(out):
        size_bytes = path.stat().st_size
        if path not in known:
            pq.ParquetFile(path).read()
            known[path] = size_bytes
        assert known[path] == size_bytes


def check_files(log: ResultsLog, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `read` come to the end, then look: each record of the log once, none missing."""
    # Poison was met, unless it all lies in front.
    assert read_here(log, monkeypatch, "--format", "parquet", "--out", str(out)) in (0, 1)
    found = Counter(
        (row["_partition"], row["_offset"])
        for path in visible(out)
        for row in pq.ParquetFile(path).read(["_partition", "_offset"]).to_pylist()
    )
    assert found == Counter(log.readable())


def test_killed_files_are_whole_and_have_each_record_once(
    log: ResultsLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, rng = tmp_path / "out", random.Random(13)
    known: dict[Path, int] = {}
    log.write(200)
    with log.growing():
        kill_in_the_middle(
            log,
            read_command(out, "--follow", "--every", "50ms"),
            seen=lambda: len(visible(out)),
            look=lambda: look_at_new_files(out, known),
            delay_s=rng.uniform(0.0, 0.2),
        )
    check_files(log, out, monkeypatch)


def test_lines_are_of_the_schema_and_what_cannot_be_read_is_named(
    log: ResultsLog, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write(300)
    exit_code = read_here(log, monkeypatch, "--since", "-10m")
    said = capsys.readouterr()
    lines = [json.loads(line) for line in said.out.splitlines()]
    assert {(line["_partition"], line["_offset"]) for line in lines} == log.readable()
    jsonschema.validate(lines[0], json.loads((ROOT / "docs/read.schema.json").read_text(encoding="utf-8")))
    named = said.err.splitlines()
    assert len(named) == sum(log.ends().values()) - len(lines)
    assert all(line.startswith(f"{log.topic}/") for line in named)
    assert all("bad_framing" in line for line in named)
    assert exit_code == 1
