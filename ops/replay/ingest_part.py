"""Ingest of one partition of both raw topics, replayed into one ordered log of windows. Pure.

The two raw partitions of one number hold the same cells, and lead to the partition of that number of control.windows.
Both are read here, and their windows leave in order of the index: what a controller sees then does not depend on which
of the two was read faster, and neither kind runs ahead by more windows than a controller lets wait.

    group T     what else was heard from tick T on, capacity windows of T, latency windows of T
    it leaves   when both processors have closed T, or have come to the end of their range

Progress. What is durable is every group below G and every refusal up to the last offset read. A processor that is ahead
has closed windows beyond G, so it must start again at a place that it noted before: each notes its progress as it goes,
the latest one that knows every window from G on is the place, and of that only "first window not yet emitted" and "last
offset processed" are moved on to what has really left.
"""

import dataclasses
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import dropwhile
from typing import Final

from ops.replay.commands import Heard
from ops.replay.said import Said, refused
from schemas.dead_letters import RawRecord as WholeRecord
from schemas.dead_letters import envelope
from schemas.records import ControlWindow
from schemas.settings import TimeSettings
from schemas.topics import CONTROL_WINDOWS
from streams.ingest.aggregate import Kind
from streams.ingest.capacity import CapacityKind
from streams.ingest.cells import Cells
from streams.ingest.latency import LatencyKind
from streams.ingest.partition import PartitionProcessor, RawRecord
from streams.ingest.progress import Progress

KINDS: Final[tuple[Kind, ...]] = (CapacityKind(), LatencyKind())
PART: Final = "ingest"
STAGE: Final = "read"


class _Side:
    """One of the two raw partitions."""

    def __init__(self, kind: Kind, processor: PartitionProcessor, start: Progress) -> None:
        self.kind = kind
        self.processor = processor
        self.is_over = False
        # Progress as it was noted, and the first window that it does not know any more.
        self.noted: deque[Progress] = deque([start])

    @property
    def next_window(self) -> int | None:
        return self.processor.progress().next_window

    def note(self) -> None:
        """Note where this side could start again; where no window was closed since, the newer place is the better."""
        progress = self.processor.progress()
        if len(self.noted) > 1 and self.noted[-1].next_window == progress.next_window:
            self.noted.pop()
        self.noted.append(progress)


class IngestReplay:
    """Windows of one partition number, from where ``starts`` says (by the name of the kind).

    ``others`` are the records that are taken from control.windows as they stand, in the order in which they counted.
    """

    def __init__(
        self,
        partition: int,
        *,
        num_partitions: int,
        time: TimeSettings,
        cells: Cells,
        starts: Mapping[str, Progress],
        others: Iterable[Heard] = (),
    ) -> None:
        self._time = time
        self._sides: dict[str, _Side] = {
            kind.name: _Side(
                kind,
                PartitionProcessor(
                    kind,
                    partition,
                    num_partitions=num_partitions,
                    time=time,
                    cells=cells,
                    start=starts[kind.name],
                ),
                starts[kind.name],
            )
            for kind in KINDS
        }
        # The first group that has not left; None as long as none has.
        self._next_group = max(
            (start.next_window for start in starts.values() if start.next_window is not None), default=None
        )
        left = self._next_group
        self._others = dropwhile(lambda each: left is not None and each.from_window < left, others)
        self._next_other = next(self._others, None)
        self._groups: defaultdict[int, list[ControlWindow]] = defaultdict(list)
        self.num_refused = 0

    def wanted(self) -> str | None:
        """The kind whose clock is behind, to be read next; None when both are at the end."""
        open_sides = [side for side in self._sides.values() if not side.is_over]
        behind = min(open_sides, key=lambda side: side.processor.clock_ms or 0, default=None)
        return None if behind is None else behind.kind.name

    def take(self, kind: str, batch: Sequence[RawRecord], whole: Callable[[int], WholeRecord]) -> list[Said]:
        """The next records of one kind, to what may leave now; ``whole`` gives a record of the batch for its letter."""
        side = self._sides[kind]
        processed = side.processor.process(batch)
        side.note()
        for window in processed.windows:
            self._groups[window.window_index].append(window)
        self.num_refused += len(processed.refusals)
        out = [
            refused(side.kind.topic, envelope(whole(refusal.index), refusal.error, part=PART, stage=STAGE))
            for refusal in processed.refusals
        ]
        return out + self._leaving()

    def end(self, kind: str) -> list[Said]:
        """Note that one kind is at the end of its range; returns what may leave now."""
        self._sides[kind].is_over = True
        return self._leaving()

    def progress(self) -> dict[str, Progress]:
        """By kind, where to start again once everything returned so far is durable."""
        return {name: self._progress(side) for name, side in self._sides.items()}

    def _leaving(self) -> list[Said]:
        closed = self._closed()
        if closed is None:
            return []
        out: list[Said] = []
        for index in sorted(index for index in self._groups if index < closed):
            out += self._heard_by(index)
            windows = self._groups.pop(index)
            # The sides are read in whatever order their clocks ask for.
            windows.sort(key=lambda window: (window.kind, window.cell))
            out += [_said(window) for window in windows]
        out += self._heard_by(closed - 1)
        while all(side.is_over for side in self._sides.values()) and self._next_other is not None:
            closed = self._next_other.from_window + 1
            out += self._heard_by(closed - 1)
        self._next_group = max(closed, self._next_group or 0)
        return out

    def _closed(self) -> int | None:
        """Every group below this may leave; None where that is not known yet."""
        bounds = []
        for side in self._sides.values():
            if side.is_over:
                continue
            if side.next_window is None:
                return None
            bounds.append(side.next_window)
        if bounds:
            return min(bounds)
        ends = [side.next_window for side in self._sides.values() if side.next_window is not None]
        return max(ends, default=0)

    def _heard_by(self, index: int) -> list[Said]:
        out = []
        while self._next_other is not None and self._next_other.from_window <= index:
            out.append(_said(self._next_other.window))
            self._next_other = next(self._others, None)
        return out

    def _progress(self, side: _Side) -> Progress:
        group = self._next_group
        while len(side.noted) > 1 and _knows(side.noted[1], group):
            side.noted.popleft()
        place = side.noted[0]
        last_offset = side.processor.progress().last_offset
        if group is None:
            return dataclasses.replace(place, last_offset=last_offset)
        # The clock at which the group is the first one open.
        opens_ms = group * self._time.window_ms + self._time.lateness_ms
        return dataclasses.replace(
            place, last_offset=last_offset, next_window=group, largest_ms=max(place.largest_ms or 0, opens_ms)
        )


def _knows(progress: Progress, group: int | None) -> bool:
    """Whether every window from a group on can be made again from a place."""
    return progress.next_window is None or (group is not None and progress.next_window <= group)


def _said(window: ControlWindow) -> Said:
    return Said(CONTROL_WINDOWS.name, window.cell.encode(), window)
