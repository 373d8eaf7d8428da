"""Whether arms have the shares that they were drawn with: without that no comparison can be trusted.

Each request of an arm weighs 1 / probability of the arm, so that the weights of any arm sum up to the number of all
requests. r = sum of weights / number of all requests is 1 but for chance; its error comes from buckets of users, since
a user's requests all fall into one arm (Fabijan et al., "Diagnosing sample ratio mismatch", KDD 2019, on why it is
looked for at all). The p-value of an arm holds at every look: it is the inverse of the normal mixture's ratio

    L = sqrt(v / (v + s)) exp( (r - 1)^2 s / (2 v (v + s)) )       s = TAU^2       p = min(1, 1 / L)

(Johari et al., see ``intervals``), times the number of arms looked at (Bonferroni). An arm with users in fewer than
MIN_BUCKETS buckets is not looked at.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from streams.control.uplift.statistics.contrasts import variance_over_buckets
from streams.control.uplift.statistics.groups import Floats, GroupSums
from streams.control.uplift.statistics.intervals import student_quantile

# A mismatch is called below this: one split in a hundred is wrongly distrusted, ever.
MISMATCH_P: Final = 0.01
# Size of a mismatch, relative to an arm's share, for which the test is the quickest.
TAU: Final = 0.05
MIN_BUCKETS: Final = 16
_Z: Final = 1.959963984540054


@dataclass(frozen=True, kw_only=True)
class RatioFound:
    """Shares by arm, in the order given; ``p_value`` holds at every look."""

    expected: tuple[float, ...]
    observed: tuple[float, ...]
    p_value: float

    @property
    def is_mismatch(self) -> bool:
        return self.p_value < MISMATCH_P


def sample_ratio(num_requests_B: Mapping[str, Floats], weights_B: Mapping[str, Floats]) -> RatioFound | None:
    """Of each arm its requests and their weights by bucket, float64 [B]; None where no arm has users enough."""
    arms: Sequence[str] = list(num_requests_B)
    total_B = sum((num_requests_B[arm] for arm in arms[1:]), start=num_requests_B[arms[0]]) if arms else None
    if total_B is None or not total_B.sum() > 0.0:
        return None
    total = float(total_B.sum())
    p_values: list[float] = []
    expected, observed = [], []
    for arm in arms:
        share = float(num_requests_B[arm].sum()) / total
        # The weights of an arm over all requests: of a group whose requests are all, and whose measure is the weight.
        group = GroupSums(weight_B=total_B, total_B=weights_B[arm], num_requests=round(total), weight_squared=total)
        observed.append(share)
        expected.append(min(1.0, share / group.mean) if group.mean > 0.0 else 0.0)
        num_buckets = int((num_requests_B[arm] > 0.0).sum())
        if num_buckets >= MIN_BUCKETS:
            variance = variance_over_buckets(group.influence_B()) * (student_quantile(num_buckets - 1) / _Z) ** 2
            p_values.append(_p_value(group.mean - 1.0, variance))
    if not p_values:
        return None
    return RatioFound(
        expected=tuple(expected), observed=tuple(observed), p_value=min(1.0, len(p_values) * min(p_values))
    )


def _p_value(error: float, variance: float) -> float:
    if variance <= 0.0:
        return 1.0 if error == 0.0 else 0.0
    spread = variance + TAU * TAU
    exponent = error * error * TAU * TAU / (2.0 * variance * spread) + 0.5 * math.log(variance / spread)
    return min(1.0, math.exp(-min(exponent, 700.0)))
