"""Usable units that hosts took back inside a window, or that fell silent with them, by the age they had. Pure.

A host goes in steps from what counted of it at the window's start to what counts at its end. An offer is known by its
accelerator and since when it stands: what a step leaves of its usable units is not lost, whatever else changed (cause,
provider, more units); the same accelerator offered anew, with another ``since``, was taken back in between.

    lost of an offer in a step = max(0, usable units before - usable units after)
    at the age                   max(0, time of the step - since)

Shape legend: M rows of several hosts, C columns of a row, S steps, K keys (step and offer), P places of a sum, N of any
length.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.age_classes import AGE_CLASSES_MS
from streams.ingest.offers import GROUP, IS_FIRST, SINCE, UNITS, Groups, num_rows, unpack

# Quantities are below 2^63: their upper and lower halves are summed up apart, so that no sum overflows.
_HALF_BITS = 32
_LOW_HALF = (1 << _HALF_BITS) - 1
_NUM_CLASSES = len(AGE_CLASSES_MS)
# Steps looked at together: of MAX_OFFERS rows each, their sums stay within an int64.
_MAX_STEPS = 1 << 14


class Step(NamedTuple):
    """What a host offered before and after, as packed rows, and when; ``after`` None: it fell silent."""

    before: bytes
    after: bytes | None
    at_ms: int


class Losses:
    """Losses of one window, by accelerator; units times 10^6."""

    def __init__(self) -> None:
        self.taken_by_class: dict[str, list[int]] = {}
        self.num_hosts_silent: dict[str, int] = {}
        self.silent_units: dict[str, int] = {}

    def accelerators(self) -> set[str]:
        """Accelerators of which something was lost, or that a silent host had offered."""
        return {*self.taken_by_class, *self.num_hosts_silent}


def losses(steps: Sequence[Step], groups: Groups) -> Losses:
    """What was lost in the steps of all hosts of a cell, in any order."""
    lost = Losses()
    changed = [step for step in steps if step.before != step.after]
    for start in range(0, len(changed), _MAX_STEPS):
        part = changed[start : start + _MAX_STEPS]
        _add_taken(lost, part, groups)
        _add_silent(lost, [step.before for step in part if step.after is None], groups)
    return lost


def _add_taken(lost: Losses, steps: Sequence[Step], groups: Groups) -> None:
    befores, afters = [step.before for step in steps], [step.after or b"" for step in steps]
    step_S = np.arange(len(steps))
    step_M = np.concatenate([np.repeat(step_S, [num_rows(rows) for rows in packed]) for packed in (befores, afters)])
    before_MC, after_MC = unpack(befores), unpack(afters)
    rows_MC = np.concatenate((before_MC, after_MC))
    sign_M = np.repeat(np.array([1, -1]), (len(before_MC), len(after_MC)))
    counts_M = groups.is_usable(rows_MC[:, GROUP]) & (rows_MC[:, UNITS] > 0)
    rows_MC, sign_M, step_M = rows_MC[counts_M], sign_M[counts_M], step_M[counts_M]
    if not len(rows_MC):
        return
    accelerator_M = groups.accelerator_of(rows_MC[:, GROUP])
    # Of equal keys one after another; ranks instead of times, so that a key fits.
    _, rank_M = np.unique(rows_MC[:, SINCE], return_inverse=True)
    num_ranks = int(rank_M.max()) + 1
    key_M = (step_M * len(groups.accelerators) + accelerator_M) * num_ranks + rank_M
    order_M = np.argsort(key_M)
    key_M = key_M[order_M]
    first_K = np.flatnonzero(np.diff(key_M, prepend=-1))
    units_M = rows_MC[order_M, UNITS]
    high_K = np.add.reduceat((units_M >> _HALF_BITS) * sign_M[order_M], first_K)
    low_K = np.add.reduceat((units_M & _LOW_HALF) * sign_M[order_M], first_K)
    # The lower halves' carry, so that the sign stands in the upper ones alone.
    high_K, low_K = high_K + (low_K >> _HALF_BITS), low_K & _LOW_HALF
    is_lost_K = (high_K > 0) | ((high_K == 0) & (low_K > 0))
    row_K = order_M[first_K[is_lost_K]]
    at_S = np.array([step.at_ms for step in steps], dtype=np.int64)
    age_K = np.maximum(0, at_S[step_M[row_K]] - rows_MC[row_K, SINCE])
    class_K = np.searchsorted(AGE_CLASSES_MS, age_K, side="right") - 1
    place_K = accelerator_M[row_K] * _NUM_CLASSES + class_K
    names = groups.accelerators
    high_P, low_P = (_summed(place_K, values_K[is_lost_K], len(names) * _NUM_CLASSES) for values_K in (high_K, low_K))
    for place in np.unique(place_K).tolist():
        accelerator, number = divmod(place, _NUM_CLASSES)
        taken = lost.taken_by_class.setdefault(names[accelerator], [0] * _NUM_CLASSES)
        taken[number] += (int(high_P[place]) << _HALF_BITS) + int(low_P[place])


def _add_silent(lost: Losses, packed: Sequence[bytes], groups: Groups) -> None:
    rows_MC = unpack(packed)
    names = groups.accelerators
    accelerator_M = groups.accelerator_of(rows_MC[:, GROUP])
    units_M = rows_MC[:, UNITS] * groups.is_usable(rows_MC[:, GROUP])
    columns = (rows_MC[:, IS_FIRST], units_M >> _HALF_BITS, units_M & _LOW_HALF)
    hosts_P, high_P, low_P = (_summed(accelerator_M, values_M, len(names)) for values_M in columns)
    for number in np.unique(accelerator_M).tolist():
        name, units = names[number], (int(high_P[number]) << _HALF_BITS) + int(low_P[number])
        lost.num_hosts_silent[name] = lost.num_hosts_silent.get(name, 0) + int(hosts_P[number])
        lost.silent_units[name] = lost.silent_units.get(name, 0) + units


def _summed(place_N: NDArray[np.int64], values_N: NDArray[np.int64], num_places: int) -> NDArray[np.int64]:
    """Sums by place, int64 [P]; unlike those of a bincount they are whole numbers throughout."""
    sums_P = np.zeros(num_places, dtype=np.int64)
    np.add.at(sums_P, place_N, values_N)
    return sums_P
