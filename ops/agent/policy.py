"""When a pool is offered and when it is taken back: pure, one state per pool, time passed in.

    busy     the owner uses more than ``busy_above`` of it, or its pressure is above ``pressure_above``
    idle     the owner uses no more than ``idle_below``, and its pressure is no more than ``pressure_below``
    between  neither: what is offered stays offered, what is not is not

A pool is offered when it was idle in every reading of the last ``idle_for_s``; the first reading that finds it busy, or
at fault, or a hold of the owner, takes it back. Without a reading for ``stale_after_s`` it is taken back too: blind
means base. So it goes at once and comes slowly, and a load that swings around one limit does not make it flap.

Of a divisible pool (cores) that much is offered as the owner left alone in the busiest reading of the last
``idle_for_s``, less the reserve, in whole steps.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from ops.agent.readings import Reading
from schemas.records import Offer
from schemas.records.fields import IdleCause, UnusableReason

OWNER_BUSY: Final = "owner_busy"
PRESSURE: Final = "pressure"
SOURCE_SILENT: Final = "source_silent"
WAITING: Final = "not_idle_long_enough"
NOTHING_LEFT: Final = "nothing_left"


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What optional work needs of each unit; a pool that lacks it is offered as unusable, with the reason.

    ``lasts_s``: a reclaim that is announced sooner leaves too little time. ``accelerators``: kinds that a model is
    there for, empty for any.
    """

    device_memory_bytes: int = 0
    cpu_cores: float = 0.0
    lasts_s: float = 0.0
    accelerators: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    """Limits of one pool; shares are of the pool's units. ``cpu_cores`` and ``memory_bytes`` stand beside each unit."""

    idle_for_s: float = 60.0
    idle_below: float = 0.05
    busy_above: float = 0.15
    pressure_above: float = 0.2
    pressure_below: float = 0.1
    stale_after_s: float = 10.0
    reserve_units: float = 0.0
    step_units: float = 1.0
    idle_cause: IdleCause = "off_peak"
    provider: str = ""
    cpu_cores: float = 0.0
    memory_bytes: int = 0
    needs: Needs = field(default_factory=Needs)

    def __post_init__(self) -> None:
        if self.idle_below >= self.busy_above:
            raise ValueError(f"idle_below ({self.idle_below:g}) must be below busy_above ({self.busy_above:g})")
        if self.pressure_below >= self.pressure_above:
            raise ValueError(
                f"pressure_below ({self.pressure_below:g}) must be below pressure_above ({self.pressure_above:g})"
            )


@dataclass(frozen=True)
class Wish:
    """What is to be offered of a pool now, None for nothing, and why."""

    offer: Offer | None
    reason: str = ""


class PoolPolicy:
    """The state of one pool."""

    def __init__(self, settings: PolicySettings) -> None:
        self.settings = settings
        self._last: Reading | None = None
        self._seen_ns = 0
        self._idle_since_ns: int | None = None
        self._is_offered = False
        self._why = SOURCE_SILENT
        # Times and owner's units of the readings that can still be the largest: times rise, units fall.
        self._peaks: deque[tuple[int, float]] = deque()

    def see(self, reading: Reading, now_ns: int) -> None:
        """Take in a reading."""
        if self._last is None or self._is_stale(now_ns):
            self._is_offered, self._idle_since_ns = False, None
        self._last, self._seen_ns = reading, now_ns
        while self._peaks and self._peaks[-1][1] <= reading.owner_units:
            self._peaks.pop()
        self._peaks.append((now_ns, reading.owner_units))
        busy = self._busy(reading)
        if busy is not None:
            self._why, self._is_offered, self._idle_since_ns = busy, False, None
        elif self._is_idle(reading):
            if self._idle_since_ns is None:
                self._idle_since_ns = now_ns
            if now_ns - self._idle_since_ns >= round(self.settings.idle_for_s * 1e9):
                self._is_offered = True
        elif not self._is_offered:
            self._why, self._idle_since_ns = WAITING, None
        while self._peaks and self._peaks[0][0] < now_ns - round(self.settings.idle_for_s * 1e9):
            self._peaks.popleft()

    def wish(
        self, now_ns: int, *, host_cores: float | None = None, taken_units: float = 0.0, lasts_s: float = math.inf
    ) -> Wish:
        """What to offer now.

        ``host_cores`` are idle on the host, None where that is not known; ``taken_units`` of the pool are offered
        beside others already; ``lasts_s`` is the time to the next hold.
        """
        reading = self._last
        if reading is None or self._is_stale(now_ns):
            self._is_offered, self._idle_since_ns = False, None
            return Wish(None, SOURCE_SILENT)
        if not self._is_offered:
            return Wish(None, self._why if self._idle_since_ns is None else WAITING)
        units = self._units(reading, taken_units)
        if units <= 0.0:
            return Wish(None, NOTHING_LEFT)
        settings = self.settings
        beside_cores = settings.cpu_cores * units if reading.cpu_cores is None else reading.cpu_cores
        beside_bytes = round(settings.memory_bytes * units) if reading.memory_bytes is None else reading.memory_bytes
        cores = beside_cores if host_cores is None or reading.divisible else min(beside_cores, host_cores)
        return Wish(
            Offer(
                accelerator=reading.accelerator,
                units=units,
                cpu_cores=units if reading.divisible and reading.cpu_cores is None else cores,
                memory_bytes=beside_bytes,
                idle_cause=reading.idle_cause or settings.idle_cause,
                unusable=reading.unusable or self._lacks(reading, cores / units, lasts_s),
                provider=settings.provider if reading.provider is None else reading.provider,
            )
        )

    @property
    def reading(self) -> Reading | None:
        """What was seen last."""
        return self._last

    def _is_stale(self, now_ns: int) -> bool:
        return now_ns - self._seen_ns > round(self.settings.stale_after_s * 1e9)

    def _busy(self, reading: Reading) -> str | None:
        if reading.fault:
            return reading.fault
        if reading.owner_units > self.settings.busy_above * reading.units:
            return OWNER_BUSY
        return PRESSURE if reading.pressure > self.settings.pressure_above else None

    def _is_idle(self, reading: Reading) -> bool:
        is_left_alone = reading.owner_units <= self.settings.idle_below * reading.units
        return is_left_alone and reading.pressure <= self.settings.pressure_below

    def _units(self, reading: Reading, taken_units: float) -> float:
        if not reading.divisible:
            return reading.units
        left = reading.units - self._peaks[0][1] - self.settings.reserve_units - taken_units
        # A step that is missed by a rounding error of the division is none less.
        return max(0.0, math.floor(left / self.settings.step_units + 1e-9) * self.settings.step_units)

    def _lacks(self, reading: Reading, unit_cores: float, lasts_s: float) -> UnusableReason | None:
        needs = self.settings.needs
        if needs.accelerators and reading.accelerator not in needs.accelerators:
            return "model_format"
        if reading.device_memory_bytes is not None and reading.device_memory_bytes < needs.device_memory_bytes:
            return "memory"
        if not reading.divisible and unit_cores < needs.cpu_cores:
            return "missing_cpu"
        return "too_short" if lasts_s < needs.lasts_s else None
