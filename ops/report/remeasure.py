"""Gains computed from a range's own windows, for cells of which no record of its end is kept. Pure.

It takes the windows as the controller of their cell does, and matures cohorts at the same ticks. What came before the
range is not in it.
"""

from collections.abc import Collection

from ops.report.gains import WHOLE_CELL
from schemas.records import ControlWindow, SegmentUplift
from streams.control.uplift.cohorts import matured
from streams.control.uplift.publish import uplift_records
from streams.control.uplift.state import MeasurementState
from streams.control.uplift.taking_in import take_in


class Remeasured:
    """What is measured of each cell that is not among those ``published``; windows of a cell in their log's order."""

    def __init__(self, published: Collection[str]) -> None:
        self._published = frozenset(published)
        self._states: dict[str, MeasurementState] = {}
        self._ticked: set[str] = set()

    def add(self, window: ControlWindow) -> None:
        """Take in a window; one without measurement is a tick."""
        if window.cell in self._published:
            return
        state = self._states.get(window.cell, MeasurementState(cell=window.cell))
        if window.results is not None or window.outcomes is not None:
            state = take_in(state, window)
        elif window.capacity is not None:
            self._ticked.add(window.cell)
        # A log that was imported has no ticks of its own.
        if window.capacity is not None or window.cell not in self._ticked:
            state = matured(state, window.end_ms, window_index=window.window_index)
        self._states[window.cell] = state

    def records(self) -> list[SegmentUplift]:
        """What would be said of each segment of which anything matured; the whole cell first."""
        found: list[SegmentUplift] = []
        for _, state in sorted(self._states.items()):
            ticks = {sums.matured_window for sums in state.segments.values() if sums.matured_window >= 0}
            for index in sorted(ticks):
                end_ms = (index + 1) * state.window_ms
                found += uplift_records(state, window_index=index, window_end_ms=end_ms)
        return sorted(found, key=lambda record: (record.cell, record.segment != WHOLE_CELL, record.segment))
