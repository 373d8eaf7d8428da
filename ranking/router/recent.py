"""Request ids seen a short while ago: the same request twice in the log gets one result."""

from collections import OrderedDict
from collections.abc import Iterable


class RecentIds:
    """Ids of one partition within a horizon of time, at most ``max_ids`` of them.

    ``answered`` are ids that the owner before has answered: they count until the log has been read past the place
    where that owner can have been, however long that takes, and from then on like all others.
    """

    def __init__(self, answered: Iterable[str] = (), *, horizon_ms: float, max_ids: int = 200_000) -> None:
        self._answered = set(answered)
        self._seen: OrderedDict[str, float] = OrderedDict()
        self._horizon_ms = horizon_ms
        self._max_ids = max_ids

    def note(self, request_id: str, now_ms: float) -> bool:
        """Whether the id is new; it counts as seen from now on."""
        self._expire(now_ms)
        if request_id in self._answered or request_id in self._seen:
            return False
        self._seen[request_id] = now_ms
        if len(self._seen) > self._max_ids:
            self._seen.popitem(last=False)
        return True

    def caught_up(self, now_ms: float) -> None:
        """The log has been read to where it ended when this owner began."""
        self._seen.update((request_id, now_ms) for request_id in self._answered)
        self._answered.clear()

    def _expire(self, now_ms: float) -> None:
        while self._seen:
            request_id, seen_ms = next(iter(self._seen.items()))
            if now_ms - seen_ms < self._horizon_ms:
                return
            del self._seen[request_id]
