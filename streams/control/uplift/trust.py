"""Whether the split of users can be trusted in a segment: over all its matured requests, and over those of a day. Pure.

The worse of the two is told. Each of them may be wrong half as often as both together.
"""

import msgspec
import numpy as np

from schemas.buckets import NUM_BUCKETS
from schemas.records import SampleRatio
from schemas.records.measurement import ARMS
from streams.control.uplift import layout
from streams.control.uplift.layout import column
from streams.control.uplift.state import SegmentSums
from streams.control.uplift.statistics.groups import Floats
from streams.control.uplift.statistics.sample_ratio import MISMATCH_P, sample_ratio

_MICRO = 1_000_000
_NUM_TESTS = 2


def trust(sums: SegmentSums) -> SampleRatio | None:
    """The sample-ratio check of a segment; None where too few users were seen, or no arm has a known probability."""
    found = [tested for tested in (_tested(*_all(sums)), _tested(*_today(sums))) if tested is not None]
    if not found:
        return None
    worst = min(found, key=lambda tested: tested.p_value)
    p_value = min(1.0, _NUM_TESTS * worst.p_value)
    return msgspec.structs.replace(worst, p_value=p_value, is_mismatch=p_value < MISMATCH_P)


def _all(sums: SegmentSums) -> tuple[Floats, Floats]:
    sums_BK = layout.unpacked(sums.aa if sums.is_aa else sums.claims).astype(np.float64)
    requests, weights = (
        sums_BK[:, [column(f"arm {arm}", name) for arm in ARMS]] for name in ("num_requests", "weight_micro")
    )
    return requests, weights


def _today(sums: SegmentSums) -> tuple[Floats, Floats]:
    shape = (NUM_BUCKETS, len(ARMS), 2)
    counts_BA2 = np.frombuffer(sums.day_sums, dtype="<i8").reshape(shape) if sums.day_sums else np.zeros(shape)
    return counts_BA2[:, :, 0].astype(np.float64), counts_BA2[:, :, 1].astype(np.float64)


def _tested(requests_BA: Floats, weights_micro_BA: Floats) -> SampleRatio | None:
    """The check of requests and weights by bucket and arm; arms that were not drawn are not looked at."""
    arms = [arm for at, arm in enumerate(ARMS) if requests_BA[:, at].any() and weights_micro_BA[:, at].any()]
    if len(arms) < 2:
        return None
    at = {arm: ARMS.index(arm) for arm in arms}
    found = sample_ratio(
        {arm: requests_BA[:, at[arm]] for arm in arms}, {arm: weights_micro_BA[:, at[arm]] / _MICRO for arm in arms}
    )
    if found is None:
        return None
    return SampleRatio(
        arms=arms,
        expected=list(found.expected),
        observed=[min(1.0, share) for share in found.observed],
        p_value=found.p_value,
        is_mismatch=found.is_mismatch,
    )
