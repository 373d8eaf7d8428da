"""An import on a real broker: killed again and again it writes each row once, and the report shows what it earned."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.bandit_import.files import find_files
from ops.bandit_import.names import import_namespace
from ops.cli import main
from ops.replay.work import extent
from schemas.framing import Decoder
from schemas.kafka.admin import BrokerError, TopicAdmin
from schemas.kafka.config import BOOTSTRAP_ENV, NAMESPACE_ENV
from schemas.kafka.ranges import read_to_end
from schemas.records import RankingOutcome, RankingResult, SegmentUplift
from schemas.topics import RANKING_OUTCOMES, RANKING_RESULTS, SEGMENT_UPLIFT, Namespace, Topic
from tests.unit.ops.import_makers import imported, random_log, uplift

NUM_ROWS = 900
KILLS_AFTER = (1, 6_000)
FLOOR = 0.01


@pytest.fixture(autouse=True)
def live(kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Namespace]:
    made = Namespace(topic_prefix)
    monkeypatch.setenv(BOOTSTRAP_ENV, kafka)
    monkeypatch.setenv(NAMESPACE_ENV, topic_prefix)
    yield made
    TopicAdmin({"bootstrap.servers": kafka}).delete(made)


def records(kafka: str, space: Namespace, topic: Topic) -> list[tuple[object, int]]:
    decoder = Decoder(topic.record_types)
    config = {"bootstrap.servers": kafka, "client.id": "test", "log_level": 0}
    return [(decoder.decode(each.value()), each.timestamp()[1]) for each in read_to_end(config, space.topic(topic))]


def num_written(kafka: str, space: Namespace) -> int:
    """End of the results so far, aborted ones included."""
    topic = space.topic(RANKING_RESULTS)
    try:
        return extent({"bootstrap.servers": kafka, "client.id": "test", "log_level": 0}, topic, 0)[1]
    except BrokerError:
        # It is not there yet, or has no leader.
        return 0


@pytest.mark.timeout(300)
def test_killed_and_gone_on_with_it_says_what_an_import_without_a_broker_says(
    live: Namespace, kafka: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    random_log(tmp_path / "random-men", seed=1, num_rows=NUM_ROWS, click_share=0.1, spread=False)
    random_log(tmp_path / "bts-men", seed=2, num_rows=NUM_ROWS, click_share=0.2, spread=True)
    space = import_namespace(live, "men")
    asked = ["import", "open-bandit", str(tmp_path), "--run", "men", "--min-propensity", str(FLOOR), "--json"]

    assert main(asked) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["state"], plan["survey"]["num_rows"]) == ("planned", 2 * NUM_ROWS)
    assert not any(name.startswith(space.prefix) for name in TopicAdmin({"bootstrap.servers": kafka}).existing())

    for num_records in KILLS_AFTER:
        process = subprocess.Popen([sys.executable, "-m", "ops.cli", *asked, "--go"], stdout=subprocess.DEVNULL)
        while process.poll() is None and num_written(kafka, space) < num_records:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        assert process.wait() in (-signal.SIGKILL, 0)

    done = subprocess.run(
        [sys.executable, "-m", "ops.cli", *asked, "--go"], capture_output=True, text=True, check=True, env=os.environ
    )
    document = json.loads(done.stdout)
    assert (done.stderr, document["state"], document["progress"]["num_rows"]) == ("", "done", 2 * NUM_ROWS)

    # Each row once in each cell, at its own time.
    results = records(kafka, space, RANKING_RESULTS)
    assert len(results) == 5 * 2 * NUM_ROWS
    assert set(Counter(each.request_id for each, _ in results if isinstance(each, RankingResult)).values()) == {1}
    assert all(isinstance(each, RankingResult) and at_ms == each.intake_ms for each, at_ms in results)
    outcomes = [each for each, _ in records(kafka, space, RANKING_OUTCOMES) if isinstance(each, RankingOutcome)]
    assert set(Counter(each.outcome_id for each in outcomes).values()) == {1}

    # What is measured of it is what the pure parts measure.
    said, _ = imported(find_files([tmp_path]), min_propensity=FLOOR)
    measured = [each for each, _ in records(kafka, space, SEGMENT_UPLIFT) if isinstance(each, SegmentUplift)]
    assert {(each.cell, each.segment): each for each in measured} == uplift(said)

    # Done is done; another log under the same name is refused; and the report shows it.
    assert main([*asked, "--go"]) == 0
    assert json.loads(capsys.readouterr().out)["progress"] == document["progress"]
    assert main([*asked, "--go", "--min-propensity", "0.1"]) == 1
    assert "take another name" in capsys.readouterr().err
    monkeypatch.setenv(NAMESPACE_ENV, space.prefix)
    assert main(["report", "--json"]) == 0
    gains = json.loads(capsys.readouterr().out)["gains"]
    shown = {(each["cell"], each["segment"]): each for each in gains}
    assert shown.keys() == uplift(said).keys()
    (clicks,) = (
        each for each in shown["men", "(all)"]["effects"] if (each["contrast"], each["measure"]) == ("sbm", "clicks")
    )
    assert (clicks["num_treated"], clicks["num_control"]) == (NUM_ROWS, NUM_ROWS)
    assert clicks["lower"] < clicks["fixed_lower"] < clicks["effect"] < clicks["fixed_upper"] < clicks["upper"]

    monkeypatch.setenv(NAMESPACE_ENV, live.prefix)
    assert main(["import", "delete", "men"]) == 0
    assert not any(name.startswith(space.prefix) for name in TopicAdmin({"bootstrap.servers": kafka}).existing())
