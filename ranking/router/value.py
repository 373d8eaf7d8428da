"""What optional work is expected to earn: as it was measured where the target says so, by priors until then.

Shape legend: N candidates of a request in retrieval order, X extra candidates, C chunks.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from schemas.records import CandidateTarget

MICRO = 1_000_000


class MarginalValueCurve(Protocol):
    """Chance that the candidate at a retrieval position ends among the results and is clicked."""

    def marginal(self, positions_X: NDArray[np.int64]) -> NDArray[np.float64]:
        """Chance [X] for each position, in [0, 1], never rising with depth."""
        ...


@dataclass(frozen=True, kw_only=True)
class DepthPrior:
    """A prior until a curve was measured: m(i) = clicks_at_top / (1 + i / depth).

    The value of ranking down to n is the sum of m, so it grows like the logarithm of n: concave, as a good retrieval
    leaves little for the depth.
    """

    clicks_at_top: float = 0.01
    depth: float = 128.0

    def __post_init__(self) -> None:
        if not 0.0 < self.clicks_at_top <= 1.0 or self.depth <= 0.0:
            raise ValueError("clicks_at_top must be in (0, 1] and depth positive")

    def marginal(self, positions_X: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.clicks_at_top / (1.0 + positions_X / self.depth)


class MeasuredDepth:
    """A target's curve: straight between its points, level before the first and behind the last."""

    def __init__(self, target: CandidateTarget) -> None:
        self._positions = np.array([point.position for point in target.depth_values], dtype=np.float64)
        self._clicks = np.array([point.clicks for point in target.depth_values], dtype=np.float64)

    def marginal(self, positions_X: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.interp(positions_X, self._positions, self._clicks)


class Values:
    """What items are worth by a target, with priors for what it does not say."""

    def __init__(self, *, depth_prior: MarginalValueCurve, upgrade_prior_micro: int) -> None:
        self._depth_prior = depth_prior
        self._upgrade_prior_micro = upgrade_prior_micro
        # Of the last target of each cell that had one: cells with targets are declared, and so not many.
        self._curves: dict[str, tuple[CandidateTarget, MarginalValueCurve]] = {}

    def curve(self, target: CandidateTarget) -> MarginalValueCurve:
        """Marginal value of a candidate by its retrieval position."""
        if not target.depth_values:
            return self._depth_prior
        held = self._curves.get(target.cell)
        if held is None or held[0] is not target:
            held = self._curves[target.cell] = (target, MeasuredDepth(target))
        return held[1]

    def upgrade_micro(self, target: CandidateTarget, segment: str) -> int:
        """Expected gain of one upgrade in a segment, in micro-units."""
        measured = (listed.value_micro for listed in target.upgrade_values if listed.segment == segment)
        return next(measured, self._upgrade_prior_micro)


def chunk_values_micro(
    bids_X: NDArray[np.float32], *, first_position: int, chunk_size: int, curve: MarginalValueCurve
) -> NDArray[np.int64]:
    """Expected value of each chunk in micro-units, int64 [C]: the sum over its candidates of bid x marginal chance."""
    positions_X = np.arange(first_position, first_position + len(bids_X))
    values_X = bids_X.astype(np.float64) * curve.marginal(positions_X)
    sums_C = np.add.reduceat(values_X, np.arange(0, len(bids_X), chunk_size))
    values_micro_C: NDArray[np.int64] = np.rint(sums_C * MICRO).astype(np.int64)
    return values_micro_C
