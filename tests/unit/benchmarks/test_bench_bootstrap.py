"""The interval of a ratio of percentiles: it holds the truth about as often as it says, and names what it cannot do."""

import numpy as np
import pytest

from benchmarks.bootstrap import ratio_of_percentiles


def blocks(seed: int, *, scale: float, num_blocks: int = 12) -> list[list[float]]:
    """Latencies of blocks, each of a speed of its own."""
    draws = np.random.default_rng(seed)
    return [(scale * draws.lognormal(0.0, 0.1) * draws.exponential(1.0, size=60)).tolist() for _ in range(num_blocks)]


def test_the_same_on_both_sides_is_a_ratio_of_one() -> None:
    same = blocks(1, scale=3.0)
    assert ratio_of_percentiles(same, same, percentile=99) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("truth", [1.0, 1.5])
def test_the_truth_lies_within_most_intervals(truth: float) -> None:
    held = 0
    for seed in range(40):
        low, estimate, high = ratio_of_percentiles(
            blocks(seed, scale=truth), blocks(1_000 + seed, scale=1.0), percentile=50, num_resamples=200
        )
        assert low <= estimate <= high
        held += low <= truth <= high
    assert held >= 32


def test_a_difference_is_told_from_none() -> None:
    assert ratio_of_percentiles(blocks(1, scale=2.0), blocks(2, scale=1.0), percentile=50).low > 1.2


@pytest.mark.parametrize(("num_blocks", "num_references"), [(1, 1), (3, 2)])
def test_blocks_come_in_pairs(num_blocks: int, num_references: int) -> None:
    with pytest.raises(ValueError, match="blocks"):
        ratio_of_percentiles([[1.0]] * num_blocks, [[1.0]] * num_references, percentile=99)
