"""How sure a ratio is that was measured in alternating blocks: an interval by resampling whole blocks. Pure.

Within a block latencies are alike (a busy neighbour, a clock that changed), so blocks are drawn, not latencies, and a
block with its reference, as they were measured side by side (Efron and Tibshirani, "An Introduction to the Bootstrap",
1993, ch. 8 and 13: block resampling, percentile interval).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Interval(NamedTuple):
    """An estimate and the ends of its 95 % interval."""

    low: float
    estimate: float
    high: float


def ratio_of_percentiles(
    blocks: Sequence[Sequence[float]],
    reference_blocks: Sequence[Sequence[float]],
    *,
    percentile: float,
    num_resamples: int = 2_000,
    seed: int = 1,
) -> Interval:
    """Percentile of all values over that of all reference values, with its 95 % interval.

    Raises ValueError where there is not one reference block per block, or fewer than two of them.
    """
    if len(blocks) != len(reference_blocks) or len(blocks) < 2:
        raise ValueError(f"{len(blocks)} blocks and {len(reference_blocks)} of the reference")
    draws = np.random.default_rng(seed)
    values = [np.asarray(block) for block in blocks]
    references = [np.asarray(block) for block in reference_blocks]

    def ratio(chosen: Sequence[int]) -> float:
        above = np.percentile(np.concatenate([values[number] for number in chosen]), percentile)
        below = np.percentile(np.concatenate([references[number] for number in chosen]), percentile)
        return float(above / below)

    everything = range(len(values))
    resampled = [ratio(draws.integers(len(values), size=len(values)).tolist()) for _ in range(num_resamples)]
    low, high = np.percentile(resampled, [2.5, 97.5])
    return Interval(float(low), ratio(everything), float(high))
