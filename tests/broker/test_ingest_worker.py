"""The ingest worker on a real broker: killed at random moments, fed poison, stopped, refused."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from schemas.epochs import NO_EPOCH, epoch_of
from schemas.framing import decode_as, encode
from schemas.kafka.admin import TopicAdmin
from schemas.kafka.config import consumer_config, producer_config
from schemas.kafka.dead_letters import message_headers
from schemas.kafka.producer import DurableProducer
from schemas.kafka.ranges import read_to_end
from schemas.partition import partition_for
from schemas.records import CellDeclaration, CellRevision, ClockRecord, ControlWindow, DeadLetter
from schemas.settings import TimeSettings
from schemas.topics import CONTROL_CELLS, CONTROL_PARTITIONS, CONTROL_WINDOWS, Namespace
from streams.ingest.capacity import CapacityKind
from streams.ingest.cells import Cells
from streams.ingest.latency import LatencyKind
from streams.ingest.partition import RawRecord, recompute
from tests.unit.streams.ingest_makers import LIMITS, account, capacity_of, event, interval, limits_with, offer, route

TIME = TimeSettings(
    window_ms=1_000, lateness_ms=300, heartbeat_ms=500, host_ttl_ms=2_000, skew_ms=3_000, clock_silence_ms=300
)
KINDS = CAPACITY, LATENCY = CapacityKind(), LatencyKind()
CELLS = ("us-east", "us-west.1", "us-west.2", "eu-central", "ap-south")
# Declared for windows that begin while the test runs.
LATER_CELL = "sa-east"
PRODUCE_S = 12.0
NUM_KILLS = 3
SEED = 20_240_607

WORKER = """
import sys
from ops.telemetry.logs import set_up_logging
from schemas.settings import TimeSettings
from schemas.topics import Namespace
from streams.ingest.worker import IngestOptions, run
set_up_logging("ingest")
prefix, port, static = sys.argv[1:]
try:
    run(IngestOptions(namespace=Namespace(prefix), time=TimeSettings.from_env(), worker_id="i-0",
                      health_port=int(port), static_member=static == "static"))
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


@dataclass
class Pipeline:
    """Topics of one test and a producer to them."""

    namespace: Namespace
    config: dict[str, Any]
    producer: DurableProducer

    def start_worker(self, *, port: int = 0, static: bool = True, **env: str) -> subprocess.Popen[bytes]:
        environ = {**os.environ, **TIME.to_env(), "KAFKA_BOOTSTRAP": self.config["bootstrap.servers"], **env}
        return subprocess.Popen(
            [sys.executable, "-c", WORKER, self.namespace.prefix, str(port), "static" if static else "dynamic"],
            env=environ,
            stderr=subprocess.PIPE if env else None,
        )

    def declare(self, cell: str, *revisions: CellRevision) -> None:
        declared = CellDeclaration(cell=cell, window_ms=TIME.window_ms, revisions=list(revisions))
        self.producer.send(self.namespace.topic(CONTROL_CELLS), declared, key=cell.encode())

    def windows(self) -> dict[tuple[str, str, int, int], list[bytes]]:
        """Every window sent, by what it is about, in the order of the log."""
        sent: defaultdict[tuple[str, str, int, int], list[bytes]] = defaultdict(list)
        for message in read_to_end(self.config, self.namespace.topic(CONTROL_WINDOWS)):
            value = message.value()
            assert value is not None
            window = decode_as(value, ControlWindow)
            assert message.key() == window.cell.encode()
            assert message.partition() == partition_for(window.cell.encode(), CONTROL_PARTITIONS)
            assert epoch_of(message_headers(message)) > NO_EPOCH
            sent[window.kind, window.cell, window.source_partition, window.window_index].append(value)
        return sent


@pytest.fixture
def pipeline(kafka: str, topic_prefix: str) -> Pipeline:
    config = {"bootstrap.servers": kafka, "client.id": "test"}
    namespace = Namespace(topic_prefix)
    TopicAdmin(config).create(namespace, replication_factor=1)
    return Pipeline(namespace, config, DurableProducer(producer_config(config)))


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


class Fleet:
    """Produces random, and partly unbelievable, capacity events and intervals."""

    def __init__(self, pipeline: Pipeline, rng: random.Random) -> None:
        self._pipeline = pipeline
        self._rng = rng
        self._epochs: dict[tuple[str, str], int] = {}
        self._seqs: Counter[tuple[str, str]] = Counter()
        self.poisoned: list[tuple[bytes | None, bytes | None]] = []

    def send_some(self) -> None:
        """Send one record, believable or not."""
        rng = self._rng
        now_ms = time.time_ns() // 1_000_000
        cell = rng.choice((*CELLS, LATER_CELL)) if rng.random() < 0.9 else CELLS[0]
        source = f"s-{rng.randrange(6)}"
        record = self._capacity(cell, source, now_ms) if rng.random() < 0.6 else self._latency(cell, source, now_ms)
        kind = CAPACITY if hasattr(record, "host") else LATENCY
        if rng.random() < 0.05:
            self._poison(kind, record, now_ms)
            return
        for _ in range(2 if rng.random() < 0.05 else 1):
            self._send(kind, encode(record), cell.encode())

    def _capacity(self, cell: str, host: str, now_ms: int) -> Any:
        rng = self._rng
        offers = [
            offer(accelerator, rng.choice((0.5, 1.0, 2.25)), unusable=rng.choice((None, "memory")))
            for accelerator in rng.sample(("h200", "a100", "cpu"), rng.randrange(4))
        ]
        return event(
            cell,
            host=host,
            kind=rng.choice(("offer", "update", "heartbeat")),
            offers=offers,
            **self._numbers(cell, host, now_ms),
        )

    def _latency(self, cell: str, source: str, now_ms: int) -> Any:
        rng = self._rng
        values = [rng.lognormvariate(3.0, 1.0) for _ in range(5)]
        numbers = self._numbers(cell, f"r{source}", now_ms)
        return interval(
            cell,
            source=source,
            part=rng.choice(("router", "ranker")),
            latency=route("wide", values).latency,
            routes=[route("baseline", values, num_work=5, pressure=rng.random()), route("wide", values[:2])],
            accounts=[account("rma", admitted=rng.randrange(9), pressure=rng.randrange(9))],
            num_requests=5,
            **numbers,
        )

    def _numbers(self, cell: str, source: str, now_ms: int) -> dict[str, int]:
        rng = self._rng
        key = (cell, source)
        if key not in self._epochs or rng.random() < 0.01:
            self._epochs[key], self._seqs[key] = now_ms, 0
        self._seqs[key] += 1
        seq = max(1, self._seqs[key] - (rng.randrange(1, 5) if rng.random() < 0.05 else 0))
        at_ms = now_ms + (rng.randrange(-4_000, 1_500) if rng.random() < 0.2 else -rng.randrange(50))
        return {"epoch_ms": self._epochs[key], "seq": seq, "at_ms": at_ms}

    def _poison(self, kind: Any, record: Any, now_ms: int) -> None:
        key, value = record.cell.encode(), encode(record)
        choice = self._rng.randrange(6)
        partition = -1
        if choice == 0:
            value = b"nonsense"
        elif choice == 1:
            value = value[:-3]
        elif choice == 2:
            key = b"other"
        elif choice == 3:
            partition = (partition_for(key, CONTROL_PARTITIONS) + 1) % CONTROL_PARTITIONS
        elif choice == 4:
            value = encode(event("nowhere", at_ms=now_ms) if kind is CAPACITY else interval("nowhere", at_ms=now_ms))
            key = b"nowhere"
        else:
            at_ms = now_ms + 60_000
            value = encode(event(record.cell, at_ms=at_ms) if kind is CAPACITY else interval(record.cell, at_ms=at_ms))
        self.poisoned.append((key, value))
        self._send(kind, value, key, partition=partition)

    def _send(self, kind: Any, value: bytes, key: bytes, *, partition: int = -1) -> None:
        topic = self._pipeline.namespace.topic(kind.topic)
        self._pipeline.producer.send(topic, value, key=key, partition=partition)


def raw_records(pipeline: Pipeline, kind: Any) -> dict[int, list[RawRecord]]:
    records: defaultdict[int, list[RawRecord]] = defaultdict(list)
    for message in read_to_end(pipeline.config, pipeline.namespace.topic(kind.topic)):
        partition = message.partition()
        assert partition is not None
        records[partition].append(raw_record(message))
    return records


def raw_record(message: Message) -> RawRecord:
    offset = message.offset()
    assert offset is not None
    return RawRecord(offset, message.timestamp()[1], message.key(), message.value())


def declared_cells(pipeline: Pipeline) -> Cells:
    cells = Cells(window_ms=TIME.window_ms)
    for message in read_to_end(pipeline.config, pipeline.namespace.topic(CONTROL_CELLS)):
        cells.read(message.key(), message.value())
    return cells


def wait_until(condition: Any, *, timeout_s: float = 30.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "not within the time limit"
        time.sleep(0.2)


def committed(pipeline: Pipeline, kind: Any) -> list[TopicPartition]:
    consumer = Consumer(consumer_config(pipeline.config, pipeline.namespace.group("ingest")))
    try:
        places = [TopicPartition(pipeline.namespace.topic(kind.topic), number) for number in range(CONTROL_PARTITIONS)]
        return consumer.committed(places, timeout=10)
    finally:
        consumer.close()


@pytest.mark.timeout(180)
def test_killed_at_random_moments_it_sends_the_windows_that_the_raw_log_holds_and_no_others(
    pipeline: Pipeline, processes: list[subprocess.Popen[bytes]]
) -> None:
    rng = random.Random(SEED)
    started_window = time.time_ns() // 1_000_000 // TIME.window_ms
    for cell in CELLS:
        changed = CellRevision(from_window=started_window + 6, limits=limits_with(max_candidates=700))
        pipeline.declare(cell, CellRevision(from_window=0, limits=LIMITS), changed)
    pipeline.declare(LATER_CELL, CellRevision(from_window=started_window + 9, limits=LIMITS))
    pipeline.producer.drain()
    fleet = Fleet(pipeline, rng)
    worker = pipeline.start_worker()
    processes.append(worker)
    kills_s = sorted(rng.uniform(2.0, PRODUCE_S - 1.0) for _ in range(NUM_KILLS))
    begun_s = time.monotonic()

    while (passed_s := time.monotonic() - begun_s) < PRODUCE_S:
        if kills_s and passed_s >= kills_s[0]:
            kills_s.pop(0)
            worker.kill()
            worker.wait()
            worker = pipeline.start_worker()
            processes.append(worker)
        for _ in range(8):
            fleet.send_some()
        pipeline.producer.poll()
        time.sleep(0.02)
    pipeline.producer.drain()
    last_window = time.time_ns() // 1_000_000 // TIME.window_ms
    # Every partition gets there by its own clock records, silent or not.
    wait_until(lambda: _reached(pipeline.windows(), last_window))
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=30) == 0

    sent = pipeline.windows()
    cells = declared_cells(pipeline)
    num_refused: Counter[str] = Counter()
    refused: set[bytes] = set()
    expected = {}
    for kind in KINDS:
        for partition, records in raw_records(pipeline, kind).items():
            out = recompute(records, kind, partition, num_partitions=CONTROL_PARTITIONS, time=TIME, cells=cells)
            for window in out.windows:
                expected[window.kind, window.cell, window.source_partition, window.window_index] = encode(window)
            topic = pipeline.namespace.topic(kind.topic)
            refused |= {f"{topic}/{partition}/{refusal.offset}".encode() for refusal in out.refusals}
            num_refused.update(refusal.error.reason for refusal in out.refusals)
    # The last clock records may lie unread behind the end: windows that only they close are not sent.
    reached = {place: max(w for k, c, p, w in sent if (k, p) == place) for place in {(k, p) for k, _, p, _ in sent}}
    due = {key: value for key, value in expected.items() if key[3] <= reached[key[0], key[2]]}
    assert {key: set(values) for key, values in sent.items()} == {key: {value} for key, value in due.items()}
    assert {cell for _, cell, _, _ in sent} == {*CELLS, LATER_CELL}
    of_h200 = [capacity_of(decode_as(value, ControlWindow)) for value in due.values() if b"h200" in value]
    assert sum(capacity.num_events for capacity in of_h200) > 100

    letters = {}
    for kind in KINDS:
        for message in read_to_end(pipeline.config, pipeline.namespace.dead_letters(kind.topic)):
            letters[message.key()] = decode_as(message.value(), DeadLetter)
    assert letters.keys() == refused
    poisoned = Counter(fleet.poisoned)
    assert poisoned <= Counter((letter.key, letter.value) for letter in letters.values())
    assert {"bad_framing", "truncated", "key_mismatch", "wrong_partition", "unknown_cell", "future_event"} <= {
        *num_refused
    }


def _reached(sent: dict[tuple[str, str, int, int], list[bytes]], window: int) -> bool:
    done = {(kind, cell) for kind, cell, _, index in sent if index >= window}
    return len(done) == len(KINDS) * (len(CELLS) + 1)


@pytest.mark.timeout(90)
def test_silent_partitions_are_told_the_time_and_the_first_offset_is_committed(
    pipeline: Pipeline, processes: list[subprocess.Popen[bytes]]
) -> None:
    pipeline.declare(CELLS[0], CellRevision(from_window=0, limits=LIMITS))
    pipeline.producer.drain()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    worker = pipeline.start_worker(port=port, static=False)
    processes.append(worker)
    wait_until(lambda: len(pipeline.windows()) >= 6)
    for kind in KINDS:
        records = raw_records(pipeline, kind)
        assert len(records) == CONTROL_PARTITIONS
        for values in records.values():
            assert all(decode_as(raw.value, ClockRecord).writer == "i-0" and raw.key is None for raw in values)
            # One a silence, not one a turn of the loop.
            gaps_ms = [later.append_ms - earlier.append_ms for earlier, later in pairwise(values)]
            assert min(gaps_ms, default=1_000) >= TIME.clock_silence_ms * 0.8
        assert all(place.offset >= 0 and place.metadata for place in committed(pipeline, kind))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
        assert answer.status == 200
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        assert b'intertidal_windows_closed_total{cell="us-east",kind="latency"}' in answer.read()
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=30) == 0


@pytest.mark.timeout(60)
def test_commit_metadata_of_another_hand_is_refused_in_one_line(
    pipeline: Pipeline, processes: list[subprocess.Popen[bytes]]
) -> None:
    consumer = Consumer(consumer_config(pipeline.config, pipeline.namespace.group("ingest")))
    topic = pipeline.namespace.topic(CAPACITY.topic)
    consumer.commit(offsets=[TopicPartition(topic, 3, 0, metadata="by hand")], asynchronous=False)
    consumer.close()
    worker = pipeline.start_worker(PYTHONUNBUFFERED="1")
    processes.append(worker)
    _, errors = worker.communicate(timeout=40)
    assert worker.returncode == 1
    last_line = errors.decode().strip().splitlines()[-1]
    assert last_line.startswith(f"ProgressError: {topic}[3] at offset 0: ")
    assert "delete the group's offset" in last_line


@pytest.mark.timeout(60)
def test_a_broker_without_the_topics_is_named(kafka: str, processes: list[subprocess.Popen[bytes]]) -> None:
    bare = Pipeline(
        Namespace("t-nothing-here."),
        {"bootstrap.servers": kafka},
        DurableProducer(producer_config({"bootstrap.servers": kafka})),
    )
    worker = bare.start_worker(PYTHONUNBUFFERED="1")
    processes.append(worker)
    _, errors = worker.communicate(timeout=40)
    assert worker.returncode == 1
    assert "topic t-nothing-here." in errors.decode().strip().splitlines()[-1]
