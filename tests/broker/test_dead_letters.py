"""Dead letters on a real broker: bad records end there with their reason, and come back in once, whoever is killed."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ops import cli
from ops.dlq.redrive import REDRIVE_HEADER
from ops.record_json import to_json
from schemas.dead_letters import ATTEMPT_HEADER
from schemas.framing import decode_as
from schemas.kafka.admin import TopicAdmin
from schemas.kafka.config import BOOTSTRAP_ENV, NAMESPACE_ENV, producer_config
from schemas.kafka.dead_letters import message_headers
from schemas.kafka.producer import DurableProducer
from schemas.kafka.ranges import read_to_end
from schemas.records import CellDeclaration, CellLimits, CellRevision, ControlWindow
from schemas.settings import TimeSettings
from schemas.topics import CONTROL_CELLS, CONTROL_WINDOWS, FLEET_CAPACITY, SERVING_LATENCY, Namespace, Topic
from tests.unit.ops.bad_records import Bad, bad_records, good

TIME = TimeSettings(
    window_ms=1_000, lateness_ms=300, heartbeat_ms=500, host_ttl_ms=2_000, skew_ms=3_000, clock_silence_ms=300
)
LIMITS = CellLimits(base_candidates=64, max_candidates=512, latency_limit_ms=150.0)
NUM_GOOD = 5
SOURCE = {FLEET_CAPACITY.name: "host", SERVING_LATENCY.name: "source"}

Said = Callable[..., Any]


class Pipeline:
    """The topics of a test, and the verbs on them."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.config = {"bootstrap.servers": bootstrap, "client.id": "test"}
        self.namespace = Namespace(prefix)
        self.environ = {**os.environ, BOOTSTRAP_ENV: bootstrap, NAMESPACE_ENV: prefix, **TIME.to_env()}

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, "-m", "ops.cli", *arguments], env=self.environ)

    def counted(self) -> Counter[str]:
        """Records that closed windows have counted, by topic."""
        counts: Counter[str] = Counter()
        for message in read_to_end(self.config, self.namespace.topic(CONTROL_WINDOWS)):
            window = decode_as(message.value(), ControlWindow)
            if window.capacity is not None:
                counts[FLEET_CAPACITY.name] += window.capacity.num_events
            if window.latency is not None:
                counts[SERVING_LATENCY.name] += window.latency.num_intervals
        return counts

    def redriven(self, topic: Topic) -> list[bytes]:
        """What the redriven records of a topic say of their letters."""
        found = []
        for message in read_to_end(self.config, self.namespace.topic(topic)):
            headers = dict(message_headers(message))
            if REDRIVE_HEADER in headers:
                assert headers[ATTEMPT_HEADER] == b"1"
                found.append(headers[REDRIVE_HEADER] or b"")
        return found


@pytest.fixture
def pipeline(kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    made = Pipeline(kafka, topic_prefix)
    for name in (BOOTSTRAP_ENV, NAMESPACE_ENV, *TIME.to_env()):
        monkeypatch.setenv(name, made.environ[name])
    TopicAdmin(made.config).create(made.namespace, replication_factor=1)
    return made


@pytest.fixture
def processes() -> Iterator[list["subprocess.Popen[bytes]"]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """The JSON that a verb prints, and its exit code."""

    def run(*arguments: str, code: int = 0) -> Any:
        capsys.readouterr()
        assert cli.main([*arguments, "--json"]) == code, capsys.readouterr().err
        lines = capsys.readouterr().out
        return [json.loads(line) for line in lines.splitlines()] if arguments[1] == "show" else json.loads(lines)

    return run


def wait_until(what: Callable[[], bool], *, timeout_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def sendable(topic: Topic) -> list[Bad]:
    """Those that a broker takes."""
    return [bad for bad in bad_records(topic) if bad.name != "huge"]


@pytest.mark.timeout(120)
def test_bad_records_are_repaired_and_counted_once_whoever_is_killed(
    pipeline: Pipeline, processes: list["subprocess.Popen[bytes]"], said: Said, tmp_path: Path
) -> None:
    bad = {topic: sendable(topic) for topic in (FLEET_CAPACITY, SERVING_LATENCY)}
    with DurableProducer(producer_config(pipeline.config)) as producer:
        declared = CellDeclaration(
            cell="us-east", window_ms=TIME.window_ms, revisions=[CellRevision(from_window=0, limits=LIMITS)]
        )
        producer.send(pipeline.namespace.topic(CONTROL_CELLS), declared, key=b"us-east")
        for topic, records in bad.items():
            for record in records:
                producer.send(pipeline.namespace.topic(topic), record.value, key=record.key, partition=record.partition)
            for number in range(NUM_GOOD):
                fine = replace(good(topic), **{SOURCE[topic.name]: f"good-{number}"})
                producer.send(pipeline.namespace.topic(topic), fine, key=b"us-east")
    processes.append(pipeline.start("run", "ingest"))

    # Each ends among its topic's dead letters, with a reason that names the field.
    wait_until(lambda: letter_counts(said) == {topic.name: len(records) for topic, records in bad.items()})
    for topic, records in bad.items():
        shown = said("dlq", "show", topic.name, "--limit", "1000")
        reasons = Counter((line["reason"], line["field"]) for line in shown)
        assert reasons >= Counter((made.reasons[0], made.field) for made in records if made.field is not None)
        assert all(field for reason, field in reasons if reason == "invalid_field")
        (tmp_path / topic.name).write_text("\n".join(json.dumps(repaired(topic, line)) for line in shown))

    # Without a repair nearly all would be refused again; a plan sends nothing.
    planned = said("dlq", "redrive", "fleet.capacity", code=1)
    assert planned["dry_run"]
    assert planned["stays"]["refused"] > planned["redriven"]
    assert pipeline.redriven(FLEET_CAPACITY) == []

    # Killed in the middle, then done: each is there once.
    path = str(tmp_path / "fleet.capacity")
    killed = pipeline.start("dlq", "redrive", "fleet.capacity", "--repaired", path, "--go", "--rate", "20")
    processes.append(killed)
    wait_until(lambda: len(pipeline.redriven(FLEET_CAPACITY)) >= 10)
    killed.kill()
    killed.wait()
    num_before = len(pipeline.redriven(FLEET_CAPACITY))
    assert num_before < len(bad[FLEET_CAPACITY])
    done = said("dlq", "redrive", "fleet.capacity", "--repaired", path, "--go", "--rate", "5000")
    assert done["redriven"] + num_before == len(bad[FLEET_CAPACITY])
    said("dlq", "redrive", "serving.latency", "--repaired", str(tmp_path / "serving.latency"), "--go")
    for topic, records in bad.items():
        sent = pipeline.redriven(topic)
        assert len(sent) == len(set(sent)) == len(records)
    assert letter_counts(said) == {}
    wait_until(lambda: pipeline.counted() == {topic.name: NUM_GOOD + len(records) for topic, records in bad.items()})


@pytest.mark.timeout(60)
def test_what_is_given_up_stays_in_the_log_with_the_reason(pipeline: Pipeline, said: Said) -> None:
    with DurableProducer(producer_config(pipeline.config)) as producer:
        for number in range(3):
            # No letter at all: that too must be shown and given up.
            producer.send(pipeline.namespace.dead_letters(SERVING_LATENCY), b"junk", key=str(number).encode())
    given = ("dlq", "discard", "serving.latency", "--offset", "1", "--why", "a drill", "--operator", "me")
    assert said(*given) == {"topic": pipeline.namespace.topic(SERVING_LATENCY), "dry_run": True, "discarded": 1}
    assert said(*given, "--go")["discarded"] == 1
    listed = said("dlq", "list", "serving.latency")
    assert [(group["reason"], group["count"]) for group in listed["groups"]] == [("unreadable_letter", 2)]
    (note,) = listed["notes"]
    assert note["what"] == "discard"
    assert "1 letters given up: a drill (me)" in note["detail"]
    assert said("dlq", "list", "serving.latency", "--all")["groups"][0]["count"] == 3
    assert (
        said("dlq", "discard", "serving.latency", "--all", "--why", "x", "--operator", "me", "--go")["discarded"] == 2
    )
    assert letter_counts(said) == {}


def repaired(topic: Topic, shown: dict[str, Any]) -> dict[str, Any]:
    """A line of `dlq show --json` with a good record of a reporter of its own."""
    record = replace(good(topic), **{SOURCE[topic.name]: f"repaired-{shown['offset']}"})
    return shown | {"record": to_json(record), "type": type(record).__name__}


def letter_counts(said: Said) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for group in said("dlq", "list")["groups"]:
        counts[group["topic"]] += group["count"]
    return dict(counts)
