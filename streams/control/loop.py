"""The candidate loop between two ticks."""

from msgspec import Struct

from schemas.records import CellLimits
from schemas.records.fields import Count
from streams.control.error import Cause
from streams.control.evidence import Evidence
from streams.control.gains import Gains
from streams.control.pid import Memory


class Loop(Struct, frozen=True, kw_only=True):
    """The candidate loop between two ticks.

    ``target`` is the last target before rounding, so that steps of less than a candidate add up; at or below base there
    are no extras, as with the 0 from which it starts. It is the target and not the extras that is kept: requests bring
    their own base, so a new base of the cell alone does not change how much work they are. ``cause`` is what the error
    in ``memory`` was of. Nothing rises for ``hold_ticks`` more, as too much was shed. ``limits`` (without the levers,
    which do not rule it), ``gains`` and ``held`` (by an operator) tell what ruled the last move, None where there was
    none: a change of them moves next to nothing. ``upstream_tight`` says that what callers spend before ranking left
    little or no room at the last move.
    """

    target: float = 0.0
    memory: Memory | None = None
    cause: Cause | None = None
    hold_ticks: Count = 0
    limits: CellLimits | None = None
    gains: Gains | None = None
    held: bool = False
    evidence: Evidence = Evidence()
    upstream_tight: bool = False
