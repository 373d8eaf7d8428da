"""The sums of a cell's segments as entries of the controllers' table, beside the cell's own. Pure.

They stand in the same table, as entries of one changelog keep their order: whatever part of it has survived a crash, no
cell's entry is without those that were written before it. An entry is below 1 MiB, as a broker may refuse more.
"""

from collections.abc import Callable, Iterator

from schemas.records import ControlWindow
from schemas.segments import OTHER_SEGMENT
from streams.control.state import CellState
from streams.control.uplift.state import ALL, SegmentSums, SumsError, decode_sums, encode_sums
from streams.control.uplift.taking_in import names_in

# No cell's name has a slash: no state of a cell can stand under such a key.
_KEY_PREFIX = "segment/"


def entry_key(cell: str, segment: str) -> bytes:
    """Key in the controllers' table of what is measured of a segment."""
    return f"{_KEY_PREFIX}{cell}/{segment}".encode()


def read(get: Callable[[bytes], bytes | None], state: CellState, window: ControlWindow) -> dict[str, SegmentSums]:
    """Sums of the segments that the cell knows, and of those that it gets to know by the window.

    An entry that cannot be read counts as none: its segment begins anew. After a crash there may be sums of a segment
    that the cell has yet to get to know.
    """
    names = {*state.measured.names, OTHER_SEGMENT, ALL} if state.measured.applied else set()
    if window.kind in ("results", "outcomes"):
        names |= {*names_in(window), OTHER_SEGMENT}
    found = {}
    for name in sorted(names):
        data = get(entry_key(state.cell, name))
        if data is None:
            continue
        try:
            found[name] = decode_sums(data)
        except SumsError:
            continue
    return found


def changed(before: CellState, state: CellState) -> Iterator[tuple[bytes, bytes]]:
    """Entries to be written after a window, in order of names."""
    known = before.measured.segments
    for name, sums in sorted(state.measured.segments.items()):
        if known.get(name) is not sums:
            yield entry_key(state.cell, name), encode_sums(sums)
