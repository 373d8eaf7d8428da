"""The processor of one partition of a raw topic: records in; closed windows, refusals and progress out. Pure.

What it does with a record depends on the log alone: no wall clock, no Kafka, no batch boundary.

    clock        largest append time of the accepted records so far, "append time" everywhere below
    watermark    clock - lateness
    next window  floor(watermark / window length): every window below it is closed
    belongs to   floor(event time / window length), or the next window where that one is closed; the record is late then

A window closes in every cell that is declared for it and whose key leads to the partition, whether or not there was
a record; of kinds that are keyed by user only where there was one, in whatever cell. A record that is refused leaves no
trace: it moves no clock, counts in no window and in no numbering.

Steps for each record, in this order, because what is refused must not have changed anything:

1. decode, and check what can be checked on the record and its place alone: key, partition, skew, its own sums;
2. its append time moves the clock, in thought: the windows that this closes are known;
3. its cell must be declared for the window that it then belongs to;
4. now it counts: close the windows (without it), then drop it as a duplicate or hand it to its cell's aggregate.

Recovery. At the start of window W all that matters was appended at ``start(W) - horizon`` or later; how long that is,
its kind says. A processor that starts from ``progress()`` re-reads from there, emits no window below the first one not
yet emitted and no refusal up to the last offset processed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.errors import RecordError
from schemas.partition import partition_for
from schemas.records import CellLimits, ClockRecord, ControlWindow
from schemas.settings import TimeSettings
from streams.ingest.aggregate import CellAggregate, Closed, Kind, Record
from streams.ingest.cells import Cells
from streams.ingest.commit_marks import CommitMarks
from streams.ingest.progress import Progress

MARK_SPACING_MS = 1_000


class RawRecord(NamedTuple):
    """One record of a raw topic as the log has it."""

    offset: int
    append_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A record that could not be read or believed: its offset, its index in the batch, and why."""

    offset: int
    index: int
    error: RecordError


@dataclass(slots=True)
class Processed:
    """What came out of one batch. Counts leave out what was only read again after a restart."""

    windows: list[ControlWindow] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    num_duplicates: int = 0
    num_late: int = 0


class PartitionProcessor:
    """Turns one partition's records into closed windows. ``cells`` is shared: it changes as declarations come in."""

    def __init__(
        self,
        kind: Kind,
        partition: int,
        *,
        num_partitions: int,
        time: TimeSettings,
        cells: Cells,
        start: Progress | None = None,
    ) -> None:
        start = start or Progress(offset=0)
        self._kind = kind
        self._partition = partition
        self._num_partitions = num_partitions
        self._time = time
        self._cells = cells
        self._decoder = kind.decoder()
        self._seen_before = kind.seen_before(time)
        self._aggregates: dict[str, CellAggregate] = {}
        self._in_force: dict[int, dict[str, CellLimits]] = {}
        self._in_force_version = cells.version
        self._cell_by_key: dict[bytes, str] = {}
        # Of kinds whose empty windows are no fact: those that are open and not empty.
        self._filled: set[int] = set()
        self._horizon_ms = kind.horizon_ms(time)
        self._marks = CommitMarks(
            start.offset, start.before_ms, spacing_ms=min(MARK_SPACING_MS, time.window_ms, time.host_ttl_ms)
        )
        self._start = start
        self._clock_ms = start.before_ms
        # The first window not closed, and the clock at which it closes; both mean nothing before the first record.
        self._open_window = 0
        self._closes_at_ms = 0
        if start.before_ms is not None:
            self._open_from(self._first_open(start.before_ms))
        self._position = start.offset

    @property
    def clock_ms(self) -> int | None:
        """Largest append time so far; None before the first record that counts."""
        return self._clock_ms

    @property
    def position(self) -> int:
        """Offset behind the last record processed."""
        return self._position

    def process(self, batch: Iterable[RawRecord]) -> Processed:
        """Process records in the order of the log; what comes out is the same however they are cut into batches."""
        out = Processed()
        if self._in_force_version != self._cells.version:
            self._in_force.clear()
            self._in_force_version = self._cells.version
        raw: RawRecord | None = None
        for index, raw in enumerate(batch):
            try:
                self._take(raw, out)
            except RecordError as error:
                if raw.offset > self._start.last_offset:
                    out.refusals.append(Refusal(raw.offset, index, error))
        if raw is not None:
            self._position = raw.offset + 1
        return out

    def progress(self) -> Progress:
        """Where to start again once everything returned so far is durable."""
        last_offset = max(self._start.last_offset, self._position - 1)
        next_window = _larger(None if self._clock_ms is None else self._open_window, self._start.next_window)
        largest_ms = _larger(self._clock_ms, self._start.largest_ms)
        if self._clock_ms is None or next_window is None:
            # Nothing counts so far: what was refused need not be read again.
            offset, before_ms = self._position, None
        else:
            offset, before_ms = self._marks.latest_before(next_window * self._time.window_ms - self._horizon_ms)
        return Progress(
            offset=offset,
            before_ms=before_ms,
            last_offset=last_offset,
            largest_ms=largest_ms,
            next_window=next_window,
        )

    def _take(self, raw: RawRecord, out: Processed) -> None:
        # 1. What can be checked on the record and its place alone.
        record: Record = self._decoder.decode(raw.value)
        before_ms = self._clock_ms
        clock_ms = raw.append_ms if before_ms is None or raw.append_ms > before_ms else before_ms
        if type(record) is ClockRecord:
            self._advance(raw.offset, clock_ms, out)
            return
        self._check(raw.key, record, clock_ms)
        # 2. The clock, in thought.
        next_window = self._first_open(clock_ms) if clock_ms >= self._closes_at_ms else self._open_window
        window = self._kind.event_ms(record, clock_ms) // self._time.window_ms
        late = window < next_window
        if late:
            window = next_window
        # 3. The cell.
        if record.cell not in self._limits(window):
            raise RecordError("unknown_cell", f"{record.cell} is not declared for window {window}", field="cell")
        # 4. Now it counts.
        self._advance(raw.offset, clock_ms, out)
        cell = self._aggregates.get(record.cell)
        if cell is None:
            cell = self._aggregates[record.cell] = self._kind.aggregate(self._time)
        again = raw.offset <= self._start.last_offset
        if self._kind.is_of_users:
            self._filled.add(window)
        if self._seen_before.seen(record, clock_ms):
            cell.count_duplicate(window)
            out.num_duplicates += not again
            return
        cell.accept(record, window=window, append_ms=clock_ms, late=late)
        out.num_late += late and not again

    def _check(self, key: bytes | None, record: Record, clock_ms: int) -> None:
        if self._kind.is_of_users:
            self._check_key(key, record.user_id, field="user_id")
        elif key is None or self._cell_by_key.get(key) != record.cell:
            self._check_key(key, record.cell, field="cell")
            # Only declared cells are remembered, so that made-up ones cannot fill the memory.
            if key is not None and self._cells.knows(record.cell):
                self._cell_by_key[key] = record.cell
        latest_ms = clock_ms + self._time.skew_ms
        for name, time_ms in self._kind.times(record):
            if time_ms > latest_ms:
                raise _from_the_future(name, time_ms - clock_ms)
        self._kind.believe(record, self._time)

    def _check_key(self, key: bytes | None, owner: str, *, field: str) -> None:
        if key is None or key != owner.encode():
            raise RecordError("key_mismatch", f"the record is of {owner}, its key is {key!r}", field=field)
        leads_to = partition_for(key, self._num_partitions)
        if leads_to != self._partition:
            raise RecordError(
                "wrong_partition", f"{owner} belongs to partition {leads_to}, found in {self._partition}", field=field
            )

    def _advance(self, offset: int, clock_ms: int, out: Processed) -> None:
        """Move the clock, and close what the watermark has passed."""
        before_ms = self._clock_ms
        if before_ms is not None and before_ms >= self._marks.due_ms and clock_ms > before_ms:
            self._marks.note(offset, before_ms)
        self._clock_ms = clock_ms
        if clock_ms < self._closes_at_ms:
            return
        next_window = self._first_open(clock_ms)
        for window in self._closing(self._open_window if before_ms is not None else next_window, next_window):
            self._close(window, out)
        self._open_from(next_window)

    def _closing(self, first: int, end: int) -> Iterable[int]:
        """Windows to close, in order. Nobody tells topics of users the time: there may have been a night in between."""
        if not self._kind.is_of_users:
            return range(first, end)
        closing = sorted(window for window in self._filled if window < end)
        self._filled.difference_update(closing)
        return closing

    def _close(self, window: int, out: Processed) -> None:
        limits_by_cell = self._limits(window)
        emitted = self._start.next_window is not None and window < self._start.next_window
        for cell, limits in limits_by_cell.items():
            aggregate = self._aggregates.get(cell)
            if aggregate is None:
                if self._kind.is_of_users:
                    continue
                aggregate = self._aggregates[cell] = self._kind.aggregate(self._time)
            closed = aggregate.close(window, limits)
            if closed is not None and not emitted:
                out.windows.append(self._window(cell, window, closed))
        for cell in [cell for cell in self._aggregates if self._cells.is_over(cell, window + 1)]:
            del self._aggregates[cell]
        self._in_force.pop(window, None)

    def _window(self, cell: str, window: int, closed: Closed) -> ControlWindow:
        return ControlWindow(
            cell=cell,
            kind=self._kind.name,
            source_partition=self._partition,
            window_index=window,
            start_ms=window * self._time.window_ms,
            end_ms=(window + 1) * self._time.window_ms,
            capacity=closed.capacity,
            latency=closed.latency,
            results=closed.results,
            outcomes=closed.outcomes,
            note=closed.note,
        )

    def _open_from(self, window: int) -> None:
        self._open_window = window
        self._closes_at_ms = (window + 1) * self._time.window_ms + self._time.lateness_ms

    def _first_open(self, clock_ms: int) -> int:
        return max(0, (clock_ms - self._time.lateness_ms) // self._time.window_ms)

    def _limits(self, window: int) -> dict[str, CellLimits]:
        limits = self._in_force.get(window)
        if limits is None:
            # A user may be of any cell.
            partition = None if self._kind.is_of_users else self._partition
            limits = self._in_force[window] = self._cells.in_force(
                window, partition=partition, num_partitions=self._num_partitions
            )
        return limits


def _larger(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _from_the_future(name: str, ahead_ms: int) -> RecordError:
    return RecordError("future_event", f"{ahead_ms} ms ahead of the append time", field=name)


def recompute(
    records: Iterable[RawRecord],
    kind: Kind,
    partition: int,
    *,
    num_partitions: int,
    time: TimeSettings,
    cells: Cells,
) -> Processed:
    """All windows and refusals of a raw partition, from its records read afresh from the first one on."""
    processor = PartitionProcessor(kind, partition, num_partitions=num_partitions, time=time, cells=cells)
    return processor.process(records)
