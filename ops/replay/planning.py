"""Makes the plan of a run by looking at the source: ranges, what retention has left, snapshots to begin with."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from confluent_kafka import Consumer

from ops.replay.plan import PartitionPlan, raw_span
from ops.replay.run_log import Manifest, SourceSpan, code_version
from ops.replay.snapshot_search import begins
from ops.replay.snapshots import Begin
from ops.replay.work import INGEST
from schemas.kafka.admin import BrokerError, TopicAdmin
from schemas.kafka.config import Config, consumer_config
from schemas.kafka.ranges import offsets_at, read_ranges, watermarks
from schemas.partition import partition_for
from schemas.settings import TimeSettings
from schemas.topics import (
    CAPACITY_POOLS,
    CONTROL_CELLS,
    CONTROL_STATE,
    CONTROL_TARGETS,
    CONTROL_WINDOWS,
    FLEET_CAPACITY,
    SERVING_LATENCY,
    Namespace,
    Topic,
)
from streams.ingest.aggregate import horizon_ms

RAW: Final = (FLEET_CAPACITY, SERVING_LATENCY)
_SAMPLE: Final = 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is asked for. ``offsets`` narrow partitions of source topics, by contract name, to ``[start, end)``."""

    run: str
    parts: tuple[str, ...]
    since_ms: int | None = None
    until_ms: int | None = None
    offsets: Mapping[tuple[str, int], tuple[int, int]] = dataclasses.field(default_factory=dict)
    from_snapshot: bool = False


class Planned(NamedTuple):
    """A run that has not begun: its manifest, the states it begins with, its source in figures, and what to know."""

    manifest: Manifest
    begins: dict[str, Begin]
    partitions: list[PartitionPlan]
    notes: list[str]


class _Sample(NamedTuple):
    first_ms: int | None
    record_bytes: float


class Planner:
    """Looks at the topics of a live pipeline; writes nothing, joins no group. Raises BrokerError."""

    def __init__(self, config: Config, live: Namespace, *, time: TimeSettings) -> None:
        self._config = config
        self._live = live
        self._time = time

    def plan(self, wanted: Wanted) -> Planned:
        """The plan of a run that has not begun."""
        num_partitions = self._num_partitions()
        notes: list[str] = []
        spans: dict[str, list[SourceSpan]] = {}
        partitions: list[PartitionPlan] = []
        is_raw = INGEST in wanted.parts
        for topic in (*(RAW if is_raw else ()), CONTROL_WINDOWS):
            spans[topic.name], said = self._topic(topic, wanted, notes)
            # With the raw records control.windows is only looked at for commands.
            partitions += said if topic is not CONTROL_WINDOWS or not is_raw else []
        if is_raw:
            spans |= {topic.name: _aligned(spans, topic, self._time) for topic in RAW}
            partitions = [_with_window(each, spans) for each in partitions]
        begin = self._begins(wanted, spans, num_partitions, notes)
        manifest = Manifest(
            run=wanted.run,
            created_ms=time.time_ns() // 1_000_000,
            parts=list(wanted.parts),
            code=code_version(),
            time=dataclasses.asdict(self._time),
            num_partitions=num_partitions,
            spans=spans,
            passed={cell: each.passed_offset for cell, each in begin.items()},
            pools_said={cell: each.state.last_capacity for cell, each in begin.items()},
        )
        return Planned(manifest, begin, partitions, notes)

    def _num_partitions(self) -> int:
        """Partitions of the topics that are keyed by cell; raises BrokerError where they differ."""
        names = {
            self._live.topic(topic): topic
            for topic in (*RAW, CONTROL_WINDOWS, CONTROL_CELLS, CONTROL_STATE, CONTROL_TARGETS, CAPACITY_POOLS)
        }
        found = TopicAdmin(self._config).require(names)
        counts = {found[self._live.topic(topic)] for topic in (*RAW, CONTROL_WINDOWS)}
        if len(counts) > 1:
            raise BrokerError(
                "fleet.capacity, serving.latency and control.windows have different numbers of partitions: "
                "run `intertidal topics check`"
            )
        return counts.pop()

    def _topic(self, topic: Topic, wanted: Wanted, notes: list[str]) -> tuple[list[SourceSpan], list[PartitionPlan]]:
        name = self._live.topic(topic)
        consumer = Consumer(consumer_config(self._config, f"{name}.plan"))
        try:
            numbers = range(TopicAdmin(self._config).require([name])[name])
            extents = watermarks(consumer, name, numbers)

            def at(time_ms: int | None) -> dict[int, int] | None:
                return None if time_ms is None else offsets_at(consumer, name, extents, time_ms)

            since = at(wanted.since_ms)
            horizon = at(None if wanted.since_ms is None else wanted.since_ms - horizon_ms(self._time))
            until = at(wanted.until_ms)
        finally:
            consumer.close()
        lows = self._samples(name, {number: (low, end) for number, (low, end) in extents.items()})
        spans, said = [], []
        for number, (low, high) in extents.items():
            end = high if until is None else until[number]
            begin = None if since is None or wanted.since_ms is None else (since[number], wanted.since_ms)
            early = low if horizon is None else horizon[number]
            if (given := wanted.offsets.get((topic.name, number))) is not None:
                end = min(high, given[1])
                begin = (given[0], self._samples(name, {number: (given[0], end)})[number].first_ms or 0)
                early = low
            if topic in RAW:
                span, note = raw_span(
                    number,
                    low=(low, lows[number].first_ms),
                    since=begin,
                    horizon=early,
                    end=end,
                    time=self._time,
                )
            else:
                start = low if begin is None else max(low, begin[0])
                span, note = SourceSpan(partition=number, start=min(start, end), end=end), ""
            if note:
                notes.append(f"{topic.name}[{number}]: {note}")
            spans.append(span)
            said.append(self._said(topic, span, low=low, sample=lows[number]))
        return spans, said

    def _said(self, topic: Topic, span: SourceSpan, *, low: int, sample: _Sample) -> PartitionPlan:
        num_records = span.end - span.start
        return PartitionPlan(
            topic=topic.name,
            partition=span.partition,
            start=span.start,
            end=span.end,
            num_records=num_records,
            num_bytes=round(num_records * sample.record_bytes),
            begins_ms=sample.first_ms if num_records and span.start == low else None,
            num_removed=low if span.start <= low else 0,
            first_window=span.first_window,
        )

    def _samples(self, name: str, extents: Mapping[int, tuple[int, int]]) -> dict[int, _Sample]:
        """Append time of the first record, and bytes of a record, from the first few of each partition."""
        ranges = {number: (start, min(end, start + _SAMPLE)) for number, (start, end) in extents.items()}
        first_ms: dict[int, int] = {}
        sizes: dict[int, list[int]] = {}
        for message in read_ranges(self._config, name, ranges):
            number = message.partition() or 0
            first_ms.setdefault(number, message.timestamp()[1])
            sizes.setdefault(number, []).append(len(message.value() or b"") + len(message.key() or b""))
        return {
            number: _Sample(first_ms.get(number), sum(sizes.get(number, [])) / max(1, len(sizes.get(number, []))))
            for number in extents
        }

    def _begins(
        self, wanted: Wanted, spans: dict[str, list[SourceSpan]], num_partitions: int, notes: list[str]
    ) -> dict[str, Begin]:
        """The snapshots to begin with; moves the starts of control.windows to behind them."""
        if INGEST in wanted.parts or not wanted.from_snapshot:
            windows = spans[RAW[0].name if INGEST in wanted.parts else CONTROL_WINDOWS.name]
            if "control" in wanted.parts and any(span.start > 0 and span.end > span.start for span in windows):
                notes.append("controllers begin from base, not from where they stood: the first targets will differ")
            return {}
        found = begins(
            self._config,
            self._live,
            time=self._time,
            num_partitions=num_partitions,
            before_ms=wanted.since_ms,
        )
        moved = []
        for span in spans[CONTROL_WINDOWS.name]:
            firsts = [
                each.passed_offset + 1
                for cell, each in found.items()
                if partition_for(cell.encode(), num_partitions) == span.partition
            ]
            start = min([span.start, *firsts]) if wanted.since_ms is not None else min(firsts, default=span.start)
            moved.append(_moved(span, start))
        spans[CONTROL_WINDOWS.name] = moved
        if not found:
            notes.append("no snapshot is there to begin with: controllers begin from base")
        return found


def _moved(span: SourceSpan, start: int) -> SourceSpan:
    return SourceSpan(partition=span.partition, start=min(start, span.end), end=span.end)


def _aligned(spans: Mapping[str, Sequence[SourceSpan]], topic: Topic, time: TimeSettings) -> list[SourceSpan]:
    """The spans of a raw topic, each with the first window that both raw partitions of its number can say."""
    aligned = []
    for both in zip(*(spans[raw.name] for raw in RAW), strict=True):
        firsts = [span.first_window for span in both if span.first_window is not None]
        span = both[RAW.index(topic)]
        aligned.append(
            SourceSpan(
                partition=span.partition,
                start=span.start,
                end=span.end,
                said_from=span.said_from,
                first_window=max(firsts, default=None),
            )
        )
    return aligned


def _with_window(plan: PartitionPlan, spans: Mapping[str, Sequence[SourceSpan]]) -> PartitionPlan:
    return PartitionPlan(
        **{
            **{name: getattr(plan, name) for name in plan.__struct_fields__},
            "first_window": spans[plan.topic][plan.partition].first_window,
        }
    )
