"""CUPED: a difference less what its users already differed by before the experiment began.

d' = d - theta x d_past, theta = cov(z, z_past) / var(z_past) over the buckets of users, z what each adds to the error
of a difference (Deng, Xu, Kohavi and Walker, "Improving the sensitivity of online controlled experiments by utilizing
pre-experiment data", WSDM 2013). The past is one in which nothing followed from the arms (an A/A test), so that d_past
is 0 in expectation and d' as unbiased as d; its variance is smaller by the squared correlation of the two.
"""

from streams.control.uplift.statistics.contrasts import mean_difference, variance_over_buckets
from streams.control.uplift.statistics.groups import GroupSums
from streams.control.uplift.statistics.intervals import DEFAULT_INTERVALS, Interval, IntervalSettings, interval

# Share of the variance that may be left. Theta is estimated too: one past in a hundred that tells nothing of 64 buckets
# seems to tell as much by chance.
_WORTH_IT = 0.9


def adjusted_difference(
    treated: GroupSums,
    control: GroupSums,
    past_treated: GroupSums,
    past_control: GroupSums,
    *,
    settings: IntervalSettings = DEFAULT_INTERVALS,
) -> tuple[Interval | None, bool]:
    """The difference, adjusted where that narrows it by enough, and whether it was."""
    plain = mean_difference(treated, control, settings=settings)
    past = mean_difference(past_treated, past_control, settings=settings)
    if plain is None or past is None:
        return plain, False
    errors_B = treated.influence_B() - control.influence_B()
    past_errors_B = past_treated.influence_B() - past_control.influence_B()
    spread = float(past_errors_B @ past_errors_B)
    if spread <= 0.0:
        return plain, False
    theta = float(errors_B @ past_errors_B) / spread
    # One degree of freedom is spent on theta.
    num_buckets = min(treated.num_buckets, control.num_buckets, past_treated.num_buckets, past_control.num_buckets) - 1
    variance = variance_over_buckets(errors_B - theta * past_errors_B)
    if variance > _WORTH_IT * variance_over_buckets(errors_B):
        return plain, False
    found = interval(
        plain.effect - theta * past.effect,
        variance,
        scale=control.mean,
        num_buckets=num_buckets,
        effective_sample_size=plain.effective_sample_size,
        settings=settings,
    )
    return found, True
