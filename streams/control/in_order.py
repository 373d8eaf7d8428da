"""Every record of a partition, once and in order, whatever the stream library lets fall. Pure.

Faust empties its queues when it resumes after a rebalance, after it has sought the committed offsets and may have read
on from there, and it seeks only where an offset is committed: what lay in the queues is gone, and nothing says so. The
offsets of a log without transactions have no holes, so a hole is seen here, and read again. Where nothing follows the
hole, whoever watches the ends of the log seeks ``expected``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["take", "seen", "seek", "wait"]

SEEK_INTERVAL_S = 1.0
# What a seek brings begins with the record sought. When the nearest record behind the hole has come this often without
# it, the hole is in the log itself, as a transaction's marker leaves one.
MAX_RETURNS = 5


@dataclass
class _Place:
    expected: int
    nearest: int | None = None
    num_returns: int = 0
    sought_at_s: float | None = None


class InOrder:
    """Judges each record by its offset. ``clock`` gives monotonic seconds."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._places: dict[int, _Place] = {}

    def start(self, partition: int, *, offset: int) -> None:
        """Expect ``offset`` next: where the group stands, or the log begins."""
        self._places[partition] = _Place(offset)

    def expected(self, partition: int) -> int | None:
        """Offset that must come next; None before ``start``."""
        place = self._places.get(partition)
        return place.expected if place is not None else None

    def judge(self, partition: int, *, offset: int) -> Verdict:
        """``take`` it, or leave it: ``seen`` before, ``seek`` to ``expected`` first, ``wait`` for what was sought."""
        place = self._places.get(partition)
        if place is None:
            return "wait"
        if offset < place.expected:
            return "seen"
        if offset == place.expected or self._is_hole_of_the_log(place, offset):
            return "take"
        now = self._clock()
        if place.sought_at_s is not None and now - place.sought_at_s < SEEK_INTERVAL_S:
            return "wait"
        place.sought_at_s = now
        return "seek"

    def took(self, partition: int, *, offset: int) -> None:
        """Note a record that is done with."""
        self._places[partition] = _Place(offset + 1)

    def _is_hole_of_the_log(self, place: _Place, offset: int) -> bool:
        if place.nearest is None or offset < place.nearest:
            place.nearest, place.num_returns = offset, 0
        elif offset == place.nearest:
            place.num_returns += 1
        return offset == place.nearest and place.num_returns >= MAX_RETURNS
