"""A raw replay, ingest and control, beside a bare loop that only reads and decodes the same records.

Both read the same raw topics from Kafka, by turns: a fleet of 2,000 hosts that send a heartbeat of 8 offers every 5 s,
and 600 routers and replicas that send an interval every second; together 1,000 records a second over 8 cells. The
topics keep the producer's time, so that windows close as they did. The replay makes the windows, ticks the controllers
and writes all of it to the topics of a run; to begin a run is not measured. Its CPU time is that of the whole process,
the Kafka client's threads included; how many times real time it is, is measured by the clock on the wall, in two
processes.
"""

import dataclasses
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Final, NamedTuple

from confluent_kafka import Producer
from msgspec import Struct

from benchmarks.ingest import NUM_HOSTS, START_MS, TIME, offers_of
from benchmarks.measurement import Measurement
from benchmarks.plan import Plan, alternate
from benchmarks.stage import Stage, on_kafka
from ops.replay.control_part import ControlReplay
from ops.replay.ingest_part import KINDS, IngestReplay
from ops.replay.pace import Pace
from ops.replay.planning import Planned, Planner, Wanted
from ops.replay.reading import RangeReader
from ops.replay.runs import Runs
from ops.replay.work import PARTS, Job
from ops.replay.workers import replay
from schemas.dead_letters import RawRecord as WholeRecord
from schemas.framing import Decoder, encode
from schemas.histogram import ExponentialHistogram
from schemas.kafka.admin import TopicAdmin
from schemas.kafka.config import Config, producer_config
from schemas.partition import partition_for
from schemas.records import (
    CapacityEvent,
    CellDeclaration,
    CellLimits,
    CellRevision,
    HistogramFields,
    LatencyInterval,
    RouteInterval,
)
from schemas.topics import (
    CONTROL_CELLS,
    CONTROL_PARTITIONS,
    FLEET_CAPACITY,
    SERVING_LATENCY,
    Namespace,
    Topic,
    planned_topics,
)
from streams.control.settings import ControlSettings
from streams.ingest.cells import Cells
from streams.ingest.partition import RawRecord
from streams.ingest.progress import Progress

NAME: Final = "replay"
NUM_CELLS: Final = 8
NUM_REPORTERS: Final = 600
LASTS_S, LASTS_S_QUICK, LASTS_S_TINY = 180, 60, 30
NUM_PROCESSES: Final = 2
_BATCH: Final = 4_096
_LIMITS: Final = CellLimits(base_candidates=100, max_candidates=500, latency_limit_ms=200.0)


class _Logged(NamedTuple):
    topic: Topic
    cell: str
    append_ms: int
    record: Struct


def measure(plan: Plan) -> list[Measurement]:
    """Records per CPU second of a replay and of the bare loop; and how many times real time two processes are."""
    lasts_s = plan.choose(LASTS_S, LASTS_S_QUICK, LASTS_S_TINY)
    if plan.tiny:
        log = list(_log(lasts_s, num_hosts=8, num_reporters=2))
        return [_Compared(*alternate(partial(_in_memory, log), partial(_decoded, log), num_turns=1, name=NAME)).made()]
    with on_kafka() as stage, filled(stage, lasts_s) as past:
        source = _Source(stage.config("bench-replay"), past)
        rates = alternate(source.replay_rate, source.bare_rate, num_turns=plan.num_turns, name=NAME)
        times = [source.times_real(lasts_s) for _ in range(plan.num_turns)]
    return [
        _Compared(*rates).made(),
        Measurement(
            name=f"replay in {NUM_PROCESSES} processes, 1,000 records/s",
            unit="times real time",
            values=times,
            goal="at least 50",
        ),
    ]


class _Compared(NamedTuple):
    values: Sequence[float]
    reference_values: Sequence[float]

    def made(self) -> Measurement:
        return Measurement(
            name="replay of ingest and control",
            unit="records/CPU s",
            values=self.values,
            reference="read and decode only",
            reference_values=self.reference_values,
            goal="at least 0.8 times",
        )


class _Source:
    """Raw topics full of records, and runs over them."""

    def __init__(self, config: Config, live: Namespace) -> None:
        self._config = config
        self._live = live
        self._numbers = count()

    def replay_rate(self) -> float:
        job, num_records = self._begun()
        pace = Pace(0.0, clock_s=time.monotonic, sleep=time.sleep)
        start_ns = time.process_time_ns()
        for partition in range(job.manifest.num_partitions):
            job.replay(partition, pace=pace, report=lambda _part, _number: None)
        return num_records / (time.process_time_ns() - start_ns) * 1e9

    def bare_rate(self) -> float:
        manifest, num_records = self._planned().manifest, 0
        start_ns = time.process_time_ns()
        for topic in (FLEET_CAPACITY, SERVING_LATENCY):
            decoder = Decoder(topic.record_types)
            for span in manifest.spans[topic.name]:
                name, at = self._live.topic(topic), span.partition
                with RangeReader(
                    self._config, "bench", topic=name, partition=at, start=span.start, end=span.end
                ) as reader:
                    while batch := reader.read(_BATCH):
                        for message in batch:
                            decoder.decode(message.value())
                        num_records += len(batch)
        return num_records / (time.process_time_ns() - start_ns) * 1e9

    def times_real(self, lasts_s: float) -> float:
        job, _ = self._begun()
        began_s = time.perf_counter()
        replay(
            job,
            range(job.manifest.num_partitions),
            num_workers=NUM_PROCESSES,
            rate=0.0,
            report=lambda _part, _number: None,
        )
        return lasts_s / (time.perf_counter() - began_s)

    def _begun(self) -> tuple[Job, int]:
        planned = self._planned()
        Runs(self._config, self._live).begin(planned)
        num_records = sum(each.num_records for each in planned.partitions)
        return Job(config=self._config, live=self._live, manifest=planned.manifest), num_records

    def _planned(self) -> Planned:
        wanted = Wanted(run=f"bench-{next(self._numbers)}", parts=PARTS)
        return Planner(self._config, self._live, time=TIME).plan(wanted)


@contextmanager
def filled(stage: Stage, lasts_s: int) -> Iterator[Namespace]:
    """A pipeline of which only the raw topics of the past are left: what 1,000 records a second make in that time."""
    live = Namespace(f"{stage.namespace.prefix}past.")
    config = stage.config("bench-replay")
    # As logs of the past are imported: the producer's time, and no retention that would remove it at once.
    of_the_past = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}
    TopicAdmin(config).create_planned(
        dataclasses.replace(planned, config={**planned.config, **of_the_past}) for planned in planned_topics(live)
    )
    producer = Producer(producer_config(config, **{"linger.ms": 50}))
    for cell in _cells():
        producer.produce(live.topic(CONTROL_CELLS), encode(_declaration(cell)), key=cell.encode())
    for number, logged in enumerate(_log(lasts_s, num_hosts=NUM_HOSTS, num_reporters=NUM_REPORTERS)):
        name, key = live.topic(logged.topic), logged.cell.encode()
        producer.produce(name, encode(logged.record), key=key, timestamp=logged.append_ms)
        if not number % 256:
            producer.poll(0.0)
    if producer.flush(60.0):
        raise RuntimeError("the broker did not take all records")
    yield live


def _log(lasts_s: int, *, num_hosts: int, num_reporters: int) -> Iterator[_Logged]:
    """Everything in the order of its time, to the millisecond: all senders spread evenly over their interval."""
    cells = _cells()
    hosts = _by_place(num_hosts, TIME.heartbeat_ms)
    reporters = _by_place(num_reporters, TIME.interval_ms)
    for now_ms in range(START_MS, START_MS + 1_000 * lasts_s):
        for host in hosts.get(now_ms % TIME.heartbeat_ms, ()):
            yield _heartbeat(cells[host % NUM_CELLS], host, now_ms)
        for reporter in reporters.get(now_ms % TIME.interval_ms, ()):
            yield _interval(cells[reporter % NUM_CELLS], reporter, now_ms)


def _by_place(num_senders: int, every_ms: int) -> dict[int, list[int]]:
    """The senders by their millisecond in the interval."""
    places: dict[int, list[int]] = {}
    for sender in range(num_senders):
        places.setdefault(sender * every_ms // num_senders, []).append(sender)
    return places


def _heartbeat(cell: str, host: int, now_ms: int) -> _Logged:
    event = CapacityEvent(
        cell=cell,
        host=f"host-{host:06}",
        epoch_ms=START_MS,
        seq=now_ms - START_MS,
        event_time_ms=now_ms,
        kind="heartbeat",
        offers=offers_of(units=1.0 + host % 8, extra_bytes=host),
    )
    return _Logged(FLEET_CAPACITY, cell, now_ms, event)


def _interval(cell: str, reporter: int, now_ms: int) -> _Logged:
    measured = ExponentialHistogram()
    measured.record_many([20.0 + (reporter * 7 + at * 13 + now_ms) % 90 for at in range(20)])
    histogram = HistogramFields(**measured.to_fields())
    is_router = reporter % 4 == 0
    route = RouteInterval(
        route="wide",
        latency=histogram,
        queue_wait=histogram,
        num_work=20,
        num_answered=20,
        busy_us=9_000,
        units_done=900,
    )
    interval = LatencyInterval(
        cell=cell,
        source=f"reporter-{reporter:04}",
        part="router" if is_router else "ranker",
        epoch_ms=START_MS,
        seq=now_ms - START_MS,
        event_time_ms=now_ms,
        interval_ms=1_000,
        latency=histogram,
        routes=[route],
        accounts=[],
        num_requests=20 if is_router else 0,
        num_results=20 if is_router else 0,
        num_base_late=0,
        num_errors=0,
    )
    return _Logged(SERVING_LATENCY, cell, now_ms, interval)


def _cells() -> list[str]:
    return [f"us-east.{number}" for number in range(NUM_CELLS)]


def _declaration(cell: str) -> CellDeclaration:
    return CellDeclaration(cell=cell, window_ms=TIME.window_ms, revisions=[CellRevision(from_window=0, limits=_LIMITS)])


def _in_memory(log: Sequence[_Logged]) -> float:
    """The replay of one partition without Kafka: only shows that the code runs."""
    cells = Cells(window_ms=TIME.window_ms)
    home = partition_for(_cells()[0].encode(), CONTROL_PARTITIONS)
    for cell in _cells():
        cells.declare(_declaration(cell))
    starts: dict[str, Progress] = {kind.name: Progress(offset=0) for kind in KINDS}
    ingest = IngestReplay(home, num_partitions=CONTROL_PARTITIONS, time=TIME, cells=cells, starts=starts)
    control = ControlReplay(num_partitions=CONTROL_PARTITIONS, time=TIME, settings=ControlSettings())
    start_ns = time.process_time_ns()
    said = []
    for kind in KINDS:
        raws = [
            RawRecord(offset, each.append_ms, each.cell.encode(), encode(each.record))
            for offset, each in enumerate(log)
            if each.topic is kind.topic and partition_for(each.cell.encode(), CONTROL_PARTITIONS) == home
        ]
        said += ingest.take(kind.name, raws, _whole)
        said += ingest.end(kind.name)
    targets = control.take(
        WholeRecord(
            topic=each.topic,
            partition=home,
            offset=offset,
            timestamp_ms=log[-1].append_ms,
            timestamp_kind="append",
            key=each.key,
            value=encode(each.record),
        )
        for offset, each in enumerate(said)
    )
    assert not ingest.num_refused + control.num_refused
    assert targets
    return len(log) / (time.process_time_ns() - start_ns) * 1e9


def _whole(index: int) -> WholeRecord:
    raise AssertionError(f"record {index} is refused")


def _decoded(log: Sequence[_Logged]) -> float:
    decoders = {topic.name: Decoder(topic.record_types) for topic in (FLEET_CAPACITY, SERVING_LATENCY)}
    start_ns = time.process_time_ns()
    for each in log:
        decoders[each.topic.name].decode(encode(each.record))
    return len(log) / (time.process_time_ns() - start_ns) * 1e9
