"""What to commit for one partition of the requests, so that whoever takes it over sends no second result. Pure.

The committed offset C is the lowest request not yet answered. The metadata holds the floor F: every result of a
request at or behind C stands in the results partition at or behind F. A new owner reads the results in
[F, end) and so knows which requests behind C have a result already.

F for a request is the end of the results as acknowledged when the request was taken in: its result can only
come behind that. Requests in front of the horizon (the end of the requests when this owner began) may have been
answered by the owner before, so the floor that this one started from holds for all of them.
"""

import json
from collections import deque
from typing import Protocol

_VERSION = 1


class Offsets(Protocol):
    """Which offset may be committed (`schemas.kafka.offsets.OffsetTracker`)."""

    def begin(self, offset: int) -> None: ...
    def finish(self, offset: int) -> None: ...
    def committable(self) -> int | None: ...


class PartitionProgress:
    """Progress of one partition under one owner."""

    def __init__(self, offsets: Offsets, *, floor: int, horizon: int, results_end: int) -> None:
        """Begin with the floor found in the last commit and the ends of both logs as they are now."""
        self._offsets = offsets
        self._horizon = horizon
        self._first_floor = floor
        self._results_end = results_end
        self._last_begun = -1
        # (first offset, floor) of each stretch of requests taken in with the same floor.
        self._floors: deque[tuple[int, int]] = deque([(0, floor)])
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

    def commit(self) -> tuple[int, str] | None:
        """Offset and metadata to commit; None when nothing has moved since the last call."""
        offset = self._offsets.committable()
        if offset is None:
            return None
        while len(self._floors) > 1 and self._floors[1][0] <= offset:
            self._floors.popleft()
        floor = self._floors[0][1]
        if offset > self._last_begun and offset >= self._horizon:
            floor = self._results_end
        if (offset, floor) == self._committed:
            return None
        self._committed = (offset, floor)
        return offset, commit_metadata(floor)


def commit_metadata(results_floor: int) -> str:
    """Metadata of a commit."""
    return json.dumps({"v": _VERSION, "results": results_floor}, separators=(",", ":"))


def results_floor(metadata: str | None) -> int | None:
    """The floor in a commit's metadata; None where there is none that this version can read."""
    try:
        content = json.loads(metadata or "")
    except ValueError:
        return None
    if not isinstance(content, dict) or content.get("v") != _VERSION:
        return None
    floor = content.get("results")
    return floor if isinstance(floor, int) and floor >= 0 else None
