"""Operators' commands in a replay of the raw records: each counts from the tick on from which it counted live. Pure.

A command stands in control.windows alone, between windows; what matters is before which tick. A cell ticks for window
T with the second of its two windows of T, so a command that stands behind the windows up to (a, b) of the two kinds
counts from tick min(a, b) + 1 on.
"""

from collections.abc import Iterable
from typing import NamedTuple

from schemas.records import ControlWindow

_NONE_YET = -1


class Heard(NamedTuple):
    """A command, and the first window whose tick heard it."""

    from_window: int
    window: ControlWindow


def heard(log: Iterable[ControlWindow]) -> list[Heard]:
    """The commands of one partition of control.windows, in order of the windows that they count from."""
    last: dict[tuple[str, str], int] = {}
    found = []
    for window in log:
        if window.kind == "command":
            ticked = min(last.get((window.cell, kind), _NONE_YET) for kind in ("capacity", "latency"))
            found.append(Heard(ticked + 1, window))
        else:
            place = (window.cell, window.kind)
            last[place] = max(last.get(place, _NONE_YET), window.window_index)
    # Stable: commands of one tick keep the order of the log.
    return sorted(found, key=lambda each: each.from_window)
