"""Whether arms have the shares that they were drawn with: without that no comparison can be trusted.

Of A arms with told shares p_a, n_ab requests of arm a in bucket b of N_b, q_a = n_a / N observed:

    M = B / ((B - 1) (A - 1)) x sum over a, b of (n_ab - q_a N_b)^2 / p_a        U = N^2 / M
    Q = U x sum over a of (q_a - p_a)^2 / p_a

A user's requests all fall into one arm. So M estimates the sum of the squares of users' numbers of requests, which is
one and the same for all arms where users are drawn by chance; U is the number of users, each of whom asks as often,
who would tell as much. One M from all arms and buckets is what lets an arm of one percent, or one without any request,
be judged. Q is Pearson's statistic for U users (clustered as in Rao and Scott, JASA 76, 1981, p. 221). The p-value
holds at every look: it is the inverse of the likelihood ratio of a normal mixture in A - 1 dimensions

    p = min(1, (1 + r)^((A - 1) / 2) exp(-Q r / (2 (1 + r))))        r = U / MIXTURE_USERS

(Robbins 1970, Johari et al. 2022, see ``intervals``; Lindon and Malek, "Anytime-valid inference for multinomial count
data", NeurIPS 2022, for the split of an experiment). Why it is looked for at all: Fabijan et al., "Diagnosing sample
ratio mismatch", KDD 2019.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from streams.control.uplift.statistics.groups import Floats

# A mismatch is called below this: one split in a hundred is wrongly distrusted, ever.
MISMATCH_P: Final = 0.01
# The test is the quickest for mismatches that so many users would show: two to three points of a half.
MIXTURE_USERS: Final = 1_000.0
# Of fewer the smallest arm has too few for a normal distribution.
MIN_USERS: Final = 200.0
# Told shares add up to 1 but for this, where they changed with time; what is missing beyond is an arm without requests.
_TOLERANCE: Final = 0.005


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
    """Of each arm its requests and the sum of their 1 / probability of the arm, by bucket, float64 [B].

    An arm's told share is its requests over their weights. Where told shares add up to less than 1 an arm has no
    request at all, and is judged too. None where an arm's probability is not known, or there are too few users.
    """
    observed_AB = np.array([num_requests_B[arm] for arm in num_requests_B if num_requests_B[arm].any()])
    told = [float(weights_B[arm].sum()) for arm in num_requests_B if num_requests_B[arm].any()]
    if not told or min(told) <= 0.0:
        return None
    shares_A = observed_AB.sum(axis=1) / np.array(told)
    missing = 1.0 - float(shares_A.sum())
    if missing > _TOLERANCE:
        observed_AB = np.vstack([observed_AB, np.zeros_like(observed_AB[0])])
        shares_A = np.append(shares_A, missing)
    shares_A = shares_A / shares_A.sum()
    if len(shares_A) < 2:
        return None
    p_value = _p_value(observed_AB, shares_A)
    if p_value is None:
        return None
    by_arm = iter(zip(shares_A.tolist(), (observed_AB.sum(axis=1) / observed_AB.sum()).tolist(), strict=True))
    found = [next(by_arm) if num_requests_B[arm].any() else (0.0, 0.0) for arm in num_requests_B]
    return RatioFound(
        expected=tuple(share for share, _ in found), observed=tuple(share for _, share in found), p_value=p_value
    )


def _p_value(observed_AB: Floats, shares_A: Floats) -> float | None:
    """From requests by arm and bucket [A, B] and the shares that arms should have, which add up to 1."""
    total_B = observed_AB.sum(axis=0)
    total, freedom, num_buckets = float(total_B.sum()), len(shares_A) - 1, len(total_B)
    found_A = observed_AB.sum(axis=1) / total
    errors_AB = observed_AB - found_A[:, None] * total_B
    squares = float((errors_AB * errors_AB / shares_A[:, None]).sum()) * num_buckets / ((num_buckets - 1) * freedom)
    # A request is at least one user's only one: rounder numbers than chance allows do not make for more users.
    num_users = total * total / max(squares, total)
    if num_users < MIN_USERS:
        return None
    distance = num_users * float(((found_A - shares_A) ** 2 / shares_A).sum())
    ratio = num_users / MIXTURE_USERS
    return math.exp(min(0.0, 0.5 * (freedom * math.log1p(ratio) - distance * ratio / (1.0 + ratio))))
