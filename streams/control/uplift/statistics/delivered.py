"""The effect of what was delivered, derived from what was assigned: shedding is not random, assignment is.

Wald's ratio: effect of assignment on the outcome / effect of assignment on delivery, which is the effect on those who
are served otherwise because of it (Imbens and Angrist, "Identification and estimation of local average treatment
effects", Econometrica 62, 1994, p. 467), as long as what was assigned and not delivered changes nothing. By the delta
method a bucket of users adds (z - w x ratio) / share to its error, z and w being what it adds to the two differences.
"""

import math

from streams.control.uplift.statistics.contrasts import variance_over_buckets
from streams.control.uplift.statistics.groups import GroupSums
from streams.control.uplift.statistics.intervals import DEFAULT_INTERVALS, Interval, IntervalSettings, interval


def delivered_effect(
    treated: GroupSums,
    control: GroupSums,
    treated_delivered: GroupSums,
    control_delivered: GroupSums,
    *,
    settings: IntervalSettings = DEFAULT_INTERVALS,
) -> Interval | None:
    """Effect per request that was served so.

    The last two are the same groups with what was delivered for a measure (1 per request, or units). None where too
    little is known, or where assignment does not surely change what is delivered: at least four standard errors.
    """
    groups = (treated, control)
    num_buckets = min(group.num_buckets for group in groups)
    if num_buckets < settings.min_buckets or any(group.num_requests < settings.min_requests for group in groups):
        return None
    share = treated_delivered.mean - control_delivered.mean
    share_errors_B = treated_delivered.influence_B() - control_delivered.influence_B()
    if share <= 0.0 or share < 4.0 * math.sqrt(variance_over_buckets(share_errors_B)):
        return None
    ratio = (treated.mean - control.mean) / share
    errors_B = (treated.influence_B() - control.influence_B() - ratio * share_errors_B) / share
    return interval(
        ratio,
        variance_over_buckets(errors_B),
        scale=control.mean,
        num_buckets=num_buckets,
        effective_sample_size=share * share / sum(1.0 / group.effective_size for group in groups),
        settings=settings,
    )
