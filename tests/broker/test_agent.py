"""The fleet agent as a process against a real broker: nothing lost while it is away, gates first, no rule broken."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path

import jsonschema
import pytest

from ops import cli
from ops.agent import CapacityReporter
from ops.broker.jvm import free_port
from ops.broker.local import LocalBroker
from schemas.framing import decode_as, encode
from schemas.gate_reader import GateReader
from schemas.kafka.admin import TopicAdmin
from schemas.kafka.config import BOOTSTRAP_ENV, NAMESPACE_ENV, producer_config
from schemas.kafka.producer import DurableProducer
from schemas.kafka.ranges import read_to_end
from schemas.partition import partition_for
from schemas.records import CapacityEvent
from schemas.topics import FLEET_CAPACITY, Namespace

DOCS = Path(__file__).parents[2] / "docs"
CONFIG = """
cell = "us-east"
host = "gpu-17"
runtime_dir = "run"
state_dir = "state"
policy.idle_for_s = 0.0
reclaim.hold = "1s"
[sources.static]
path = "readings.json"
every_s = 0.1
[[leases]]
path = "lease"
"""
READING = {"pool": "h200-0", "accelerator": "h200", "units": 1.0}
LIMITS = ("--base", "64", "--max", "512", "--latency-limit-ms", "150")
pytestmark = pytest.mark.timeout(120)


class Host:
    """A folder with the configuration of an agent, and its environment."""

    def __init__(self, folder: Path, bootstrap: str, namespace: Namespace) -> None:
        self.folder = folder
        self.runtime = folder / "run"
        self.log = folder / "agent.log"
        self.environ = {
            **os.environ,
            BOOTSTRAP_ENV: bootstrap,
            NAMESPACE_ENV: namespace.prefix,
            "INTERTIDAL_HEARTBEAT_MS": "200",
            "INTERTIDAL_WINDOW_MS": "200",
            "INTERTIDAL_RUNTIME_DIR": str(self.runtime),
        }
        (folder / "agent.toml").write_text(CONFIG)
        self.sees(READING)

    def sees(self, *readings: Mapping[str, object]) -> None:
        draft = self.folder / "readings.draft"
        draft.write_text(json.dumps(readings))
        draft.rename(self.folder / "readings.json")

    def call(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "ops.cli", *arguments]
        return subprocess.run(command, env=self.environ, capture_output=True, text=True, timeout=60, check=False)

    def post(self, path: str, body: str) -> int:
        """Posts to the agent's port, as its log names it."""
        found = re.search(r"health=http://127\.0\.0\.1:(\d+)", self.log.read_text())
        assert found is not None
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=10)
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        return connection.getresponse().status

    def spooled_bytes(self) -> int:
        num_bytes = 0
        for path in (self.folder / "state" / "spool").glob("*.log"):
            # The agent removes a segment when all of it is sent.
            with suppress(FileNotFoundError):
                num_bytes += path.stat().st_size
        return num_bytes

    def use_here(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Lets verbs that are called in this process see the host as its own do."""
        for name, value in self.environ.items():
            monkeypatch.setenv(name, value)

    @contextmanager
    def agent(self) -> "Iterator[subprocess.Popen[bytes]]":
        command = [sys.executable, "-m", "ops.cli", "run", "agent", "--config", str(self.folder / "agent.toml")]
        with self.log.open("w") as log:
            process = subprocess.Popen(command, env=self.environ, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def until(condition: Callable[[], object], *, timeout_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "never came true"
        time.sleep(0.01)


def told(bootstrap: str, namespace: Namespace, host: str) -> list[CapacityEvent]:
    """What a host sent, in the order of the topic; all of it where it belongs."""
    messages = list(read_to_end({"bootstrap.servers": bootstrap}, namespace.topic(FLEET_CAPACITY)))
    assert {message.partition() for message in messages} <= {partition_for(b"us-east", 8)}
    assert {message.key() for message in messages} <= {b"us-east"}
    events = [decode_as(message.value(), CapacityEvent) for message in messages]
    return [event for event in events if event.host == host]


def without_beats(events: list[CapacityEvent]) -> list[tuple[str, str]]:
    return [(event.kind, event.reason) for event in events if event.kind != "heartbeat"]


class Ranker(threading.Thread):
    """Runs optional work behind a gate: it sees a closing at once, and takes a while to give its memory back."""

    def __init__(self, folder: Path, *, drains_s: float) -> None:
        super().__init__(daemon=True)
        self._folder = folder
        self._drains_s = drains_s
        self._over = threading.Event()
        self.drained_ns: list[int] = []
        self.saw_open = threading.Event()

    def run(self) -> None:
        with GateReader("h200-0", folder=self._folder) as gate:
            while not self._over.wait(0.001):
                if gate.is_open():
                    self.saw_open.set()
                elif generation := gate.closing_to_acknowledge():
                    chunk_end_ns = time.monotonic_ns()
                    time.sleep(self._drains_s)
                    self.drained_ns.append(time.monotonic_ns())
                    gate.acknowledge(generation, last_chunk_end_ns=chunk_end_ns, drained_ns=self.drained_ns[-1])

    def end(self) -> None:
        self._over.set()
        self.join()


def test_while_the_broker_is_away_everything_waits_on_disk_and_comes_in_order_also_after_a_kill(
    tmp_path: Path, java_and_jars: None
) -> None:
    space = Namespace()
    broker = LocalBroker(tmp_path / "broker", port=free_port())
    port = broker._wanted_port
    host = Host(tmp_path, f"127.0.0.1:{port}", space)
    with GateReader("h200-0", folder=host.runtime) as gate:
        with host.agent() as process:
            until(gate.is_open)
            host.sees({**READING, "owner_units": 1.0})
            until(lambda: not gate.is_open())
            before = host.spooled_bytes()
            until(lambda: host.spooled_bytes() > before + 500)
            process.kill()
            process.wait()
        host.sees(READING)
        with host.agent() as process, broker:
            TopicAdmin({"bootstrap.servers": broker.bootstrap}).create(space)
            # The gate does not wait for the broker either.
            gate.acknowledge(gate.generation, last_chunk_end_ns=0, drained_ns=time.monotonic_ns())
            until(gate.is_open)
            until(lambda: any(len(told(broker.bootstrap, space, "gpu-17")) > 10 for _ in range(1)))
            process.terminate()
            assert process.wait(30) == 0
            assert not gate.is_open()
            events = told(broker.bootstrap, space, "gpu-17")
    epochs = [(epoch, [event.seq for event in group]) for epoch, group in groupby(events, key=lambda e: e.epoch_ms)]
    assert len(epochs) == 2
    assert epochs[0][0] < epochs[1][0]
    for _, seqs in epochs:
        assert seqs == list(range(len(seqs)))
    first = [event for event in events if event.epoch_ms == epochs[0][0]]
    assert without_beats(first) == [("offer", ""), ("reclaim", "owner_busy")]
    assert sum(event.kind == "heartbeat" for event in first) >= 2
    assert without_beats(events)[-1] == ("reclaim", "agent_stopped")
    assert [len(event.offers) for event in events if event.kind != "heartbeat"] == [1, 0, 1, 0]
    assert not list((tmp_path / "state" / "spool").glob("*.log"))


@pytest.fixture
def space(kafka: str, topic_prefix: str) -> Iterator[Namespace]:
    namespace = Namespace(topic_prefix)
    TopicAdmin({"bootstrap.servers": kafka}).create(namespace)
    yield namespace
    TopicAdmin({"bootstrap.servers": kafka}).delete(namespace)


def test_each_way_to_reclaim_closes_the_gate_and_is_told_and_no_rule_is_broken(
    kafka: str,
    space: Namespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    host = Host(tmp_path, kafka, space)
    host.use_here(monkeypatch)

    def call(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        code = cli.main(arguments)
        return code, capsys.readouterr().out

    assert call("cells", "add", "us-east", *LIMITS)[0] == 0
    began_ms = time.time_ns() // 1_000_000 + 400
    until(lambda: time.time_ns() // 1_000_000 > began_ms)
    with host.agent() as process:
        ranker = Ranker(host.runtime, drains_s=0.3)
        ranker.start()

        def taken_back(by: Callable[[], object]) -> None:
            """Waits until it is offered, takes it back, waits until all have given way."""
            num_drained = len(ranker.drained_ns)
            ranker.saw_open.clear()
            until(ranker.saw_open.is_set)
            by()
            until(lambda: len(ranker.drained_ns) > num_drained)

        answers: list[subprocess.CompletedProcess[str]] = []

        def by_command() -> None:
            answers.append(host.call("reclaim", "h200-0", "--wait", "--for", "1s", "--reason", "launch", "--json"))
            # Not before the last ranker had given its memory back.
            assert time.monotonic_ns() >= ranker.drained_ns[-1]

        taken_back(by_command)
        taken_back(lambda: process.send_signal(signal.SIGUSR1))
        taken_back((tmp_path / "lease").touch)
        (tmp_path / "lease").unlink()
        taken_back(lambda: host.post("/reclaim", '{"for": "1s", "reason": "posted"}'))
        taken_back(lambda: host.sees({**READING, "owner_units": 1.0}))
        process.terminate()
        assert process.wait(30) == 0
        ranker.end()
    (answer,) = answers
    assert answer.returncode == 0, answer.stderr
    said = json.loads(answer.stdout)
    jsonschema.validate(said, json.loads((DOCS / "reclaim.schema.json").read_text()))
    (pool,) = said["pools"]
    assert (said["is_drained"], pool["state"], pool["num_rankers"], pool["had_agent"]) == (True, "drained", 1, True)
    assert pool["drained_ms"] >= 300.0
    assert pool["waited_ms"] >= pool["drained_ms"]

    events = told(kafka, space, "gpu-17")
    reclaims = [event for event in events if event.kind == "reclaim"]
    assert [event.reason for event in reclaims] == ["launch", "signal", "lease_file", "posted", "owner_busy"]
    timings = [timing for event in events for timing in event.reclaims]
    assert [timing.reason for timing in timings] == [event.reason for event in reclaims]
    for timing in timings:
        assert (timing.num_rankers, timing.accelerator) == (1, "h200")
        assert timing.drained_us is not None
        assert timing.drained_us >= 300_000

    with CapacityReporter(cell="us-east", host="mine", spool_dir=tmp_path / "mine") as reporter:
        reporter.offer("h200", units=4, idle_cause="off_peak", cpu_cores=8, memory_bytes=1 << 30)
        reporter.heartbeat()
        reporter.reclaim("h200", reason="launch")
    code, printed = call("agent", "check", "--json")
    assert code == 0, printed
    document = json.loads(printed)
    jsonschema.validate(document, json.loads((DOCS / "agent-check.schema.json").read_text()))
    assert [(seen["host"], seen["num_missing"]) for seen in document["hosts"]] == [("gpu-17", 0), ("mine", 0)]
    assert document["num_records"] == len(events) + 3

    # Another agent, in whatever language, that breaks the rules.
    bad = CapacityEvent(
        cell="us-east", host="bad", epoch_ms=began_ms, seq=0, event_time_ms=began_ms, kind="offer", offers=[]
    )
    with DurableProducer(producer_config({"bootstrap.servers": kafka})) as producer:
        producer.send(space.topic(FLEET_CAPACITY), encode(bad), key=b"us-west.1")
        producer.send(space.topic(FLEET_CAPACITY), b"garbage", key=b"us-east")
    code, printed = call("agent", "check", "--host", "bad")
    assert (code, "broken: key" in printed, "broken: framing" in printed) == (1, True, False)
    whole = json.loads(call("agent", "check", "--json")[1])
    assert {each["rule"] for each in whole["broken"]} == {"key", "snapshot", "framing"}
    assert call("agent", "check", "--since", "yesterday")[0] == 2
