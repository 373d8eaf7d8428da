"""What a lever costs and earns: the terms on which a cell's controller may spend idle capacity on it."""

from msgspec import Struct

from schemas.records.fields import Count, Lever, Name, Quantity, Share


class AcceleratorFit(Struct, frozen=True, kw_only=True):
    """One accelerator kind that a lever's bundle runs on, and what a unit of it needs beside it.

    ``units_per_unit_s`` is the measured curve of the bundle there: work units that one accelerator unit does in a busy
    second.
    """

    accelerator: Name
    units_per_unit_s: Quantity
    cpu_cores_per_unit: Quantity = 0.0
    memory_bytes_per_unit: Count = 0


class CurvePoint(Struct, frozen=True, kw_only=True):
    """Value per second that ``work_units_s`` work units per second earn, and its standard error."""

    work_units_s: Quantity
    value_s: Quantity
    error_s: Quantity = 0.0


class ValueCurve(Struct, frozen=True, kw_only=True):
    """What work spent on one segment earns: concave, from nothing, through ``points`` in rising order of work."""

    segment: Name
    points: list[CurvePoint]

    def __post_init__(self) -> None:
        work = [point.work_units_s for point in self.points]
        if work != sorted(set(work)) or (work and work[0] <= 0.0):
            raise ValueError(f"points of the curve of {self.segment} must be in rising order of positive work_units_s")


class LeverTerms(Struct, frozen=True, kw_only=True):
    """Terms of one lever in one cell.

    ``fits`` are the accelerators it runs on; on others it gets nothing. ``startup_s`` is the time from a grant of
    capacity to the first work unit. Of the cell's usable units it gets at most ``max_share``, and at least
    ``floor_share`` (for exploration) where it runs at all. ``curves`` stand until measured ones are there.
    """

    lever: Lever
    fits: list[AcceleratorFit]
    startup_s: Quantity = 0.0
    max_share: Share = 1.0
    floor_share: Share = 0.0
    curves: list[ValueCurve] = []

    def __post_init__(self) -> None:
        if self.floor_share > self.max_share:
            raise ValueError(f"{self.lever}: floor_share {self.floor_share} is above max_share {self.max_share}")
        accelerators = [fit.accelerator for fit in self.fits]
        if len(set(accelerators)) != len(accelerators):
            raise ValueError(f"{self.lever}: an accelerator is listed twice in fits")
