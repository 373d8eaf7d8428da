"""Keeps windows within the bounds of their records, whatever a fleet sends. Pure.

One source of a window may be wrong in a believable way (a huge quantity, a new label in every record). What is summed
up from it must still be a record that can be encoded, sent and read.
"""

from collections.abc import Iterable, Mapping

from schemas.records import LabelledUnits
from schemas.segments import OTHER_SEGMENT

MAX_COUNT = 2**62
OTHER = OTHER_SEGMENT
UNKNOWN = "unknown"
MICRO = 1_000_000


def micro(quantity: float) -> int:
    """Quantity in whole micro-units, so that sums do not depend on their order."""
    return round(quantity * MICRO)


def bounded(total: int) -> int:
    """Total within what a count may hold."""
    return min(total, MAX_COUNT)


def largest(sizes: Mapping[str, int], limit: int) -> tuple[list[str], list[str]]:
    """Names in two lists, each in order of names: the ``limit`` largest (by size, then name), and the rest.

    Where there is a rest, a source's own ``(other)`` belongs to it, so that the name stands for one thing.
    """
    if len(sizes) <= limit:
        return sorted(sizes), []
    ranked = sorted(sizes.keys() - {OTHER}, key=lambda name: (-sizes[name], name))
    return sorted(ranked[:limit]), sorted(sizes.keys() - set(ranked[:limit]))


def labelled(units_micro: Mapping[str, int], *, limit: int) -> list[LabelledUnits]:
    """Units by label in order of labels; beyond ``limit`` labels the smallest stand together as ``(other)``."""
    kept, rest = largest(units_micro, limit)
    totals = {label: units_micro[label] for label in kept}
    if rest:
        totals[OTHER] = sum(units_micro[label] for label in rest)
    return [LabelledUnits(label=label, units_micro=bounded(units)) for label, units in _positive(totals)]


def _positive(totals: Mapping[str, int]) -> Iterable[tuple[str, int]]:
    return ((label, units) for label, units in sorted(totals.items()) if units > 0)
