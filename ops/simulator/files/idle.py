"""What a fleet leaves idle over time, and which stretch of it a run plays. Pure.

Idle is what is in use below the most that was ever in use at once: the machines of that peak stand there all the time.
Shapes: I instances, S slots of a stretch, E times at which something changes.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ops.simulator.files.fleet_file import FleetTrace
from ops.simulator.files.wanted import MAX_SPEED, MIN_SPEED, WantedCapacity

# Steps of the search for the liveliest stretch: this many to its length, and at most so many slots in all.
_STEPS_PER_STRETCH: Final = 8
_MAX_SLOTS: Final = 4_000_000


@dataclass(frozen=True)
class InUse:
    """How much of one resource is in use from each time on: ``times_s_E`` rise from the trace's start, at 0."""

    times_s_E: NDArray[np.float64]
    amounts_E: NDArray[np.float64]

    @property
    def peak(self) -> float:
        return float(self.amounts_E.max())

    def idle_in_slots(self, from_s: float, slot_s: float, num_slots: int) -> NDArray[np.float64]:
        """What stays idle all through each slot, float64 [S]; after the trace's end, what was idle there."""
        edges_s = from_s + slot_s * np.arange(num_slots + 1)
        # The amount at a slot's start was set by the last change up to it.
        first = np.maximum(np.searchsorted(self.times_s_E, edges_s[:-1], side="right") - 1, 0)
        end = np.maximum(np.searchsorted(self.times_s_E, edges_s[1:], side="left"), first + 1)
        # reduceat takes pairs; a bound at the very end is not allowed, so one amount more is appended.
        bounds = np.column_stack((first, end)).ravel()
        most_S = np.maximum.reduceat(np.append(self.amounts_E, 0.0), bounds)[::2]
        return np.maximum(self.peak - most_S, 0.0)


@dataclass(frozen=True, kw_only=True)
class CapacityStretch:
    """From ``from_s`` of the trace on, ``speed`` seconds of it in one of the run."""

    from_s: float
    speed: float


def in_use(fleet: FleetTrace, amounts_I: NDArray[np.float64]) -> InUse:
    """Use of one resource over the trace, by what each instance takes of it."""
    starts_s_I = np.maximum(fleet.starts_s_I, 0.0)
    stays_I = np.isfinite(fleet.ends_s_I)
    changes_s = np.concatenate(([0.0], starts_s_I, fleet.ends_s_I[stays_I]))
    changes = np.concatenate(([0.0], amounts_I, -amounts_I[stays_I]))
    times_s_E, place = np.unique(changes_s, return_inverse=True)
    # What ends and begins at one instant is one change: no peak between the two.
    steps_E = np.bincount(place, weights=changes, minlength=len(times_s_E))
    return InUse(times_s_E, np.maximum(np.cumsum(steps_E), 0.0))


def choose_capacity(
    uses: list[InUse], wanted: WantedCapacity, *, length_s: float, duration_s: float, slot_s: float
) -> CapacityStretch:
    """The stretch of ``duration_s`` seconds of the run that is wanted; ``slot_s`` are seconds of the run.

    Speed, if not given: what is left of the trace in the time of the run. Start, if not given: where most changes
    hands, in shares of the most that is idle there. Raises ValueError for a start after the trace's end.
    """
    if wanted.from_s is not None and wanted.from_s >= length_s:
        raise ValueError(f"starts at {wanted.from_s:g} s, the trace ends at {length_s:g} s")
    speed = wanted.speed
    if speed is None:
        speed = min(max((length_s - (wanted.from_s or 0.0)) / duration_s, MIN_SPEED), MAX_SPEED)
    from_s = wanted.from_s
    if from_s is None:
        from_s = _liveliest(uses, length_s=length_s, stretch_s=speed * duration_s, slot_s=speed * slot_s)
    return CapacityStretch(from_s=from_s, speed=speed)


def _liveliest(uses: list[InUse], *, length_s: float, stretch_s: float, slot_s: float) -> float:
    slot_s = max(slot_s, length_s / _MAX_SLOTS)
    num_slots, per_stretch = int(length_s / slot_s), int(stretch_s / slot_s)
    if per_stretch < 1 or num_slots <= per_stretch:
        return 0.0
    step = max(1, per_stretch // _STEPS_PER_STRETCH)
    idle = [use.idle_in_slots(0.0, slot_s, num_slots) for use in uses]
    starts = range(0, num_slots - per_stretch + 1, step)
    return slot_s * max(starts, key=lambda start: sum(_liveliness(each[start : start + per_stretch]) for each in idle))


def _liveliness(idle_S: NDArray[np.float64]) -> float:
    most = float(idle_S.max())
    return float(np.abs(np.diff(idle_S)).sum()) / most if most > 0.0 else 0.0
