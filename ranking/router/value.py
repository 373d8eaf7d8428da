"""What ranking one more candidate is expected to earn, before anything was measured.

Shape legend: N candidates of a request in retrieval order, X extra candidates, C chunks.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

MICRO = 1_000_000


class MarginalValueCurve(Protocol):
    """Chance that the candidate at a retrieval position ends among the results and is clicked."""

    def marginal(self, positions_X: NDArray[np.int64]) -> NDArray[np.float64]:
        """Chance [X] for each position, in [0, 1], never rising with depth."""
        ...


@dataclass(frozen=True, kw_only=True)
class DepthPrior:
    """A prior, to be replaced by a measured curve: m(i) = clicks_at_top / (1 + i / depth).

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


def chunk_values_micro(
    bids_X: NDArray[np.float32], *, first_position: int, chunk_size: int, curve: MarginalValueCurve
) -> NDArray[np.int64]:
    """Expected value of each chunk in micro-units, int64 [C]: the sum over its candidates of bid x marginal chance."""
    positions_X = np.arange(first_position, first_position + len(bids_X))
    values_X = bids_X.astype(np.float64) * curve.marginal(positions_X)
    sums_C = np.add.reduceat(values_X, np.arange(0, len(bids_X), chunk_size))
    values_micro_C: NDArray[np.int64] = np.rint(sums_C * MICRO).astype(np.int64)
    return values_micro_C
