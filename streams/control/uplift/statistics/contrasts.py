"""Differences between groups of requests, with intervals that respect that a user's requests are alike.

With z_b what bucket b of users adds to the error of a contrast (a sum of its groups' influences, see ``GroupSums``) its
variance is B / (B - 1) x sum of z_b^2, B buckets (Deng, Knoblich and Lu, "Applying the delta method in metric
analytics", KDD 2018, with buckets as clusters). Groups of one bucket need not be independent of each other.
"""

from collections.abc import Sequence

import numpy as np

from streams.control.uplift.statistics.groups import Floats, GroupSums
from streams.control.uplift.statistics.intervals import DEFAULT_INTERVALS, Interval, IntervalSettings, interval


def mean_difference(
    treated: GroupSums, control: GroupSums, *, settings: IntervalSettings = DEFAULT_INTERVALS
) -> Interval | None:
    """Mean of the treated less that of the control; None where too little is known of either."""
    return _contrast((treated, control), (1.0, -1.0), scale=control.mean, settings=settings)


def interaction(
    both: GroupSums,
    one: GroupSums,
    other: GroupSums,
    none: GroupSums,
    *,
    settings: IntervalSettings = DEFAULT_INTERVALS,
) -> Interval | None:
    """What two levers earn together beyond the sum of what each earns alone: both - one - other + none."""
    return _contrast((both, one, other, none), (1.0, -1.0, -1.0, 1.0), scale=none.mean, settings=settings)


def variance_over_buckets(errors_B: Floats) -> float:
    """Variance of an estimate from what each bucket adds to its error, float64 [B] that sum up to 0."""
    num_buckets = len(errors_B)
    return float(errors_B @ errors_B) * num_buckets / (num_buckets - 1)


def _contrast(
    groups: Sequence[GroupSums], signs: Sequence[float], *, scale: float, settings: IntervalSettings
) -> Interval | None:
    if any(group.num_requests < settings.min_requests for group in groups):
        return None
    num_buckets = min(group.num_buckets for group in groups)
    if num_buckets < settings.min_buckets:
        return None
    errors_B = np.zeros_like(groups[0].weight_B)
    for sign, group in zip(signs, groups, strict=True):
        errors_B = errors_B + sign * group.influence_B()
    return interval(
        sum(sign * group.mean for sign, group in zip(signs, groups, strict=True)),
        variance_over_buckets(errors_B),
        scale=scale,
        num_buckets=num_buckets,
        # What the difference knows: the smaller group bounds it.
        effective_sample_size=1.0 / sum(1.0 / group.effective_size for group in groups),
        settings=settings,
    )
