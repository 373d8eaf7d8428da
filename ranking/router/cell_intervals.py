"""The router's interval recorders, one per cell that it serves."""

from collections import Counter

from ranking.client.cell_table import IsDeclared
from ranking.intervals import IntervalRecorder
from ranking.router.open_request import Item
from schemas.records import LatencyInterval

# A cell without requests for this long is reported no more.
FORGET_AFTER_MS = 60_000
# Callers name cells, so what is kept must not grow with them, also where none is declared.
MAX_CELLS = 256


class CellIntervals:
    """Recorders by cell, closed together. A cell's epoch is its first request, so one that returns has a later one.

    A cell that is not declared, or one too many, has none: what is said of it goes nowhere.
    """

    def __init__(self, *, source: str, is_declared: IsDeclared) -> None:
        self._source = source
        self._is_declared = is_declared
        self._nowhere = _unreported(source)
        self._recorders: dict[str, IntervalRecorder] = {}
        self._last_used_ms: dict[str, float] = {}
        self._num_waiting: Counter[str] = Counter()

    def reports(self, cell: str, now_ms: float) -> bool:
        """Whether a cell is, or would be, reported."""
        has_room = cell in self._recorders or len(self._recorders) < MAX_CELLS
        return has_room and self._is_declared(cell, now_ms)

    def of(self, cell: str, now_ms: float) -> IntervalRecorder:
        """Recorder of one cell."""
        if not self.reports(cell, now_ms):
            return self._nowhere
        self._last_used_ms[cell] = now_ms
        recorder = self._recorders.get(cell)
        if recorder is None:
            recorder = IntervalRecorder(cell, source=self._source, part="router", epoch_ms=int(now_ms))
            self._recorders[cell] = recorder
        return recorder

    def waits(self, cell: str, change: int) -> None:
        """Note requests taken in (+1) or published (-1)."""
        self._num_waiting[cell] += change
        if not self._num_waiting[cell]:
            del self._num_waiting[cell]

    def account(self, cell: str, item: Item, now_ms: float) -> None:
        """Close the account of one optional item, once."""
        assert not item.is_accounted, "an item closes once"
        assert item.state != "pending", "a pending item is open"
        item.is_accounted = True
        # Retired since its items were assigned, a cell's account still closes.
        recorder = self._recorders.get(cell) or self.of(cell, now_ms)
        recorder.close_item(item.lever, item.state, reason=item.reason, units=item.units, value_micro=item.value_micro)

    def close_all(self, now_ms: float) -> list[LatencyInterval]:
        """One record per cell for the interval that ends now."""
        for cell in [cell for cell, used_ms in self._last_used_ms.items() if now_ms - used_ms > FORGET_AFTER_MS]:
            if not self._num_waiting[cell]:
                del self._recorders[cell], self._last_used_ms[cell]
        self._nowhere = _unreported(self._source)
        return [
            recorder.close(int(now_ms), num_waiting=self._num_waiting[cell])
            for cell, recorder in self._recorders.items()
        ]


def _unreported(source: str) -> IntervalRecorder:
    """A recorder that is thrown away with its interval."""
    return IntervalRecorder("unreported", source=source, part="router", epoch_ms=0)
