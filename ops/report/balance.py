"""How often the CPU beside idle accelerators fitted them. Pure."""

from collections import Counter
from typing import Final, Literal

from ops.report.capacity import usable_micro
from ops.report.model import Balance
from schemas.records import CapacityWindow, PoolWindow
from streams.control.facts import MICRO

CPU_POOL: Final = "cpu"
_NO_CPU: Final = "missing_cpu"
# Units that may lack CPU in a balanced window, and CPU that may be left beside what all units need.
SHORT_SHARE: Final = 0.05
AMPLE_SHARE: Final = 0.25

State = Literal["balanced", "cpu_short", "cpu_ample"]


class BalanceTally:
    """Counts windows by state; those without idle accelerators say nothing."""

    def __init__(self) -> None:
        self._states: Counter[State] = Counter()
        self._num_with_need = 0

    def add(self, capacity: CapacityWindow) -> None:
        """Take in a capacity window."""
        pools = [pool for pool in capacity.pools if pool.accelerator != CPU_POOL and pool.units_micro > 0]
        if not pools:
            return
        needs = _needs(capacity)
        self._num_with_need += any(needs.get(pool.accelerator) for pool in pools)
        self._states[_state(pools, needs)] += 1

    def balance(self) -> Balance | None:
        """The counts; None where no window had idle accelerators."""
        num_windows = self._states.total()
        if not num_windows:
            return None
        return Balance(
            num_windows=num_windows,
            num_balanced=self._states["balanced"],
            num_cpu_short=self._states["cpu_short"],
            num_cpu_ample=self._states["cpu_ample"],
            num_with_need=self._num_with_need,
            balanced_share=self._states["balanced"] / num_windows,
        )


def _needs(capacity: CapacityWindow) -> dict[str, float]:
    """Cores that a unit of each accelerator needs for RMA, where its terms say so."""
    return {
        fit.accelerator: fit.cpu_cores_per_unit
        for terms in capacity.limits.levers
        if terms.lever == "rma"
        for fit in terms.fits
        if fit.cpu_cores_per_unit > 0.0
    }


def _state(pools: list[PoolWindow], needs: dict[str, float]) -> State:
    units = sum(pool.units_micro for pool in pools)
    lacking = sum(each.units_micro for pool in pools for each in pool.unusable if each.label == _NO_CPU)
    needed = sum(usable_micro(pool) * needs.get(pool.accelerator, 0.0) for pool in pools)
    told = [pool for pool in pools if pool.accelerator in needs]
    cores = sum(pool.cpu_cores_micro for pool in told)
    if lacking > SHORT_SHARE * units or (needed and cores < (1.0 - SHORT_SHARE) * needed):
        return "cpu_short"
    # Below a core in all, more than enough is no surplus.
    if needed and cores > (1.0 + AMPLE_SHARE) * needed and cores - needed >= MICRO:
        return "cpu_ample"
    return "balanced"
