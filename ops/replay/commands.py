"""What a replay of the raw records takes from control.windows as it stands: commands, and windows of results and
outcomes. Each counts from the tick on from which it counted live. Pure.

Such a record stands between the windows that make ticks; what matters is before which tick. A cell ticks for window T
with the second of its two windows of T, so a record that stands behind the windows up to (a, b) of the two kinds counts
from tick min(a, b) + 1 on.

Commands exist nowhere else. Windows of results and outcomes come of all partitions of topics that are keyed by user,
and which of them a tick found in the log no raw record says.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from schemas.kafka.admin import BrokerError
from schemas.records import ControlWindow

_TICKING: Final = ("capacity", "latency")
_NONE_YET: Final = -1


class HeardAt(NamedTuple):
    """The first window whose tick heard a record, and where it stands."""

    from_window: int
    offset: int


class Heard(NamedTuple):
    """A record that is no matter of the raw records here, and the first window whose tick heard it."""

    from_window: int
    window: ControlWindow


def heard(log: Iterable[tuple[int, ControlWindow]]) -> list[HeardAt]:
    """Which records of a partition of control.windows (with their offsets) are taken as they stand, as they counted."""
    last: dict[tuple[str, str], int] = {}
    found = []
    for offset, window in log:
        if window.kind in _TICKING:
            place = (window.cell, window.kind)
            last[place] = max(last.get(place, _NONE_YET), window.window_index)
        else:
            ticked = min(last.get((window.cell, kind), _NONE_YET) for kind in _TICKING)
            found.append(HeardAt(ticked + 1, offset))
    # Stable: records of one tick keep the order of the log.
    return sorted(found, key=lambda each: each.from_window)


def as_they_counted(places: Sequence[HeardAt], log: Iterable[tuple[int, ControlWindow]]) -> Iterator[Heard]:
    """The records at ``places``, from the same log once more; in memory are those alone that wait for others.

    Raises BrokerError where the log does not hold one any more.
    """
    wanted = {place.offset for place in places}
    waiting: dict[int, ControlWindow] = {}
    records = iter(log)
    for from_window, offset in places:
        while offset not in waiting:
            at, window = next(records, (None, None))
            if at is None or window is None:
                raise BrokerError(f"control.windows has lost the record at offset {offset} since the replay began")
            if at in wanted:
                waiting[at] = window
        yield Heard(from_window, waiting.pop(offset))
