"""Where each sum of a segment stands: one row for each bucket of users, one column for each group and figure. Pure.

    B  buckets of users (64)
    K  columns: COLUMNS of each arm, then of each drawn depth, then of each drawn upgrade

An arm's columns hold all its requests. Those of what was drawn hold the requests of any arm for which it was drawn, its
``weight_micro`` and measures times 1 / propensity. So each contrast is a difference of two sums of column groups, and
a segment needs 50 kB however many strata its requests fall into.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.buckets import NUM_BUCKETS
from schemas.records import StratumSums
from schemas.records.measurement import ARMS, MEASURES, OUTCOME_SUMS, REQUEST_SUMS, DrawnDepth, DrawnUpgrade

Sums = NDArray[np.int64]
Faded = NDArray[np.float64]

_REQUEST_COLUMNS: Final = (
    "num_requests",
    "weight_micro",
    "num_extras_assigned",
    "num_extras_ranked",
    "num_upgrades_assigned",
    "num_upgrades_ranked",
)
COLUMNS: Final = (*_REQUEST_COLUMNS, *MEASURES)
DEPTHS: Final[tuple[DrawnDepth, ...]] = ("none", "half", "full")
UPGRADES: Final[tuple[DrawnUpgrade, ...]] = ("no", "yes")
GROUPS: Final = (
    *(f"arm {arm}" for arm in ARMS),
    *(f"depth {depth}" for depth in DEPTHS),
    *(f"upgrade {drawn}" for drawn in UPGRADES),
)
NUM_COLUMNS: Final = len(GROUPS) * len(COLUMNS)
NUM_SUMS: Final = NUM_BUCKETS * NUM_COLUMNS
# Sums of two such numbers are still int64.
MAX_SUM: Final = 2**61

_PLAIN_WEIGHT: Final = {"arm": "arm_weight_micro", "depth": "depth_weight_micro", "upgrade": "upgrade_weight_micro"}
_MEASURE_PREFIX: Final = {"arm": "", "depth": "depth_weighted_", "upgrade": "upgrade_weighted_"}


def column(group: str, name: str) -> int:
    """Place of one figure of one group, as in ``arm both``, ``depth full`` and ``upgrade yes``."""
    return GROUPS.index(group) * len(COLUMNS) + COLUMNS.index(name)


def _copied(kind: str, *, is_request: bool) -> tuple[list[int], list[int]]:
    """Where the sums stand in a stratum's row that a group of this kind takes, and where each of them in the group."""
    if is_request:
        said = [_PLAIN_WEIGHT[kind] if name == "weight_micro" else name for name in _REQUEST_COLUMNS]
        return [REQUEST_SUMS.index(name) for name in said], [COLUMNS.index(name) for name in _REQUEST_COLUMNS]
    said = [f"{_MEASURE_PREFIX[kind]}{name}" for name in MEASURES]
    return [OUTCOME_SUMS.index(name) for name in said], [COLUMNS.index(name) for name in MEASURES]


_COPIED: Final = {
    (kind, is_request): _copied(kind, is_request=is_request) for kind in _PLAIN_WEIGHT for is_request in (True, False)
}


def empty() -> Sums:
    """Sums of nobody [B, K]."""
    return np.zeros((NUM_BUCKETS, NUM_COLUMNS), dtype=np.int64)


def added(one: Sums, other: Sums) -> Sums:
    """Both together, held at MAX_SUM: a window cannot make a sum wrap."""
    return np.clip(np.clip(one, -MAX_SUM, MAX_SUM) + np.clip(other, -MAX_SUM, MAX_SUM), -MAX_SUM, MAX_SUM)


def folded(strata: Iterable[StratumSums], *, is_request: bool) -> Sums:
    """Sums [B, K] of strata whose columns are ``REQUEST_SUMS`` or ``OUTCOME_SUMS``."""
    sums_BK = empty()
    num_said = len(REQUEST_SUMS if is_request else OUTCOME_SUMS)
    for stratum in strata:
        said_NM = np.clip(np.array(stratum.sums, dtype=np.int64).reshape(-1, num_said), -MAX_SUM, MAX_SUM)
        buckets_N1 = np.array(stratum.buckets, dtype=np.int64)[:, np.newaxis]
        for group in _groups(stratum):
            places, at = _COPIED[group.partition(" ")[0], is_request]
            columns = GROUPS.index(group) * len(COLUMNS) + np.array(at)
            sums_BK[buckets_N1, columns] = np.clip(sums_BK[buckets_N1, columns] + said_NM[:, places], -MAX_SUM, MAX_SUM)
    return sums_BK


def _groups(stratum: StratumSums) -> Iterable[str]:
    yield f"arm {stratum.arm}"
    if stratum.depth:
        yield f"depth {stratum.depth}"
    if stratum.upgrade:
        yield f"upgrade {stratum.upgrade}"


def packed(sums_BK: Sums) -> bytes:
    """Canonical bytes: little-endian, row by row."""
    return sums_BK.astype("<i8").tobytes()


def unpacked(data: bytes) -> Sums:
    """Sums of their bytes; those of nobody where there are none."""
    if not data:
        return empty()
    return np.frombuffer(data, dtype="<i8").reshape(NUM_BUCKETS, NUM_COLUMNS).astype(np.int64)


def packed_faded(faded_BK: Faded) -> bytes:
    """Canonical bytes of decayed sums: little-endian float64, row by row."""
    return faded_BK.astype("<f8").tobytes()


def unpacked_faded(data: bytes) -> Faded:
    """Decayed sums of their bytes; those of nobody where there are none."""
    if not data:
        return np.zeros((NUM_BUCKETS, NUM_COLUMNS))
    return np.frombuffer(data, dtype="<f8").reshape(NUM_BUCKETS, NUM_COLUMNS).astype(np.float64)
