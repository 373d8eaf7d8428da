"""The coverage loop between two ticks."""

from msgspec import Struct

from schemas.records import CellLimits
from schemas.records.fields import Count
from streams.control.coverage.calibration import Asked
from streams.control.coverage.mix import Mix
from streams.control.error import Cause
from streams.control.evidence import Evidence
from streams.control.gains import Gains
from streams.control.pid import Memory


class CoverageLoop(Struct, frozen=True, kw_only=True):
    """The coverage loop between two ticks.

    ``coverage`` is the last target, a share of all requests. ``memory`` and ``cause`` are those of its PID, on the
    powerful route's ``evidence``. Nothing rises for ``hold_ticks`` more, as too much was shed. Nothing is tried from
    zero for ``retry_ticks`` more, as the route failed ``num_failures`` times in a row. ``proven`` is the coverage at
    which it was last seen within its limit: up to there it returns without waiting for samples. ``room`` is the largest
    error that it showed, next to idle. ``limits``, ``gains`` and ``held`` (by an operator) tell what ruled the last
    move, None where there was none. ``mix`` is who asks, ``correction`` what the calibration has learned, and ``asked``
    are the last two targets' shares, the newer first.
    """

    coverage: float = 0.0
    memory: Memory | None = None
    cause: Cause | None = None
    hold_ticks: Count = 0
    retry_ticks: Count = 0
    num_failures: Count = 0
    proven: float = 0.0
    room: float = 0.0
    limits: CellLimits | None = None
    gains: Gains | None = None
    held: bool = False
    evidence: Evidence = Evidence()
    mix: Mix = Mix()
    correction: float = 1.0
    asked: tuple[Asked, ...] = ()

    def fallen(self) -> "CoverageLoop":
        """The loop at zero for want of capacity or sight: what is known of the route and of who asks is as true."""
        return CoverageLoop(
            mix=self.mix,
            proven=self.proven,
            room=self.room,
            num_failures=self.num_failures,
            retry_ticks=max(0, self.retry_ticks - 1),
            limits=self.limits,
            gains=self.gains,
        )
