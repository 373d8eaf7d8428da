"""Which records of a numbered source were seen before: sliding-window maximum over the log. Pure."""

from collections import deque
from collections.abc import Hashable

# A source's place in its own numbering: (epoch_ms, seq), compared in that order.
Order = tuple[int, int]


# One record (append time, order), the common case, or several.
_Held = tuple[int, Order] | deque[tuple[int, Order]]


class SequenceFilter:
    """Recognises duplicates and old sequences of numbered sources, with a finite look-back.

    A record of order ``o`` at append time ``a`` is a duplicate when a record of its source that stands before it in
    the log, with an append time of at least ``a - look_back_ms``, has an order of at least ``o``; whether that one
    was itself a duplicate does not matter. So the answer depends on ``look_back_ms`` of the log and on nothing older,
    and whoever re-reads that much gives the same answers.

    Per source it keeps the records that a later one could still lose to: append times rise, orders fall strictly
    (monotonic deque, O(1) amortised, of length 1 while a source counts upwards). Sources that fell silent go with
    their generation of ``look_back_ms``: what is older than the previous generation is out of reach of every answer.
    """

    def __init__(self, look_back_ms: int) -> None:
        self._look_back_ms = look_back_ms
        self._generation = 0
        self._current: dict[Hashable, _Held] = {}
        self._previous: dict[Hashable, _Held] = {}

    def __len__(self) -> int:
        return len(self._current.keys() | self._previous.keys())

    def seen(self, source: Hashable, order: Order, append_ms: int) -> bool:
        """Note a record and return whether it is a duplicate; append times must not fall from call to call."""
        if append_ms // self._look_back_ms != self._generation:
            self._turn(append_ms // self._look_back_ms)
        newest = (append_ms, order)
        held = self._current.get(source)
        if held is None:
            held = self._previous.pop(source, None)
        oldest_ms = append_ms - self._look_back_ms
        if held is None or (isinstance(held, tuple) and (held[1] < order or held[0] < oldest_ms)):
            self._current[source] = newest
            return False
        records = self._current[source] = deque([held]) if isinstance(held, tuple) else held
        while records and records[0][0] < oldest_ms:
            records.popleft()
        duplicate = bool(records) and records[0][1] >= order
        while records and records[-1][1] <= order:
            records.pop()
        records.append(newest)
        if len(records) == 1:
            self._current[source] = newest
        return duplicate

    def _turn(self, generation: int) -> None:
        self._previous = self._current if generation == self._generation + 1 else {}
        self._current = {}
        self._generation = generation
