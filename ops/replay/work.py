"""The replay of one partition number of a run, from wherever it stands to its end.

For each part, in this order:
    1. open the sink: what a killed process left open is ended, one that only slept is shut out;
    2. read the run's log: it says where to go on;
    3. read a batch, drive the pure part, collect what it says;
    4. from time to time write that, with the progress behind it, in one transaction;
    5. at the end of the range write the rest and that it is done.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from confluent_kafka import Consumer, Message

from ops.replay.commands import as_they_counted, heard
from ops.replay.control_part import ControlReplay
from ops.replay.ingest_part import KINDS, IngestReplay
from ops.replay.names import run_log, run_namespace
from ops.replay.pace import Pace
from ops.replay.reading import RangeReader
from ops.replay.run_log import Manifest, PartProgress, Place, RunLog, SourceSpan, read_run_log
from ops.replay.sink import Sink
from ops.replay.stretch import Stretch
from schemas.dead_letters import RawRecord as WholeRecord
from schemas.errors import RecordError
from schemas.kafka.config import Config, consumer_config
from schemas.kafka.dead_letters import raw_record
from schemas.kafka.ranges import read_ranges, read_to_end, watermarks
from schemas.records import ControlWindow
from schemas.settings import TimeSettings
from schemas.topics import CONTROL_CELLS, CONTROL_WINDOWS, Namespace
from streams.control.believe import believed
from streams.control.settings import ControlSettings
from streams.ingest.cells import Cells
from streams.ingest.partition import RawRecord
from streams.ingest.progress import Progress, from_metadata, to_metadata

INGEST: Final = "ingest"
CONTROL: Final = "control"
PARTS: Final = (INGEST, CONTROL)
_BATCH: Final = 4_096

Report = Callable[[str, int], None]


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of one pipeline. ``report`` of its methods is told of each batch: part, records read."""

    config: Config
    live: Namespace
    manifest: Manifest

    @property
    def space(self) -> Namespace:
        """Namespace of the run."""
        return run_namespace(self.live, self.manifest.run)

    @property
    def time(self) -> TimeSettings:
        return TimeSettings(**self.manifest.time)

    def replay(self, partition: int, *, pace: Pace, report: Report) -> None:
        """Replay one partition to its end; raises BrokerError or DeliveryError, after which it can be gone on with."""
        for part in PARTS:
            if part in self.manifest.parts:
                with self._stretch(part, partition) as (log, stretch):
                    before = log.progress.get((part, partition), PartProgress())
                    if before.is_done:
                        continue
                    if part == INGEST:
                        self._ingest(partition, before, stretch, pace=pace, report=report)
                    else:
                        self._control(partition, before, log, stretch, pace=pace, report=report)

    @contextmanager
    def _stretch(self, part: str, partition: int) -> Iterator[tuple[RunLog, Stretch]]:
        topic = run_log(self.space)
        sink = Sink(  # step 1
            self.config, self.space, name=f"{part}.{partition}", log_topic=topic, log_partition=partition
        )
        try:
            log = partition_log(self.config, topic, partition)  # step 2
            before = log.progress.get((part, partition), PartProgress())
            yield log, Stretch(sink, part=part, partition=partition, before=before)
        finally:
            sink.close()

    def _reader(self, topic: str, span: SourceSpan, offset: int, part: str) -> RangeReader:
        return RangeReader(
            self.config, self.space.prefix + part, topic=topic, partition=span.partition, start=offset, end=span.end
        )

    def _ingest(self, partition: int, before: PartProgress, stretch: Stretch, *, pace: Pace, report: Report) -> None:
        spans = {kind.name: self._span(kind.topic.name, partition) for kind in KINDS}
        starts: dict[str, Progress] = {name: self._start(span, before.places.get(name)) for name, span in spans.items()}
        live_windows = self._span(CONTROL_WINDOWS.name, partition)
        others = heard(self._live_windows(live_windows))
        replay = IngestReplay(
            partition,
            num_partitions=self.manifest.num_partitions,
            time=self.time,
            cells=self._cells(),
            starts=starts,
            others=as_they_counted(others, self._live_windows(live_windows)),
        )

        def write(*, is_done: bool) -> None:
            places = {
                name: Place(offset=at.offset, metadata=to_metadata(at, window_ms=self.time.window_ms))
                for name, at in replay.progress().items()
            }
            num_refused = before.num_refused + replay.num_refused
            stretch.write(places, num_refused=num_refused, states={}, is_done=is_done)

        with ExitStack() as stack:
            readers: dict[str, RangeReader] = {
                kind.name: stack.enter_context(
                    self._reader(self.live.topic(kind.topic), spans[kind.name], starts[kind.name].offset, INGEST)
                )
                for kind in KINDS
            }
            while (name := replay.wanted()) is not None:
                batch = readers[name].read(pace.batch(_BATCH))  # step 3
                if batch:
                    said = replay.take(name, [_raw(message) for message in batch], partial(_whole, batch))
                else:
                    said = replay.end(name)
                stretch.add(said, num_read=len(batch))
                if stretch.is_due:
                    write(is_done=False)  # step 4
                pace.took(len(batch))
                report(INGEST, len(batch))
            write(is_done=True)  # step 5

    def _control(
        self, partition: int, before: PartProgress, log: RunLog, stretch: Stretch, *, pace: Pace, report: Report
    ) -> None:
        topic, span = self._windows(partition)
        place = before.places.get(CONTROL_WINDOWS.name)
        replay = ControlReplay(
            num_partitions=self.manifest.num_partitions,
            time=self.time,
            settings=ControlSettings(validity_windows=self.time.validity_windows),
            states=log.states,
            passed=self.manifest.passed,
        )
        position = span.start if place is None else place.offset

        def write(*, is_done: bool) -> None:
            num_refused = before.num_refused + replay.num_refused
            places = {CONTROL_WINDOWS.name: Place(offset=position)}
            stretch.write(places, num_refused=num_refused, states=replay.changed(), is_done=is_done)

        with self._reader(topic, span, position, CONTROL) as reader:
            while batch := reader.read(pace.batch(_BATCH)):  # step 3
                stretch.add(replay.take(map(raw_record, batch)), num_read=len(batch))
                position = (batch[-1].offset() or 0) + 1
                if stretch.is_due:
                    write(is_done=False)  # step 4
                pace.took(len(batch))
                report(CONTROL, len(batch))
            write(is_done=True)  # step 5

    def _windows(self, partition: int) -> tuple[str, SourceSpan]:
        """What the controllers read: the run's own windows, or the live ones."""
        if INGEST not in self.manifest.parts:
            return self.live.topic(CONTROL_WINDOWS), self._span(CONTROL_WINDOWS.name, partition)
        topic = self.space.topic(CONTROL_WINDOWS)
        low, end = extent(self.config, topic, partition)
        return topic, SourceSpan(partition=partition, start=low, end=end)

    def _span(self, topic: str, partition: int) -> SourceSpan:
        return next(span for span in self.manifest.spans[topic] if span.partition == partition)

    def _start(self, span: SourceSpan, place: Place | None) -> Progress:
        if place is not None:
            return from_metadata(place.offset, place.metadata, window_ms=self.time.window_ms)
        return first_progress(span, self.time)

    def _cells(self) -> Cells:
        """The declarations that the run was begun with."""
        cells = Cells(window_ms=self.time.window_ms)
        for message in read_to_end(self.config, self.space.topic(CONTROL_CELLS)):
            # As a live worker: what cannot be read is left out, and what was declared before stands.
            with suppress(RecordError):
                cells.read(message.key(), message.value())
        return cells

    def _live_windows(self, span: SourceSpan) -> Iterator[tuple[int, ControlWindow]]:
        """What a partition of the live control.windows holds, with its offsets."""
        with self._reader(self.live.topic(CONTROL_WINDOWS), span, span.start, INGEST) as reader:
            while batch := reader.read(_BATCH):
                for message in batch:
                    with suppress(RecordError):
                        window = believed(
                            raw_record(message), num_partitions=self.manifest.num_partitions, skew_ms=self.time.skew_ms
                        )
                        yield message.offset() or 0, window


def first_progress(span: SourceSpan, time: TimeSettings) -> Progress:
    """Where a raw partition of a run begins."""
    if span.first_window is None:
        return Progress(offset=span.start, last_offset=span.said_from - 1)
    opens_ms = span.first_window * time.window_ms + time.lateness_ms
    return Progress(
        offset=span.start, last_offset=span.said_from - 1, largest_ms=opens_ms, next_window=span.first_window
    )


def partition_log(config: Config, topic: str, partition: int) -> RunLog:
    """One partition of the log of a run; raises RunLogError or BrokerError."""
    latest = {}
    for message in read_ranges(config, topic, {partition: extent(config, topic, partition)}):
        key, value = message.key(), message.value()
        if key is not None and value is not None:
            latest[key] = value
    return read_run_log(latest)


def extent(config: Config, topic: str, partition: int) -> tuple[int, int]:
    """First offset and end, with what a transaction that is just being closed holds: a reader waits for its verdict."""
    consumer = Consumer(consumer_config(config, f"{topic}.extent", **{"isolation.level": "read_uncommitted"}))
    try:
        return watermarks(consumer, topic, [partition])[partition]
    finally:
        consumer.close()


def _raw(message: Message) -> RawRecord:
    return RawRecord(message.offset() or 0, message.timestamp()[1], message.key(), message.value())


def _whole(batch: list[Message], index: int) -> WholeRecord:
    return raw_record(batch[index])
