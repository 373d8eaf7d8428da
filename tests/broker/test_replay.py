"""A replay on a real broker: killed and gone on with, it says what the live parts said, and touches nothing live."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Message

from ops import cli
from ops.replay.diff import compare_run
from ops.replay.run_log import RunLog
from ops.replay.runs import Runs
from ops.times import iso_time
from schemas.framing import Decoder, encode
from schemas.kafka.admin import TopicAdmin
from schemas.kafka.config import Config, producer_config
from schemas.kafka.producer import DurableProducer
from schemas.kafka.ranges import read_to_end
from schemas.records import CellDeclaration, CellRevision, ControlWindow, OperatorCommand
from schemas.settings import TimeSettings
from schemas.topics import (
    CAPACITY_POOLS,
    CONTROL_CELLS,
    CONTROL_TARGETS,
    CONTROL_WINDOWS,
    FLEET_CAPACITY,
    SERVING_LATENCY,
    Namespace,
    Topic,
)
from tests.unit.streams.control_makers import LIMITS
from tests.unit.streams.ingest_makers import event, interval, offer, route

TIME = TimeSettings(
    window_ms=500, lateness_ms=100, heartbeat_ms=200, host_ttl_ms=1_000, skew_ms=2_000, clock_silence_ms=200
)
CELLS = ("us-east", "us-west.1", "eu-central")
FED_S = 5.0
POISON = b"poison"
SOURCES = (FLEET_CAPACITY, SERVING_LATENCY, CONTROL_WINDOWS, CONTROL_TARGETS, CAPACITY_POOLS, CONTROL_CELLS)

Verb = Callable[..., str]

PARTS = """
import sys
from pathlib import Path
from ops.telemetry.logs import set_up_logging
from schemas.settings import TimeSettings
from schemas.topics import Namespace
part, prefix, folder = sys.argv[1:]
set_up_logging(part)
space, settings = Namespace(prefix), TimeSettings.from_env()
if part == "ingest":
    from streams.ingest.worker import IngestOptions, run
    run(IngestOptions(namespace=space, time=settings, worker_id="i-0"))
else:
    from streams.control.agent import ControlOptions, run
    run(ControlOptions(namespace=space, time=settings, instance_id="c-0", data_dir=Path(folder), snapshot_ticks=4))
"""


class Live:
    """A pipeline of ingest and control, fed with random records."""

    def __init__(self, bootstrap: str, prefix: str, folder: Path) -> None:
        self.namespace = Namespace(prefix)
        self.config: Config = {"bootstrap.servers": bootstrap, "client.id": "test", "log_level": 0}
        self.environ = {
            **os.environ,
            **TIME.to_env(),
            "KAFKA_BOOTSTRAP": bootstrap,
            "INTERTIDAL_NAMESPACE": prefix,
        }
        self._folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.parts: dict[str, subprocess.Popen[bytes]] = {}
        TopicAdmin(self.config).create(self.namespace, replication_factor=1)

    def start(self, part: str) -> None:
        command = [sys.executable, "-c", PARTS, part, self.namespace.prefix, str(self._folder)]
        self.parts[part] = subprocess.Popen(command, env=self.environ)
        self.processes.append(self.parts[part])

    def stop(self, part: str) -> None:
        process = self.parts[part]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0

    def replay(self, *arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-m", "ops.cli", "replay", *arguments], env=self.environ)
        self.processes.append(process)
        return process

    def messages(self, topic: Topic, *, run: str = "") -> list[Message]:
        prefix = f"{self.namespace.prefix}replay.{run}." if run else self.namespace.prefix
        return list(read_to_end(self.config, prefix + topic.name))

    def bodies(self, topic: Topic, *, run: str = "") -> dict[tuple[str, ...], list[bytes]]:
        """The records of a topic by what they are about; what is said again after a crash counts once."""
        decoder = Decoder(topic.record_types)
        found: defaultdict[tuple[str, ...], list[bytes]] = defaultdict(list)
        for message in self.messages(topic, run=run):
            if message.value() == POISON:
                continue
            record = decoder.decode(message.value())
            names = ("cell", "kind", "accelerator", "window_index")
            about = tuple(str(getattr(record, name, "")) for name in names)
            if encode(record) not in found[about]:
                found[about].append(encode(record))
        return dict(found)


@pytest.fixture
def live(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[Live]:
    pipeline = Live(kafka, topic_prefix, tmp_path)
    yield pipeline
    for process in pipeline.processes:
        process.kill()
        process.wait()


def feed(live: Live) -> None:
    """Hosts and routers of three cells, poison, and an operator's hold in the middle."""
    rng = random.Random(7)
    name = live.namespace.topic
    with DurableProducer(producer_config(live.config)) as producer:
        began_s, seq = time.monotonic(), 0
        commanded = False
        while (passed_s := time.monotonic() - began_s) < FED_S:
            seq += 1
            at_ms = time.time_ns() // 1_000_000
            for cell in CELLS:
                offers = [offer("a100", rng.choice((1.0, 4.0, 8.0)))]
                producer.send(
                    name(FLEET_CAPACITY),
                    event(cell, host=f"h-{seq % 3}", kind="heartbeat", offers=offers, seq=seq, at_ms=at_ms),
                    key=cell.encode(),
                )
                values = [rng.lognormvariate(4.0, 0.5) for _ in range(20)]
                measured = interval(
                    cell,
                    source="r-1",
                    part="router",
                    latency=route("wide", values).latency,
                    routes=[route("wide", values)],
                    num_requests=20,
                    seq=seq,
                    at_ms=at_ms,
                )
                producer.send(name(SERVING_LATENCY), measured, key=cell.encode())
            if seq % 10 == 0:
                producer.send(name(FLEET_CAPACITY), POISON, key=b"us-east")
                producer.send(name(CONTROL_WINDOWS), POISON, key=b"us-east")
            if passed_s > FED_S / 2 and not commanded:
                commanded = True
                producer.send(name(CONTROL_WINDOWS), _hold(at_ms), key=b"us-east")
            producer.poll()
            time.sleep(0.04)


def _hold(at_ms: int) -> ControlWindow:
    index = at_ms // TIME.window_ms
    return ControlWindow(
        cell="us-east",
        kind="command",
        source_partition=0,
        window_index=index,
        start_ms=index * TIME.window_ms,
        end_ms=(index + 1) * TIME.window_ms,
        command=OperatorCommand(action="override", operator="ada", reason="a drill", candidate_target=333),
    )


def places(live: Live, topics: Sequence[Topic]) -> list[tuple[str, int, int]]:
    return [(topic.name, len(live.messages(topic)), hash_of(live.messages(topic))) for topic in topics]


def hash_of(messages: Sequence[Message]) -> int:
    return hash(tuple((message.partition(), message.offset(), message.key(), message.value()) for message in messages))


@pytest.fixture
def said(live: Live, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Verb:
    """Runs `intertidal replay` in this process and returns what it prints."""
    for name in live.environ:
        monkeypatch.setenv(name, live.environ[name])

    def run(*arguments: str) -> str:
        exit_code = cli.main(["replay", *arguments])
        out, errors = capsys.readouterr()
        assert exit_code == 0, errors + out
        return out

    return run


@pytest.mark.chaos
@pytest.mark.timeout(180)
def test_a_replay_beside_the_live_pipeline_says_what_it_said(live: Live, said: Verb) -> None:
    with DurableProducer(producer_config(live.config)) as producer:
        for cell in CELLS:
            declared = CellDeclaration(
                cell=cell, window_ms=TIME.window_ms, revisions=[CellRevision(from_window=0, limits=LIMITS)]
            )
            producer.send(live.namespace.topic(CONTROL_CELLS), declared, key=cell.encode())
    live.start("ingest")
    live.start("control")
    feed(live)
    last_window = time.time_ns() // 1_000_000 // TIME.window_ms
    deadline_s = time.monotonic() + 60.0
    # Silent partitions are told the time, so that the last windows close too.
    while len([about for about in live.bodies(CONTROL_WINDOWS) if int(about[3]) == last_window]) < 2 * len(CELLS):
        assert time.monotonic() < deadline_s, "the live pipeline closes no windows"
        time.sleep(0.2)
    live.stop("ingest")
    # Beside the live controllers: they say the same, sooner or later.
    said("control-1", "--part", "control", "--go")
    exact = {topic: live.bodies(topic, run="control-1") for topic in (CONTROL_TARGETS, CAPACITY_POOLS)}
    deadline_s = time.monotonic() + 60.0
    while len(live.bodies(CONTROL_TARGETS)) < len(exact[CONTROL_TARGETS]):
        assert time.monotonic() < deadline_s, "the live pipeline does not tick"
        time.sleep(0.2)
    live.stop("control")
    assert exact == {topic: live.bodies(topic) for topic in exact}
    assert len(exact[CONTROL_TARGETS]) > 3 * len(CELLS)
    before = places(live, SOURCES)

    # A plan does nothing.
    plan = json.loads(said("raw", "--json"))
    assert plan["total"]["num_records"] == sum(len(live.messages(topic)) for topic in SOURCES[:2])
    assert [each["run"] for each in json.loads(said("list", "--json"))] == ["control-1"]

    # Raw records, killed with its workers in the middle, and gone on with.
    killed = live.replay("raw", "--rate", "100", "--workers", "2", "--go")
    deadline_s = time.monotonic() + 60.0
    while not any(each["num_said"] for each in json.loads(said("list", "--json")) if each["run"] == "raw"):
        assert killed.poll() is None
        assert time.monotonic() < deadline_s, "the replay does not begin"
    killed.kill()
    killed.wait()
    _, unfinished = json.loads(said("list", "--json"))
    assert unfinished["state"] == "unfinished"
    said("raw", "--rate", "0", "--workers", "2", "--go")
    _, done = json.loads(said("list", "--json"))
    assert done["state"] == "done"
    assert done["num_read"] >= done["num_records"]

    for topic in (CONTROL_WINDOWS, CONTROL_TARGETS, CAPACITY_POOLS):
        assert covered(live.bodies(topic, run="raw"), live.bodies(topic)), topic.name
    once = [message.value() for message in live.messages(CONTROL_WINDOWS, run="raw")]
    assert len(once) == len(set(once))
    assert done["num_said"] > len(once)
    found = compare_run(live.config, live.namespace, find(live, "raw"), tolerance=0.0)
    assert [each.family for each in found.families] == ["windows", "targets", "pools"]
    for each in found.families:
        assert each.num_equal > 10
        assert each.num_different == each.num_only_live == each.num_removed == 0

    # Control from a snapshot in the middle.
    indices = sorted({int(about[3]) for about in exact[CONTROL_TARGETS]})
    middle = iso_time((indices[len(indices) // 2]) * TIME.window_ms)
    said("control-2", "--part", "control", "--from-snapshot", "--since", middle, "--go")
    from_snapshot = live.bodies(CONTROL_TARGETS, run="control-2")
    assert from_snapshot.items() <= exact[CONTROL_TARGETS].items()
    assert len(CELLS) * 2 <= len(from_snapshot) < len(exact[CONTROL_TARGETS])
    assert "different" not in said("diff", "control-2")

    # Nothing of the live pipeline has moved.
    assert places(live, SOURCES) == before
    said("delete", "control-2")
    assert [each["run"] for each in json.loads(said("list", "--json"))] == ["control-1", "raw"]
    assert places(live, SOURCES) == before


def find(live: Live, run: str) -> RunLog:
    log = Runs(live.config, live.namespace).find(run)
    assert log is not None
    return log


def covered(replayed: dict[tuple[str, ...], list[bytes]], live: dict[tuple[str, ...], list[bytes]]) -> bool:
    """Whether all that was said live is said again, byte for byte; the last windows may be closed by records that the
    live worker was told to leave unread."""
    return live.items() <= replayed.items()
