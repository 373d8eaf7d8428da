"""Which units of each pool a lever holds, and which of them have started up. Pure.

The controller says how a pool is split; between two words of its the split is kept as shares, so that what is taken
back is taken from every lever alike, at once. What a lever gains works after its start-up time, also where a host went
and another came.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from schemas.records import AcceleratorFit, CellLimits
from schemas.records.fields import Lever

# Of a unit; less is nothing but rounding.
_NOTHING = 1e-9


@dataclass
class _Hold:
    """Units of one lever in one pool: those at work, and those that will be, with the time, in its order."""

    ready: float = 0.0
    starting: deque[tuple[float, float]] = field(default_factory=deque)

    @property
    def units(self) -> float:
        return self.ready + sum(units for _, units in self.starting)

    def grow(self, units: float, *, ready_at_s: float) -> None:
        if units > _NOTHING:
            self.starting.append((ready_at_s, units))

    def shrink(self, ratio: float) -> None:
        self.ready *= ratio
        self.starting = deque((at_s, units * ratio) for at_s, units in self.starting if units * ratio > _NOTHING)

    def mature(self, now_s: float) -> None:
        while self.starting and self.starting[0][0] <= now_s:
            self.ready += self.starting.popleft()[1]


@dataclass(frozen=True)
class Fit:
    """How a lever runs on an accelerator; ``startup_s`` from a grant to its first work unit."""

    units_per_unit_s: float
    cpu_cores_per_unit: float
    memory_bytes_per_unit: float
    startup_s: float


def fits_of(limits: CellLimits, accelerators: Sequence[str]) -> dict[Lever, dict[int, Fit]]:
    """Fit of each lever by number of pool; without terms RMA alone runs, everywhere and at once."""
    if not limits.levers:
        return {"rma": {pool: Fit(limits.units_per_unit_s, 0.0, 0.0, 0.0) for pool in range(len(accelerators))}}
    fits: dict[Lever, dict[int, Fit]] = {}
    for terms in limits.levers:
        known: dict[str, AcceleratorFit] = {fit.accelerator: fit for fit in terms.fits}
        fits[terms.lever] = {
            pool: Fit(
                known[name].units_per_unit_s,
                known[name].cpu_cores_per_unit,
                known[name].memory_bytes_per_unit,
                terms.startup_s,
            )
            for pool, name in enumerate(accelerators)
            if name in known
        }
    return fits


class PoolGrants:
    """One pool: ``usable`` units, and what each lever has of them. ``split`` gives shares that add up to 1 at most."""

    def __init__(self, fits: Mapping[Lever, Fit], *, usable: float) -> None:
        self.usable = usable
        self.fits = dict(fits)
        self._shares: dict[Lever, float] = {}
        self._holds: dict[Lever, _Hold] = {lever: _Hold() for lever in fits}

    def change(self, units: float, now_s: float) -> None:
        """Units came (or went: negative)."""
        before = self.usable
        self.usable = max(0.0, before + units)
        if units < 0.0:
            ratio = self.usable / before if before > _NOTHING else 0.0
            for hold in self._holds.values():
                hold.shrink(ratio)
            return
        for lever, hold in self._holds.items():
            hold.grow(units * self._shares.get(lever, 0.0), ready_at_s=now_s + self.fits[lever].startup_s)

    def split(self, shares: Mapping[Lever, float], now_s: float) -> None:
        """Split the pool anew; levers that do not run on it get nothing."""
        self._shares = {lever: share for lever, share in shares.items() if lever in self._holds}
        for lever, hold in self._holds.items():
            wanted, held = self._shares.get(lever, 0.0) * self.usable, hold.units
            if wanted < held - _NOTHING:
                hold.shrink(wanted / held)
            else:
                hold.grow(wanted - held, ready_at_s=now_s + self.fits[lever].startup_s)

    def mature(self, now_s: float) -> None:
        """Let what has started up by now work."""
        for hold in self._holds.values():
            hold.mature(now_s)

    def held(self, lever: Lever) -> float:
        """Units that a lever holds."""
        return self._holds[lever].units if lever in self._holds else 0.0

    def ready(self, lever: Lever) -> float:
        """Units of a lever that are at work."""
        return self._holds[lever].ready if lever in self._holds else 0.0

    def working(self, *, cores: float, memory_bytes: float) -> dict[Lever, float]:
        """Units of each lever that can work with the cores and the memory there are.

        What is short is shared in proportion to what is needed; a lever that needs none of it loses nothing.
        """
        ready = {lever: hold.ready for lever, hold in self._holds.items()}
        cores_needed = sum(ready[lever] * self.fits[lever].cpu_cores_per_unit for lever in ready)
        memory_needed = sum(ready[lever] * self.fits[lever].memory_bytes_per_unit for lever in ready)
        by_cores = cores / cores_needed if cores_needed > cores else 1.0
        by_memory = memory_bytes / memory_needed if memory_needed > memory_bytes else 1.0
        return {
            lever: units
            * min(
                by_cores if self.fits[lever].cpu_cores_per_unit else 1.0,
                by_memory if self.fits[lever].memory_bytes_per_unit else 1.0,
            )
            for lever, units in ready.items()
        }
