"""What a split is decided from: the supply of each pool, the terms of each lever, and how cautious to be."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from schemas.records import LeverTerms, ValueCurve
from schemas.records.fields import Lever

MAX_QUANTITY = 1e12
GIB_BYTES = 1 << 30
# Less is nothing: quotients of what is left are numbers.
MIN_QUANTITY = 1e-12


@dataclass(frozen=True, kw_only=True)
class PoolSupply:
    """One pool of a cell as it is now; units are those of its accelerator (cores for ``cpu``).

    ``survives`` is the share of the units that is expected to outlive each lever's start; a lever that is not in it
    loses none.
    """

    accelerator: str
    usable_units: float
    cpu_cores: float
    memory_gib: float
    survives: Mapping[Lever, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LeverOption:
    """A lever and what it earns today. Measured ``curves`` replace those of its terms.

    Work beyond ``max_work_units_s`` earns nothing, as something else is in its way (requests to widen, retrieval, a
    dependent service). A lever that is not ``enabled`` gets nothing.
    """

    terms: LeverTerms
    curves: tuple[ValueCurve, ...] = ()
    enabled: bool = True
    max_work_units_s: float | None = None

    @property
    def value_curves(self) -> tuple[ValueCurve, ...]:
        """The curves that count."""
        return self.curves or tuple(self.terms.curves)


@dataclass(frozen=True, kw_only=True)
class AllocatorSettings:
    """How cautious a split is made.

    ``utilisation`` is the share of a unit's measured speed that is planned with, as in ``CellLimits``; of that,
    ``reserve_share`` is held back against errors of the estimates. Values count at ``confidence`` standard errors below
    their estimate (1.645: one-sided 95 %). A unit is taken from a lever only for ``hysteresis_share`` more than a unit
    of its pool earns at the margin. A unit that is lost while a lever starts on it costs ``lost_start_cost`` of what it
    would have earned: where one in five or fewer outlives the start, by default, the lever is not started at all.

    Raises ValueError for anything that could not be planned with.
    """

    utilisation: float = 0.7
    reserve_share: float = 0.05
    confidence: float = 1.645
    hysteresis_share: float = 0.05
    lost_start_cost: float = 0.25

    def __post_init__(self) -> None:
        if not 0.0 < self.utilisation <= 1.0:
            raise ValueError(f"utilisation {self.utilisation} must be in (0, 1]")
        for name in ("reserve_share", "hysteresis_share"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"{name} {getattr(self, name)} must be in [0, 1)")
        for name in ("confidence", "lost_start_cost"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} {getattr(self, name)} must be finite and not negative")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One cell's capacity to be split. The order of pools and levers is of no meaning.

    ``stale`` says why the figures are not to be planned with; empty where they are.

    Raises ValueError where a pool or a lever is there twice.
    """

    pools: tuple[PoolSupply, ...]
    levers: tuple[LeverOption, ...]
    settings: AllocatorSettings = AllocatorSettings()
    stale: str = ""

    def __post_init__(self) -> None:
        for names in ([pool.accelerator for pool in self.pools], [option.terms.lever for option in self.levers]):
            if len(set(names)) != len(names):
                raise ValueError(f"a pool or a lever is listed twice: {sorted(names)}")


def believable(figure: float) -> bool:
    """Whether it is a quantity at all; NaN is none, as no comparison with it holds."""
    return 0.0 <= figure <= MAX_QUANTITY


def believed(figure: float, *, most: float = MAX_QUANTITY) -> float:
    """The figure, or 0 where it is no quantity or next to nothing; ``most`` at most."""
    return min(float(figure), most) if MIN_QUANTITY <= figure <= MAX_QUANTITY else 0.0


def absurdity(problem: Problem) -> str | None:
    """The first figure that nobody can plan with, by name, or None."""
    for name, figure in _figures(problem):
        if not believable(figure):
            return f"{name} is {figure}"
    return None


def _figures(problem: Problem) -> Iterator[tuple[str, float]]:
    for pool in problem.pools:
        yield f"usable_units of {pool.accelerator}", pool.usable_units
        yield f"cpu_cores of {pool.accelerator}", pool.cpu_cores
        yield f"memory_gib of {pool.accelerator}", pool.memory_gib
        for lever in sorted(pool.survives):
            yield f"survival of {lever} on {pool.accelerator}", pool.survives[lever]
    for option in problem.levers:
        terms = option.terms
        yield f"max_share of {terms.lever}", terms.max_share
        yield f"floor_share of {terms.lever}", terms.floor_share
        if option.max_work_units_s is not None:
            yield f"max_work_units_s of {terms.lever}", option.max_work_units_s
        for fit in terms.fits:
            yield f"units_per_unit_s of {terms.lever} on {fit.accelerator}", fit.units_per_unit_s
            yield f"cpu_cores_per_unit of {terms.lever} on {fit.accelerator}", fit.cpu_cores_per_unit
            yield f"memory_bytes_per_unit of {terms.lever} on {fit.accelerator}", fit.memory_bytes_per_unit / GIB_BYTES
        for curve in option.value_curves:
            for point in curve.points:
                # One test for the three, as curves are most of the figures: their mean is NaN where one of them is.
                if not (point.value_s >= 0.0 and point.error_s >= 0.0):
                    yield f"value_s or error_s of {terms.lever} in {curve.segment}", min(point.value_s, point.error_s)
                mean = (point.work_units_s + point.value_s + point.error_s) / 3.0
                yield f"curve of {terms.lever} in {curve.segment}", mean
