"""Ingest of one capacity partition, beside a bare loop that only reads and decodes the same records.

Both read the same log from Kafka from its start to its end, by turns: batches by ``consume``, as the ingest worker
does. The bare loop decodes each record with the same decoder into the same record type. The processor, started afresh
each time, keeps windows, order, expiry and sums as well; what it need not decode, because a host repeats itself, it
does not. The log is a fleet of hosts of 8 offers, 724 bytes a record, that send a heartbeat every 5 s. The topic keeps
the producer's time, so that minutes of a fleet are read in seconds and windows close as they would.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.measurement import Measurement
from benchmarks.plan import Plan, alternate
from benchmarks.stage import Stage, on_kafka
from schemas.framing import Decoder, encode
from schemas.kafka.admin import TopicAdmin
from schemas.kafka.config import consumer_config, producer_config
from schemas.records import CapacityEvent, CellDeclaration, CellLimits, CellRevision, Offer
from schemas.records.fields import IdleCause
from schemas.settings import TimeSettings
from schemas.topics import FLEET_CAPACITY
from streams.ingest.capacity import CapacityKind
from streams.ingest.cells import Cells
from streams.ingest.partition import PartitionProcessor, RawRecord

NAME = "ingest"

NUM_HOSTS, NUM_HOSTS_QUICK, NUM_HOSTS_TINY = 2_000, 1_000, 10
# Three times to live: hosts fall out of the horizon as they come in.
NUM_HEARTBEATS, NUM_HEARTBEATS_QUICK, NUM_HEARTBEATS_TINY = 18, 8, 4
RECORD_BYTES = 724
BATCH_RECORDS = 256
READ_LIMIT_S = 10.0

CELL = "us-east"
TIME = TimeSettings()
START_MS = 1_700_000_000_000
# A number that Avro writes in two bytes, as most of a long-lived agent's are: records keep their length.
FIRST_SEQ = 100
ACCELERATORS = ("nvidia-h200", "nvidia-h100", "nvidia-a100", "nvidia-l40s", "nvidia-l4", "amd-mi300x", "tpu-v5e", "cpu")
CAUSES: tuple[IdleCause, ...] = ("off_peak", "ahead_of_models", "region_imbalance", "not_ported")
PROVIDER = "own-datacentre-us-east-01a"


class Message(Protocol):
    """What is used of a message of confluent-kafka."""

    def offset(self) -> int | None: ...

    def timestamp(self) -> tuple[int, int]: ...

    def key(self) -> bytes | None: ...

    def value(self) -> bytes | None: ...


Read = Callable[[], Iterator[Sequence[Message]]]


def measure(plan: Plan) -> list[Measurement]:
    """Records per CPU second of the processor and of the bare loop, by how often a host changes its offers."""
    with _source(plan) as read_of:
        return [
            _compare(f"ingest, {what}", read_of(every), plan)
            for what, every in (
                ("heartbeats repeat their offers", 0),
                ("1 of 10 heartbeats changes all offers", 10),
                ("every heartbeat changes all offers", 1),
            )
        ]


def _compare(name: str, read: Read, plan: Plan) -> Measurement:
    rates, reference_rates = alternate(
        partial(_rate, read, _process), partial(_rate, read, _decode), num_turns=plan.num_turns, name=name
    )
    return Measurement(
        name=name,
        unit="records/CPU s",
        values=rates,
        reference="read and decode only",
        reference_values=reference_rates,
        goal="at least 0.8 times",
    )


def _rate(read: Read, take_all: Callable[[Read], int]) -> float:
    # CPU time of all threads of this process, those of the Kafka client too.
    start_ns = time.process_time_ns()
    num_records = take_all(read)
    return num_records / (time.process_time_ns() - start_ns) * 1e9


def _process(read: Read) -> int:
    cells = Cells(window_ms=TIME.window_ms)
    limits = CellLimits(base_candidates=100, max_candidates=500, latency_limit_ms=200.0)
    cells.declare(
        CellDeclaration(cell=CELL, window_ms=TIME.window_ms, revisions=[CellRevision(from_window=0, limits=limits)])
    )
    processor = PartitionProcessor(CapacityKind(), 0, num_partitions=1, time=TIME, cells=cells)
    num_records = num_windows = 0
    for batch in read():
        out = processor.process(
            [
                RawRecord(message.offset() or 0, message.timestamp()[1], message.key(), message.value())
                for message in batch
            ]
        )
        assert not out.refusals, out.refusals[0].error
        assert not out.num_duplicates
        num_records += len(batch)
        num_windows += len(out.windows)
    assert num_windows
    return num_records


def _decode(read: Read) -> int:
    decoder = Decoder(FLEET_CAPACITY.record_types)
    num_records = 0
    for batch in read():
        for message in batch:
            decoder.decode(message.value())
        num_records += len(batch)
    return num_records


@contextmanager
def _source(plan: Plan) -> Iterator[Callable[[int], Read]]:
    """How to get at a log in which every nth heartbeat changes: from Kafka, or in a tiny plan from memory."""
    if plan.tiny:
        yield lambda every: partial(_from_memory, list(_log(plan, every)))
        return
    with on_kafka() as stage:
        yield lambda every: partial(_from_kafka, stage, _filled_topic(stage, plan, every))


def _from_memory(log: Sequence[Message]) -> Iterator[Sequence[Message]]:
    for start in range(0, len(log), BATCH_RECORDS):
        yield log[start : start + BATCH_RECORDS]


def _from_kafka(stage: Stage, topic: str) -> Iterator[Sequence[Message]]:
    consumer = Consumer(consumer_config(stage.config("bench-ingest"), f"{topic}.bench"))
    place = TopicPartition(topic, 0, 0)
    try:
        _, end = consumer.get_watermark_offsets(place, READ_LIMIT_S)
        consumer.assign([place])
        position = 0
        while position < end:
            batch = consumer.consume(BATCH_RECORDS, READ_LIMIT_S)
            if not batch or any(message.error() is not None for message in batch):
                raise RuntimeError(f"{topic}: cannot be read beyond offset {position} of {end}")
            position = (batch[-1].offset() or 0) + 1
            yield batch
    finally:
        consumer.close()


def _filled_topic(stage: Stage, plan: Plan, every: int) -> str:
    topic = f"{stage.namespace.prefix}capacity-{every}"
    base = stage.config("bench-ingest")
    # As logs of the past are imported: the producer's time, and no retention that would remove it at once.
    new = NewTopic(topic, 1, 1, config={"message.timestamp.type": "CreateTime", "retention.ms": "-1"})
    # The client must outlive its futures.
    admin = AdminClient(base)
    admin.create_topics([new])[topic].result()
    TopicAdmin(base).wait_until_served({topic: 1})
    producer = Producer(producer_config(base, **{"linger.ms": 50}))
    for message in _log(plan, every):
        producer.produce(topic, message.value(), message.key(), 0, timestamp=message.timestamp()[1])
        if not message.offset() % BATCH_RECORDS:
            producer.poll(0.0)
    if producer.flush(60.0):
        raise RuntimeError(f"{topic}: the broker did not take all records")
    return topic


@dataclass(frozen=True, slots=True)
class _Logged:
    """A record of the log before it is in Kafka, with the face of a message."""

    number: int
    append_ms: int
    body: bytes

    def offset(self) -> int:
        return self.number

    def timestamp(self) -> tuple[int, int]:
        return 1, self.append_ms

    def key(self) -> bytes:
        return CELL.encode()

    def value(self) -> bytes:
        return self.body


def _log(plan: Plan, every: int) -> Iterator[_Logged]:
    """Heartbeats of every host, spread evenly over the time between two; ``every`` 0: none changes."""
    num_hosts = plan.choose(NUM_HOSTS, NUM_HOSTS_QUICK, NUM_HOSTS_TINY)
    for beat in range(plan.choose(NUM_HEARTBEATS, NUM_HEARTBEATS_QUICK, NUM_HEARTBEATS_TINY)):
        for host in range(num_hosts):
            number = beat * num_hosts + host
            now_ms = START_MS + beat * TIME.heartbeat_ms + host * TIME.heartbeat_ms // num_hosts
            # Not all hosts change in the same heartbeat.
            num_changes = (beat + host) // every if every else 0
            event = CapacityEvent(
                cell=CELL,
                host=f"host-{host:06}.r-{host // 40:04}.us-east.example",
                epoch_ms=START_MS,
                seq=FIRST_SEQ + beat,
                event_time_ms=now_ms,
                kind="heartbeat",
                offers=offers_of(units=1.0 + (host + num_changes) % 8, extra_bytes=num_changes * NUM_HOSTS + host),
            )
            value = encode(event)
            assert len(value) == RECORD_BYTES, len(value)
            yield _Logged(number, now_ms, value)


def offers_of(*, units: float, extra_bytes: int) -> list[Offer]:
    """Offers that no other host makes, and this one only as long as it does not change."""
    return [
        Offer(
            accelerator=accelerator,
            units=units,
            cpu_cores=8.0 * units,
            memory_bytes=(64 << 30) + extra_bytes,
            idle_cause=CAUSES[place % len(CAUSES)],
            provider=PROVIDER,
            offered_since_ms=START_MS,
        )
        for place, accelerator in enumerate(ACCELERATORS)
    ]
