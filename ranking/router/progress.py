"""What to commit for one partition of the requests, so that whoever takes it over sends no second result. Pure.

The committed offset C is the lowest request not yet answered. The metadata holds the floor F: every result of a
request at or behind C stands in the results partition at or behind F, and so does every result of the last
``duplicate_horizon_ms`` (the last ``max_remembered_results`` at most, so that a takeover stays short). A new owner
reads the results in [F, end) and so knows which requests behind C have a result already, and which of a short while
ago it must not answer again when their callers send them once more.

F for a request is the end of the results as acknowledged when the request was taken in: its result can only
come behind that. Requests in front of the horizon (the end of the requests when this owner began) may have been
answered by the owner before, so the floor that this one started from holds for all of them.
"""

from collections import deque
from typing import Protocol

from ranking.handover import Takeover, commit_metadata
from ranking.router.lagging_end import LaggingEnd


class Offsets(Protocol):
    """Which offset may be committed (`schemas.kafka.offsets.OffsetTracker`)."""

    def begin(self, offset: int) -> None: ...
    def finish(self, offset: int) -> None: ...
    def committable(self) -> int | None: ...


class PartitionProgress:
    """Progress of one partition under one owner. Times are of the broker's clock."""

    def __init__(
        self,
        offsets: Offsets,
        takeover: Takeover,
        *,
        duplicate_horizon_ms: float = 60_000.0,
        max_remembered_results: int = 4_096,
    ) -> None:
        self._offsets = offsets
        self._start = takeover.start
        self._horizon = takeover.horizon
        self._results_end = takeover.results_end
        self._last_begun = -1
        # (first offset, floor) of each stretch of requests taken in with the same floor.
        self._floors: deque[tuple[int, int]] = deque([(0, takeover.floor)])
        self._remembered = LaggingEnd(
            takeover.floor, horizon_ms=duplicate_horizon_ms, max_records=max_remembered_results
        )
        self._committed: tuple[int, int] | None = None

    @property
    def horizon(self) -> int:
        return self._horizon

    def begin(self, offset: int) -> None:
        """Note a request taken in."""
        self._offsets.begin(offset)
        self._last_begun = offset
        if offset >= self._horizon and self._floors[-1][1] != self._results_end:
            self._floors.append((offset, self._results_end))

    def finish(self, offset: int, *, results_offset: int | None = None) -> None:
        """Note a request that is answered durably, with the place of its result where it has one."""
        self._offsets.finish(offset)
        if results_offset is not None:
            self._results_end = max(self._results_end, results_offset + 1)

    def commit(self, now_ms: float) -> tuple[int, str] | None:
        """Offset and metadata to commit; None when nothing has moved since the last call."""
        self._remembered.note(self._results_end, now_ms)
        if self._offsets.committable() is None:
            return None
        position = self._position(now_ms)
        if position == self._committed:
            return None
        self._committed = position
        return position[0], commit_metadata(position[1])

    def position(self, now_ms: float) -> tuple[int, str]:
        """Offset and metadata as they stand, committed or not: to prove by a commit that the partition is owned."""
        offset, floor = self._position(now_ms)
        return offset, commit_metadata(floor)

    def _position(self, now_ms: float) -> tuple[int, int]:
        offset = self._offsets.committable()
        if offset is None:
            offset = self._start
        while len(self._floors) > 1 and self._floors[1][0] <= offset:
            self._floors.popleft()
        floor = self._floors[0][1]
        if offset > self._last_begun and offset >= self._horizon and self._last_begun >= 0:
            floor = self._results_end
        return offset, min(floor, self._remembered.value(now_ms))
