"""Where in control.windows a snapshot was made. Pure.

A snapshot of control.state is the state after a tick, what is measured of each segment in records before it. It says up
to which windows of the two kinds it knows the log, and the record that led to the tick is one of those two: whichever
came later. From behind that record on the same log gives the same ticks. Windows before it would be passed over as
known, but commands would be heard a second time.
"""

from collections.abc import Mapping
from typing import NamedTuple

from schemas.records import ControllerSnapshot, ControlWindow
from streams.control.state import CellState, decode_state, with_segments
from streams.control.uplift.state import ALL, SegmentSums, decode_sums


class Begin(NamedTuple):
    """A cell's state, and the offset up to which it knows the log."""

    state: CellState
    passed_offset: int


class WholeStates:
    """Puts together what stands in control.state: sums of segments, and the state of their cell behind them."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[str, SegmentSums]] = {}
        self._windows: dict[str, int] = {}

    def see(self, snapshot: ControllerSnapshot) -> CellState | None:
        """State of a cell after the snapshot; None before, and where sums of a segment that it knows are not there.

        Raises StateError and SumsError.
        """
        cell = snapshot.cell
        if self._windows.get(cell) != snapshot.window_index:
            self._windows[cell], self._sums[cell] = snapshot.window_index, {}
        sums = self._sums[cell]
        if snapshot.segment:
            sums[snapshot.segment] = decode_sums(snapshot.state)
            return None
        state = decode_state(snapshot.state)
        is_whole = not state.measured.applied or {*state.measured.names, ALL} <= sums.keys()
        return with_segments(state, sums) if is_whole else None


class Pivots:
    """Looks for the place of each cell's snapshot while the log goes by; windows must come in the order of the log."""

    def __init__(self, snapshots: Mapping[str, CellState]) -> None:
        self._wanted = {
            (state.cell, kind, last): state.cell
            for state in snapshots.values()
            for kind, last in (("capacity", state.last_capacity), ("latency", state.last_latency))
        }
        self._snapshots = dict(snapshots)
        self._passed: dict[str, int] = {}

    @property
    def is_complete(self) -> bool:
        return not self._wanted

    def see(self, window: ControlWindow, offset: int) -> None:
        """Note a window of the log; the first one of an index is the one that was applied."""
        place = (window.cell, window.kind, window.window_index)
        cell = self._wanted.get(place)
        # Indices of windows of another length do not compare.
        if cell is None or window.end_ms - window.start_ms != self._snapshots[cell].window_ms:
            return
        del self._wanted[place]
        self._passed[cell] = max(offset, self._passed.get(cell, -1))

    def found(self) -> dict[str, Begin]:
        """The cells both of whose windows have been seen."""
        missing = set(self._wanted.values())
        return {
            cell: Begin(self._snapshots[cell], offset)
            for cell, offset in sorted(self._passed.items())
            if cell not in missing
        }
