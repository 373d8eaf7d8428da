"""The control agent on a real broker: killed, fed poison, robbed of its folder, stopped."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from schemas.epochs import epoch_of
from schemas.framing import Decoder, decode_as, encode
from schemas.kafka.admin import TopicAdmin
from schemas.kafka.config import Config, producer_config
from schemas.kafka.dead_letters import message_headers
from schemas.kafka.producer import DurableProducer
from schemas.kafka.ranges import read_to_end
from schemas.partition import partition_for
from schemas.records import CandidateTarget, ControllerSnapshot, ControlWindow, DeadLetter, PoolSnapshot
from schemas.topics import (
    CAPACITY_POOLS,
    CONTROL_APP_ID,
    CONTROL_STATE,
    CONTROL_TARGETS,
    CONTROL_WINDOWS,
    Namespace,
    Topic,
)
from streams.control.outputs import destination
from streams.control.processor import apply
from streams.control.settings import ControlSettings
from streams.control.state import CellState
from tests.unit.streams.control_makers import WINDOW_MS, capacity_window, command_window, latency_window

# A region of cells over several partitions, so that outputs and table entries of many share a process.
CELLS = ("us-east", "us-west.1", "us-west.2", "eu-central", "ap-south")
SNAPSHOT_TICKS = 5
OUTPUTS = (CONTROL_TARGETS, CAPACITY_POOLS, CONTROL_STATE)
START_TIMEOUT_S = 60.0

AGENT = """
import sys
from pathlib import Path
from ops.telemetry.logs import set_up_logging
from schemas.settings import TimeSettings
from schemas.topics import Namespace
from streams.control.agent import ControlOptions, run
set_up_logging("control")
prefix, folder, port, ticks = sys.argv[1:]
try:
    run(ControlOptions(namespace=Namespace(prefix), time=TimeSettings(window_ms=2000), instance_id="c-0",
                       data_dir=Path(folder), health_port=int(port), snapshot_ticks=int(ticks)))
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


class Pipeline:
    """Topics of one test, an agent that can be killed, and the log that it reads."""

    def __init__(self, bootstrap: str, prefix: str, folder: Path) -> None:
        self.namespace = Namespace(prefix)
        self.folder = folder
        self.log_path = folder.with_name("agents.log")
        self._config: Config = {"bootstrap.servers": bootstrap, "client.id": "test", "log_level": 3}
        self._env = {**os.environ, "KAFKA_BOOTSTRAP": bootstrap}
        self._producer = DurableProducer(producer_config(self._config))
        self._agents: list[subprocess.Popen[bytes]] = []
        self.port = 0
        TopicAdmin(self._config).create(self.namespace, replication_factor=1)

    def start(self, *, port: int = 0, before: str = "") -> subprocess.Popen[bytes]:
        """Start an agent; ``before`` runs in its process first."""
        self.port = port
        command = [
            sys.executable,
            "-c",
            before + AGENT,
            self.namespace.prefix,
            str(self.folder),
            str(port),
            str(SNAPSHOT_TICKS),
        ]
        with self.log_path.open("ab") as log:
            agent = subprocess.Popen(command, env=self._env, cwd=Path(__file__).parents[2], stderr=log)
        self._agents.append(agent)
        return agent

    def log(self) -> str:
        """What the agents have said."""
        return self.log_path.read_text() if self.log_path.exists() else ""

    def close(self) -> None:
        for agent in self._agents:
            agent.kill()
            agent.wait()
        print(self.log())

    def write(self, window: ControlWindow) -> None:
        self.write_bytes(window.cell.encode(), encode(window))

    def write_bytes(self, key: bytes | None, value: bytes | None, *, partition: int | None = None) -> None:
        where = partition_for(key, CONTROL_WINDOWS.num_partitions) if partition is None and key else partition or 0
        self._producer._producer.produce(self.namespace.topic(CONTROL_WINDOWS), value, key=key, partition=where)
        self._producer._producer.flush(10)

    def read(self, name: str) -> list[Message]:
        """Every record of a topic."""
        return list(read_to_end(self._config, name))

    def records(self, topic: Topic) -> list[Any]:
        decoder = Decoder(topic.record_types)
        return [decoder.decode(message.value()) for message in self.read(self.namespace.topic(topic))]

    def target_indices(self, cell: str) -> set[int]:
        return {target.window_index for target in self.records(CONTROL_TARGETS) if target.cell == cell}

    def dead_letters(self) -> list[DeadLetter]:
        messages = self.read(self.namespace.dead_letters(CONTROL_WINDOWS))
        return [decode_as(message.value(), DeadLetter) for message in messages]

    def expected(self) -> dict[str, set[bytes]]:
        """What the pure controller makes of control.windows, read afresh: framed records by topic."""
        decoder = Decoder(CONTROL_WINDOWS.record_types)
        states: dict[str, CellState] = {}
        made: dict[str, set[bytes]] = {topic.name: set() for topic in OUTPUTS}
        for message in self.read(self.namespace.topic(CONTROL_WINDOWS)):
            window = decoder.decode(message.value())
            assert isinstance(window, ControlWindow)
            state = states.get(window.cell, CellState(cell=window.cell))
            states[window.cell], records = apply(state, window, settings=ControlSettings(snapshot_ticks=SNAPSHOT_TICKS))
            for record in records:
                made[destination(record)[0].name].add(encode(record))
        return made

    def actual(self) -> dict[str, set[bytes]]:
        return {topic.name: {m.value() or b"" for m in self.read(self.namespace.topic(topic))} for topic in OUTPUTS}


@pytest.fixture
def pipeline(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(kafka, topic_prefix, tmp_path / "control")
    yield made
    made.close()


def wait_for(what: Callable[[], bool], *, timeout_s: float = START_TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def first_index(num_windows: int) -> int:
    """Index from which so many windows are over by now."""
    return time.time_ns() // 1_000_000 // WINDOW_MS - num_windows - 1


def varied(index: int, cell: str, dice: random.Random) -> list[ControlWindow]:
    """The two windows of one index, of a world that changes: reclaims, surges, latency, sheds."""
    capacity = capacity_window(
        index, cell=cell, units=dice.choice([0.0, 0.2, 2.0, 4.0, 4.0]), noticed=dice.choice([0.0, 0.1])
    )
    latency = latency_window(
        index,
        cell=cell,
        latency_ms=dice.choice([30.0, 40.0, 60.0, 160.0]),
        num_requests=dice.choice([0, 40, 200, 400]),
        shed=dice.choice([0, 0, 0, 500]),
        busy_us=dice.randrange(2_000_000),
        units_done=dice.randrange(100_000),
    )
    return [capacity, latency]


@pytest.mark.timeout(240)
def test_killed_at_any_moment_it_says_what_the_pure_controller_says(pipeline: Pipeline) -> None:
    dice = random.Random(7)
    num_windows = 110
    start = first_index(num_windows)
    agent = pipeline.start()
    num_kills = 0
    kill_at = time.monotonic() + 6.0 + dice.uniform(0.0, 2.0)
    for index in range(start, start + num_windows):
        windows = {cell: varied(index, cell, dice) for cell in CELLS}
        for kind in (0, 1):
            for cell in CELLS:
                pipeline.write(windows[cell][kind])
                if dice.random() < 0.05:
                    pipeline.write(windows[cell][kind])
        if dice.random() < 0.1:
            action = dice.choice(["freeze", "override", "resume"])
            pipeline.write(command_window(index, action, cell=dice.choice(CELLS), candidate_target=300))
        time.sleep(0.2)
        if num_kills < 3 and time.monotonic() >= kill_at and pipeline.records(CONTROL_TARGETS):
            agent.kill()
            agent.wait()
            agent = pipeline.start()
            num_kills += 1
            kill_at = time.monotonic() + 6.0 + dice.uniform(0.0, 2.0)
    assert num_kills == 3
    last = start + num_windows - 1
    wait_for(lambda: all(last in pipeline.target_indices(cell) for cell in CELLS))
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(30) == 0

    expected, actual = pipeline.expected(), pipeline.actual()
    assert actual == expected
    values = defaultdict(set)
    for target in pipeline.records(CONTROL_TARGETS):
        values[target.cell, target.window_index].add(encode(target))
    assert {place for place, said in values.items() if len(said) > 1} == set()
    assert len(values) == len(CELLS) * num_windows
    for topic in OUTPUTS:
        for message in pipeline.read(pipeline.namespace.topic(topic)):
            assert message.partition() == partition_for(message.key(), topic.num_partitions)
    targets = pipeline.read(pipeline.namespace.topic(CONTROL_TARGETS))
    epochs = [epoch_of(message_headers(message)) for message in targets]
    assert 1 < len(set(epochs)) <= 4
    assert epochs == sorted(epochs)
    assert pipeline.dead_letters() == []


@pytest.mark.timeout(180)
def test_poison_ends_in_the_dead_letters_and_stops_nothing(pipeline: Pipeline) -> None:
    index = first_index(10)
    pipeline.start()
    pipeline.write(capacity_window(index))
    pipeline.write_bytes(b"us-east", b"garbage")
    pipeline.write_bytes(b"us-east", None)
    pipeline.write_bytes(b"us-east", encode(capacity_window(index))[:-2])
    pipeline.write_bytes(None, encode(capacity_window(index)), partition=partition_for(b"us-east", 8))
    pipeline.write_bytes(b"us-east", encode(capacity_window(index)), partition=(partition_for(b"us-east", 8) + 1) % 8)
    pipeline.write(capacity_window(index + 10_000))
    pipeline.write(command_window(index, "override"))
    pipeline.write(latency_window(index))
    wait_for(lambda: index in pipeline.target_indices("us-east") and len(pipeline.dead_letters()) == 7)
    letters = pipeline.dead_letters()
    assert sorted(letter.reason for letter in letters) == sorted(
        ["bad_framing", "empty", "truncated", "key_mismatch", "wrong_partition", "future_event", "invalid_field"]
    )
    assert {(letter.part, letter.timestamp_kind) for letter in letters} == {("control", "append")}
    assert [target.window_index for target in pipeline.records(CONTROL_TARGETS)] == [index]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("loss", ["folder", "database", "changelog"])
def test_a_lost_copy_of_the_state_is_made_good_from_the_other(pipeline: Pipeline, loss: str) -> None:
    num_windows = 12
    start = first_index(num_windows)
    dice = random.Random(11)
    windows = [window for index in range(start, start + num_windows) for window in varied(index, "us-east", dice)]
    half = len(windows) // 2 + 1
    agent = pipeline.start()
    for window in windows[:half]:
        pipeline.write(window)
    wait_for(lambda: start + num_windows // 2 - 1 in pipeline.target_indices("us-east"))
    # Long enough for the last offset to be committed: what is lost now cannot be read again from the windows.
    time.sleep(2.0)
    agent.kill()
    agent.wait()
    home = pipeline.folder / f"{pipeline.namespace.prefix}{CONTROL_APP_ID}"
    databases = [path for path in home.rglob("controllers-*.db") if path.is_dir()]
    assert databases
    if loss == "folder":
        pipeline.folder.rename(pipeline.folder.with_name("gone"))
    elif loss == "database":
        for file in (file for path in databases for file in path.glob("MANIFEST-*")):
            file.write_bytes(b"\x00" * 64)
    else:
        _delete_changelog_records(pipeline)
    pipeline.start()
    for window in windows[half:]:
        pipeline.write(window)
    wait_for(lambda: start + num_windows - 1 in pipeline.target_indices("us-east"))
    wait_for(lambda: pipeline.actual() == pipeline.expected(), timeout_s=10)
    assert bool(list(pipeline.folder.rglob("*.damaged-*"))) == (loss == "database")


def _delete_changelog_records(pipeline: Pipeline) -> None:
    """The broker loses the changelog. It deletes nothing from a compacted topic, so that it is none for a moment."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
    from confluent_kafka.admin._resource import ResourceType

    name = pipeline.namespace.control_changelog
    admin = AdminClient(pipeline._config)
    for policy in ("delete", "compact"):
        entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(20)
        if policy == "delete":
            places = [TopicPartition(name, partition, -1) for partition in range(CONTROL_WINDOWS.num_partitions)]
            for done in admin.delete_records(places).values():
                done.result(20)


@pytest.mark.timeout(180)
def test_it_answers_for_its_health_stops_on_a_signal_and_is_quick(
    pipeline: Pipeline, record_property: Callable[[str, object], None]
) -> None:
    started_s = time.monotonic()
    agent = pipeline.start(port=_free_port())
    wait_for(lambda: _ready(pipeline.port) == (200, {}))
    record_property("startup_s", time.monotonic() - started_s)
    start = first_index(60)
    consumer = Consumer(
        {**pipeline._config, "group.id": f"{pipeline.namespace.prefix}watch", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(pipeline.namespace.topic(CONTROL_TARGETS), 0, 0)])
    delays_s = []
    for index in range(start, start + 60):
        pipeline.write(capacity_window(index))
        pipeline.write(latency_window(index))
        written_s = time.monotonic()
        message = consumer.poll(20.0)
        assert message is not None
        assert decode_as(message.value(), CandidateTarget).window_index == index
        delays_s.append(time.monotonic() - written_s)
    consumer.close()
    delays_s.sort()
    figures = {"p50_ms": delays_s[30] * 1e3, "p99_ms": delays_s[59] * 1e3}
    for name, value in figures.items():
        record_property(name, value)
    print(f"startup and window to target: {figures}")
    # Ten times what an idle two-core machine shows.
    assert figures["p50_ms"] < 500.0
    assert len(pipeline.records(CAPACITY_POOLS)) == 60
    assert len(pipeline.records(CONTROL_STATE)) == 12
    assert all(isinstance(record, PoolSnapshot) for record in pipeline.records(CAPACITY_POOLS))
    assert all(isinstance(record, ControllerSnapshot) for record in pipeline.records(CONTROL_STATE))
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(20) == 0
    assert _ready(pipeline.port) is None


@pytest.mark.timeout(120)
def test_a_second_agent_on_the_same_folder_and_a_missing_topic_are_one_clear_line(
    pipeline: Pipeline, kafka: str, tmp_path: Path
) -> None:
    pipeline.start(port=_free_port())
    wait_for(lambda: _ready(pipeline.port) is not None)
    second = pipeline.start()
    assert second.wait(30) == 1
    assert any(line.endswith("is in use by another control agent") for line in pipeline.log().splitlines())
    bare = subprocess.run(
        [sys.executable, "-c", AGENT, "no-such-", str(tmp_path / "bare"), "0", "5"],
        env={**os.environ, "KAFKA_BOOTSTRAP": kafka},
        cwd=Path(__file__).parents[2],
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert bare.returncode == 1
    assert "run `intertidal topics create`" in bare.stderr.strip().splitlines()[-1]


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _ready(port: int) -> tuple[int, dict[str, str]] | None:
    """Status and reasons of /readyz, None when nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return answer.status, json.loads(answer.read())["reasons"]
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["reasons"]
    except OSError:
        return None


BROKEN_STATE = """
import streams.control.agent as agent
def broken(*args, **kwargs):
    raise RuntimeError("a defect of ours")
agent.encode_state = broken
"""
BROKEN_FOR_ONE_WINDOW = """
import streams.control.step as step
sound = step.apply
def broken(state, window, **kwargs):
    if window.window_index == {index}:
        raise RuntimeError("a defect of ours")
    return sound(state, window, **kwargs)
step.apply = broken
"""


@pytest.mark.timeout(180)
def test_an_agent_that_fails_ends_so_that_it_can_be_started_anew(pipeline: Pipeline) -> None:
    index = first_index(10)
    agent = pipeline.start(before=BROKEN_STATE)
    pipeline.write(capacity_window(index))
    pipeline.write(latency_window(index))
    assert agent.wait(60) != 0
    assert "a defect of ours" in pipeline.log()
    pipeline.start()
    wait_for(lambda: index in pipeline.target_indices("us-east"))


@pytest.mark.timeout(180)
def test_a_window_that_cannot_be_applied_ends_in_the_dead_letters_and_stops_nothing(pipeline: Pipeline) -> None:
    index = first_index(10)
    pipeline.start(before=BROKEN_FOR_ONE_WINDOW.format(index=index))
    for number in (index, index + 1):
        pipeline.write(capacity_window(number))
        pipeline.write(latency_window(number))
    wait_for(lambda: index + 1 in pipeline.target_indices("us-east") and len(pipeline.dead_letters()) == 2)
    assert {letter.reason for letter in pipeline.dead_letters()} == {"cannot_be_applied"}
    assert pipeline.target_indices("us-east") == {index + 1}
    assert "a defect of ours" in pipeline.log()
