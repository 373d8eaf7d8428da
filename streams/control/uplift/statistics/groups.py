"""Sums of one group of requests, by bucket of users. Shape legend: B buckets."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class GroupSums:
    """Weights of requests and totals of one measure, ``weight_B`` and ``total_B``, both float64 [B].

    A request weighs 1, or 1 / propensity where it was drawn; a measure counts times the weight of its request. The mean
    of the group is the ratio of the two sums (Hajek's estimate where requests are weighted). ``num_requests`` are those
    behind it, ``weight_squared`` the sum of the squares of their weights.
    """

    weight_B: Floats
    total_B: Floats
    num_requests: int
    weight_squared: float

    @cached_property
    def weight(self) -> float:
        """Sum of the weights."""
        return float(self.weight_B.sum())

    @cached_property
    def mean(self) -> float:
        """Measure per request; NaN in an empty group."""
        weight = self.weight
        return float(self.total_B.sum()) / weight if weight > 0.0 else float("nan")

    @cached_property
    def num_buckets(self) -> int:
        """Buckets of equal weight that would be worth as much, rounded down: (sum of w_b)^2 / sum of w_b^2.

        An error that rests on a few heavy buckets has their degrees of freedom (Carter, Schnepel and Steigerwald,
        "Asymptotic behavior of a t-test robust to cluster heterogeneity", REStat 99, 2017), not those of all.
        """
        squares = float(self.weight_B @ self.weight_B)
        # Rounding errors take no bucket away where all weigh the same.
        return math.floor(self.weight * self.weight / squares + 1e-9) if squares > 0.0 else 0

    @property
    def effective_size(self) -> float:
        """Requests of equal weight that would be worth as much (Kish): (sum of w)^2 / sum of w^2."""
        return self.weight * self.weight / self.weight_squared if self.weight_squared > 0.0 else 0.0

    @cached_property
    def _influence_B(self) -> Floats:
        return np.asarray((self.total_B - self.mean * self.weight_B) / self.weight, dtype=np.float64)

    def influence_B(self) -> Floats:
        """What each bucket adds to the mean's error, [B]: (total - mean x weight) / sum of weights; they sum up to 0.

        The delta method for a ratio of sums, linear in the buckets.
        """
        return self._influence_B


def together(*groups: GroupSums) -> GroupSums:
    """The union of groups that share no request."""
    if len(groups) == 1:
        return groups[0]
    return GroupSums(
        weight_B=np.sum([group.weight_B for group in groups], axis=0),
        total_B=np.sum([group.total_B for group in groups], axis=0),
        num_requests=sum(group.num_requests for group in groups),
        weight_squared=sum(group.weight_squared for group in groups),
    )
