"""Which dead letters of a partition are done: a commit's offset, and in its metadata the done ones behind it. Pure.

The offset is that of the first letter that is still open. Letters are worked on in any selection, so ranges of done
ones may stand behind it:

    1;RUN;SINCE_MS;0-3,5-9        relative to the offset; RUN and SINCE_MS are empty where no run is under way

A run notes itself before it sends anything. Who finds one that was never ended reads back what it has sent (each
record carries RUN and its letter), from SINCE_MS on, and goes on under the same name: so nothing is sent twice.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import msgspec

from schemas.topics import Namespace, Topic

# Kafka keeps at most 4,096 bytes of metadata with a commit; a range of two offsets takes twenty at most.
MAX_RANGES: Final = 150
_VERSION: Final = "1"


def letters_group(namespace: Namespace, topic: Topic) -> str:
    """Group whose commits say which dead letters of a topic are done."""
    return namespace.group(f"dlq.{topic.name}")


class MarksError(ValueError):
    """Metadata of a commit that nobody of ours has written."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run under way: its name, and a time of the broker's before anything of it was sent."""

    name: str
    since_ms: int


@dataclass(slots=True)
class Marks:
    """Done letters of one partition: all before ``position``, and those in ``ranges`` (half open, rising, apart)."""

    position: int = 0
    run: Run | None = None
    ranges: list[tuple[int, int]] = field(default_factory=list)

    def copy(self) -> "Marks":
        """The same marks, to try something on."""
        return Marks(self.position, self.run, list(self.ranges))

    def is_done(self, offset: int) -> bool:
        """Whether a letter is done."""
        if offset < self.position:
            return True
        index = bisect_right(self.ranges, (offset, offset + 1)) - 1
        # The range that begins at the offset sorts behind it unless it holds nothing else.
        near = self.ranges[max(0, index) : index + 2]
        return any(start <= offset < end for start, end in near)

    def can_mark(self, offset: int) -> bool:
        """Whether one more letter can be noted: ranges are bounded, and grow where letters are taken here and there."""
        if len(self.ranges) < MAX_RANGES or self.is_done(offset) or offset == self.position:
            return True
        return any(offset in (start - 1, end) for start, end in self.ranges)

    def mark(self, offset: int) -> None:
        """Note that a letter is done."""
        if self.is_done(offset):
            return
        merged: list[tuple[int, int]] = []
        for start, end in sorted([*self.ranges, (offset, offset + 1)]):
            if merged and merged[-1][1] == start:
                merged[-1] = (merged[-1][0], end)
            else:
                merged.append((start, end))
        if merged[0][0] == self.position:
            self.position = merged.pop(0)[1]
        self.ranges = merged

    def forget_before(self, low: int) -> None:
        """Note that the log has lost every letter before an offset."""
        if low <= self.position:
            return
        self.position = low
        ranges = [(max(start, low), end) for start, end in self.ranges if end > low]
        if ranges and ranges[0][0] == low:
            self.position = ranges.pop(0)[1]
        self.ranges = ranges

    def num_open(self, low: int, end: int) -> int:
        """Open letters of a partition whose log begins at ``low`` and ends before ``end``."""
        first = max(low, self.position)
        done = sum(max(0, min(stop, end) - max(start, first)) for start, stop in self.ranges)
        return max(0, end - first - done)

    def metadata(self) -> str:
        """What is committed beside the offset."""
        name, since = ("", "") if self.run is None else (self.run.name, str(self.run.since_ms))
        ranges = ",".join(f"{start - self.position}-{end - self.position}" for start, end in self.ranges)
        return f"{_VERSION};{name};{since};{ranges}"


def written(marks: Mapping[int, Marks]) -> bytes:
    """Marks of every partition as a note in the log holds them."""
    return msgspec.json.encode({str(number): (held.position, held.metadata()) for number, held in marks.items()})


def read_back(value: bytes | None) -> dict[int, Marks]:
    """Marks in a note; raises MarksError."""
    try:
        found = msgspec.json.decode(value or b"", type=dict[int, tuple[int, str]])
    except msgspec.DecodeError as error:
        raise MarksError(f"a note without marks: {error}") from None
    return {number: marks_of(*pair) for number, pair in found.items()}


def marks_of(offset: int | None, metadata: str | None) -> Marks:
    """Marks of a commit, of none where there is none; raises MarksError."""
    if offset is None:
        return Marks()
    try:
        version, name, since, ranges = (metadata or "").split(";")
        pairs = [pair.split("-") for pair in ranges.split(",") if pair]
        done = [(offset + int(start), offset + int(end)) for start, end in pairs]
        run = Run(name, int(since)) if name else None
    except ValueError:
        version, run, done = "", None, []
    rising = [offset, *(edge for pair in done for edge in pair)]
    if version != _VERSION or any(one >= next_one for one, next_one in pairwise(rising)):
        raise MarksError(f"the commit at {offset} holds {(metadata or '')[:64]!r}, which is not of this verb")
    return Marks(offset, run, done)
