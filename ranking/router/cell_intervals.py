"""The router's interval recorders, one per cell that it serves."""

from collections import Counter

from ranking.intervals import IntervalRecorder
from ranking.router.open_request import Item
from schemas.records import LatencyInterval

# A cell without requests for this long is reported no more. Callers name cells, so memory must not grow with them.
FORGET_AFTER_MS = 60_000


class CellIntervals:
    """Recorders by cell, closed together. A cell's epoch is its first request, so one that returns has a later one."""

    def __init__(self, *, source: str) -> None:
        self._source = source
        self._recorders: dict[str, IntervalRecorder] = {}
        self._last_used_ms: dict[str, float] = {}
        self._num_waiting: Counter[str] = Counter()

    def of(self, cell: str, now_ms: float) -> IntervalRecorder:
        """Recorder of one cell."""
        self._last_used_ms[cell] = now_ms
        recorder = self._recorders.get(cell)
        if recorder is None:
            recorder = IntervalRecorder(cell, source=self._source, part="router", epoch_ms=int(now_ms))
            self._recorders[cell] = recorder
        return recorder

    def waits(self, cell: str, change: int) -> None:
        """Note requests taken in (+1) or published (-1)."""
        self._num_waiting[cell] += change

    def account(self, cell: str, item: Item, now_ms: float) -> None:
        """Close the account of one optional item, once."""
        assert not item.is_accounted, "an item closes once"
        assert item.state != "pending", "a pending item is open"
        item.is_accounted = True
        self.of(cell, now_ms).close_item(
            item.lever, item.state, reason=item.reason, units=item.units, value_micro=item.value_micro
        )

    def close_all(self, now_ms: float) -> list[LatencyInterval]:
        """One record per cell for the interval that ends now."""
        for cell in [cell for cell, used_ms in self._last_used_ms.items() if now_ms - used_ms > FORGET_AFTER_MS]:
            if not self._num_waiting[cell]:
                del self._recorders[cell], self._last_used_ms[cell], self._num_waiting[cell]
        return [
            recorder.close(int(now_ms), num_waiting=self._num_waiting[cell])
            for cell, recorder in self._recorders.items()
        ]
