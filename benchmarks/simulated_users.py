"""Simulated experiments with users who come again: what intervals and the check of the split are proven on.

A crowd holds what each of many users does over all looks, with every arm's outcome. An experiment draws users from it,
and arms and buckets for them by chance: an A/A test is a new draw of the same crowd, and the truth at each look is that
of the whole crowd. Shape legend: U users, K kinds of sums, L looks, A arms, B buckets.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.buckets import NUM_BUCKETS
from streams.control.uplift.statistics.intervals import DEFAULT_INTERVALS, student_quantile
from streams.control.uplift.statistics.sample_ratio import MIN_USERS, MIXTURE_USERS

Floats = NDArray[np.float64]
Crowd = NDArray[np.float32]

# Kinds of sums. A request is precious or plain, chance says which; plain ones are shed first: their lever is not
# delivered. Gains are what a lever adds where it is delivered.
KINDS: Final = ("requests", "value", "precious", "precious_value")
# Per precious request of 1.0 mean value of a click: relative gains of one lever, the other, and both together.
GAIN_ONE, GAIN_OTHER, GAIN_BOTH = 0.3, 0.2, 0.4


def crowd(rng: np.random.Generator, *, num_users: int, num_looks: int, tail: float = 2.5, rate: float = 3.0) -> Crowd:
    """Running sums of each user by kind and look, float32 [U, K x L]; ``tail`` is the exponent of Pareto's values.

    Users differ for good in how often they come, click and spend; a half comes later; traffic rises and falls.
    """
    activity_U = rng.lognormal(0.0, 0.8, num_users) * rate
    prone_U = np.minimum(0.9, rng.lognormal(-0.32, 0.8, num_users) * 0.1)
    spends_U = rng.lognormal(-0.32, 0.8, num_users)
    since_U = np.where(rng.random(num_users) < 0.5, rng.integers(0, max(1, num_looks // 2), num_users), 0)
    looks_L = np.arange(num_looks)
    traffic_UL = activity_U[:, None] * (1.0 + 0.5 * np.sin(looks_L / num_looks * 6.0 * np.pi))
    traffic_UL = np.where(looks_L >= since_U[:, None], traffic_UL, 0.0)
    # What is asked drifts: precious requests are 3 of 10 at first, and 6 of 10 at last.
    share_L = np.linspace(0.3, 0.6, num_looks)
    requests, values = [], []
    for share, clicks in ((share_L, 2.0), (1.0 - share_L, 0.5)):
        num_UL = rng.poisson(traffic_UL * share)
        num_clicks_UL = rng.binomial(num_UL, np.minimum(0.95, prone_U * clicks)[:, None])
        worth = rng.pareto(tail, int(num_clicks_UL.sum())) + 1.0
        where = np.repeat(np.arange(num_clicks_UL.size), num_clicks_UL.ravel())
        value_UL = np.bincount(where, weights=worth, minlength=num_clicks_UL.size).reshape(num_clicks_UL.shape)
        requests.append(np.cumsum(num_UL, axis=1, dtype=np.float64))
        values.append(np.cumsum(value_UL * spends_U[:, None], axis=1))
    sums = (requests[0] + requests[1], values[0] + values[1], requests[0], values[0])
    return np.concatenate(sums, axis=1, dtype=np.float32)


def drawn(rng: np.random.Generator, crowd_UKL: Crowd, users: Sequence[int], num_kinds: int = 2) -> Floats:
    """So many users per arm, put into buckets by chance: sums by arm, kind, bucket and look, [A, K, B, L].

    Only the first ``num_kinds`` kinds are summed.
    """
    width = crowd_UKL.shape[1] // len(KINDS) * num_kinds
    chosen = rng.permutation(len(crowd_UKL))[: sum(users)]
    counts = np.concatenate([rng.multinomial(num, np.full(NUM_BUCKETS, 1.0 / NUM_BUCKETS)) for num in users])
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    sums = np.zeros((len(counts), width))
    occupied = np.flatnonzero(counts)
    sums[occupied] = np.add.reduceat(crowd_UKL[chosen, :width], starts[occupied], axis=0)
    return sums.reshape(len(users), NUM_BUCKETS, num_kinds, -1).transpose(0, 2, 1, 3)


@dataclass(frozen=True, kw_only=True)
class Looks:
    """A contrast at every look, [L]: as ``contrasts`` would tell it; NaN where it would tell nothing."""

    effect_L: Floats
    half_L: Floats
    fixed_half_L: Floats

    def misses(self, truth_L: Floats | float) -> NDArray[np.bool_]:
        """Looks whose always-valid interval leaves the truth out, [L]."""
        return np.asarray(np.abs(self.effect_L - truth_L) > self.half_L)

    def fixed_misses(self, truth_L: Floats | float) -> NDArray[np.bool_]:
        """The same of intervals for one look."""
        return np.asarray(np.abs(self.effect_L - truth_L) > self.fixed_half_L)

    @property
    def last_ratio(self) -> float:
        """Half-width over that of the interval for one look, at the last look."""
        return float(self.half_L[-1] / self.fixed_half_L[-1])


def looked_at(groups: Sequence[tuple[Floats, Floats]], signs: Sequence[float]) -> Looks:
    """A signed sum of the groups' means at all looks at once, from requests and totals [B, L] of each.

    The formulas are those of ``contrasts`` and ``intervals``, over arrays: thousands of experiments in seconds. The
    last group is the control.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = [weight_BL.sum(axis=0) for weight_BL, _ in groups]
        means = [total_BL.sum(axis=0) / size_L for (_, total_BL), size_L in zip(groups, sizes, strict=True)]
        errors_BL = sum(
            sign * (total_BL - mean_L * weight_BL) / size_L
            for sign, (weight_BL, total_BL), mean_L, size_L in zip(signs, groups, means, sizes, strict=True)
        )
        buckets = [size_L**2 / (weight_BL**2).sum(axis=0) for (weight_BL, _), size_L in zip(groups, sizes, strict=True)]
        buckets_L = np.floor(np.nan_to_num(np.min(buckets, axis=0)) + 1e-9).astype(int)
        variance_L = np.asarray(errors_BL**2).sum(axis=0) * NUM_BUCKETS / (NUM_BUCKETS - 1)
        far_L, near_L = _QUANTILES[:, buckets_L]
        widened_L = variance_L * (far_L / 3.0) ** 2
        spread_L = (DEFAULT_INTERVALS.tau_share * means[-1]) ** 2 / widened_L
        half_L = np.sqrt(widened_L * (1.0 + 1.0 / spread_L) * (np.log1p(spread_L) - 2.0 * math.log(0.05)))
        is_told_L = (buckets_L >= DEFAULT_INTERVALS.min_buckets) & (
            np.min(sizes, axis=0) >= DEFAULT_INTERVALS.min_requests
        )
    effect_L = sum(sign * mean_L for sign, mean_L in zip(signs, means, strict=True))
    return Looks(
        effect_L=np.where(is_told_L, effect_L, np.nan),
        half_L=np.where(is_told_L, half_L, np.nan),
        fixed_half_L=np.where(is_told_L, near_L * np.sqrt(variance_L), np.nan),
    )


def split_p_values(requests_ABL: Floats, shares_A: Floats) -> Floats:
    """p-values of ``sample_ratio`` at all looks at once, [L]; 1 where it would tell nothing."""
    total_BL = requests_ABL.sum(axis=0)
    total_L, freedom = total_BL.sum(axis=0), len(shares_A) - 1
    found_AL = requests_ABL.sum(axis=1) / total_L
    errors_ABL = requests_ABL - found_AL[:, None] * total_BL
    squares_L = (errors_ABL**2 / shares_A[:, None, None]).sum(axis=(0, 1)) * NUM_BUCKETS / (NUM_BUCKETS - 1) / freedom
    users_L = total_L**2 / np.maximum(squares_L, total_L)
    distance_L = users_L * ((found_AL - shares_A[:, None]) ** 2 / shares_A[:, None]).sum(axis=0)
    ratio_L = users_L / MIXTURE_USERS
    logs_L = 0.5 * (freedom * np.log1p(ratio_L) - distance_L * ratio_L / (1.0 + ratio_L))
    return np.asarray(np.where(users_L >= MIN_USERS, np.exp(np.minimum(0.0, logs_L)), 1.0))


# By number of buckets: three standard errors' worth of tail, and the quantile of one look.
_QUANTILES: Final = np.array(
    [
        [student_quantile(max(1, buckets - 1), share) for buckets in range(NUM_BUCKETS + 1)]
        for share in (0.9973002039367398, 0.95)
    ]
)
