"""What the records of a pipeline tell of its present: a fold over records in, bounded facts out. Pure."""

from collections import Counter
from dataclasses import dataclass, field

from msgspec import Struct

from ranking.client.fence import Fence, ShutOutError
from schemas.epochs import NO_EPOCH
from schemas.records import (
    CandidateTarget,
    CellDeclaration,
    ControlWindow,
    LatencyInterval,
    PoolSnapshot,
    SegmentUplift,
)

# Sheds and reclaims are summed over so many windows: one is over too soon to be seen.
RECENT_WINDOWS = 5
# More reporters or cells than this are not looked at one by one; a topic full of invented names costs no more.
MAX_REPORTERS = 4_000
MAX_CELLS = 10_000
MAX_POOLS_OF_A_CELL = 256
MAX_SEGMENTS_OF_A_CELL = 256


@dataclass(frozen=True, slots=True)
class SeenInterval:
    """The last interval of one reporter and when the broker took it."""

    record: LatencyInterval
    append_ms: int


@dataclass(slots=True)
class CellFacts:
    """What is known of one cell; windows by their end, since an index means another time under another length."""

    declaration: CellDeclaration | None = None
    target: CandidateTarget | None = None
    previous_target: CandidateTarget | None = None
    target_append_ms: int = 0
    shut_out: ShutOutError | None = None
    shut_out_until_ms: int = 0
    capacity: dict[int, ControlWindow] = field(default_factory=dict)
    latency: dict[int, ControlWindow] = field(default_factory=dict)
    pools: dict[str, PoolSnapshot] = field(default_factory=dict)
    reporters: dict[str, SeenInterval] = field(default_factory=dict)
    uplift: dict[str, SegmentUplift] = field(default_factory=dict)

    def last_capacity(self) -> ControlWindow | None:
        """The youngest capacity window."""
        return self.capacity[max(self.capacity)] if self.capacity else None

    def last_latency(self) -> ControlWindow | None:
        """The youngest latency window."""
        return self.latency[max(self.latency)] if self.latency else None

    def still_shut_out(self, now_ms: int) -> ShutOutError | None:
        """The controller that is not heard, while the last target that it sent would be valid."""
        return self.shut_out if now_ms <= self.shut_out_until_ms else None


class Facts:
    """The present of one pipeline, gathered record by record, in any order of topics.

    Of each cell the last RECENT_WINDOWS windows of a kind are held, of each reporter the last interval: what is held
    grows with cells and reporters up to a bound, never with time. A record that comes twice changes nothing.
    """

    def __init__(self) -> None:
        self.cells: dict[str, CellFacts] = {}
        self._fence = Fence()
        self.newest_append_ms = 0
        self.unreadable: Counter[str] = Counter()
        self.unreadable_example: dict[str, str] = {}

    def add(self, record: Struct, *, append_ms: int, epoch: int = NO_EPOCH) -> None:
        """Take in one record of any topic; kinds that tell nothing of interest are passed over.

        ``epoch`` is that of its sender.
        """
        self.newest_append_ms = max(self.newest_append_ms, append_ms)
        match record:
            case CellDeclaration():
                if (cell := self._cell(record.cell)) is not None:
                    cell.declaration = record
            case CandidateTarget():
                self._add_target(record, append_ms, epoch)
            case ControlWindow():
                self._add_window(record)
            case PoolSnapshot():
                self._add_pool(record)
            case LatencyInterval():
                self._add_interval(record, append_ms)
            case SegmentUplift():
                self._add_uplift(record)
            case _:
                pass

    def add_unreadable(self, topic: str, example: str) -> None:
        """Note a record that cannot be read or believed; ``example`` says where it is and why."""
        self.unreadable[topic] += 1
        self.unreadable_example[topic] = example

    def forget_reporters(self, before_ms: int) -> None:
        """Forget reporters last heard of before a time: whoever left for good is no news for ever."""
        for cell in self.cells.values():
            for source in [source for source, seen in cell.reporters.items() if seen.append_ms < before_ms]:
                del cell.reporters[source]

    def _cell(self, name: str) -> CellFacts | None:
        known = self.cells.get(name)
        if known is None and len(self.cells) < MAX_CELLS:
            known = self.cells[name] = CellFacts()
        return known

    def _add_target(self, target: CandidateTarget, append_ms: int, epoch: int) -> None:
        cell = self._cell(target.cell)
        if cell is None:
            return
        try:
            self._fence.check(target, epoch=epoch, held=cell.target)
        except ShutOutError as shut_out:
            # A record from before the one that is held, read after it, is no second controller.
            if append_ms > cell.target_append_ms:
                cell.shut_out = shut_out
                cell.shut_out_until_ms = target.valid_until_ms
            return
        if cell.shut_out is not None and epoch <= cell.shut_out.epoch:
            cell.shut_out = None
        if cell.target is not None and cell.target.window_end_ms > target.window_end_ms:
            return
        # A controller sends its last output again after a crash: that is no move.
        if cell.target is not None and cell.target.window_end_ms < target.window_end_ms:
            cell.previous_target = cell.target
        cell.target = target
        cell.target_append_ms = append_ms

    def _add_window(self, window: ControlWindow) -> None:
        cell = self._cell(window.cell)
        if cell is None:
            return
        if window.capacity is not None:
            _keep_recent(cell.capacity, window)
        elif window.latency is not None:
            _keep_recent(cell.latency, window)

    def _add_uplift(self, uplift: SegmentUplift) -> None:
        cell = self._cell(uplift.cell)
        if cell is None:
            return
        known = cell.uplift.get(uplift.segment)
        if known is None and len(cell.uplift) >= MAX_SEGMENTS_OF_A_CELL:
            return
        if known is None or known.window_end_ms <= uplift.window_end_ms:
            cell.uplift[uplift.segment] = uplift

    def _add_pool(self, pool: PoolSnapshot) -> None:
        cell = self._cell(pool.cell)
        if cell is None:
            return
        held = cell.pools.get(pool.accelerator)
        if held is not None and held.window_end_ms > pool.window_end_ms:
            return
        if held is not None or len(cell.pools) < MAX_POOLS_OF_A_CELL:
            cell.pools[pool.accelerator] = pool

    def _add_interval(self, interval: LatencyInterval, append_ms: int) -> None:
        cell = self._cell(interval.cell)
        if cell is None:
            return
        held = cell.reporters.get(interval.source)
        if held is None and sum(len(known.reporters) for known in self.cells.values()) >= MAX_REPORTERS:
            return
        if held is None or append_ms >= held.append_ms:
            cell.reporters[interval.source] = SeenInterval(interval, append_ms)


def _keep_recent(windows: dict[int, ControlWindow], window: ControlWindow) -> None:
    windows[window.end_ms] = window
    if len(windows) > RECENT_WINDOWS:
        del windows[min(windows)]
