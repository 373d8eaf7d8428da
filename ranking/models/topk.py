"""The best k of many scores, in linear time and the same on every machine.

Shape legend: N candidates, K selected.
"""

import numpy as np
from numpy.typing import NDArray


def top_k(scores_N: NDArray[np.float32], ids_N: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Return the positions of the k best scores, best first; among equals the lower id wins.

    Selection is by introselect (numpy's `argpartition`), O(N), then a sort of the k selected. A NaN is no
    score: its candidate is never selected, so that fewer than k come back where fewer than k can be compared.
    Returns: int64 [K], K = min(k, comparable candidates).
    Raises: ValueError where k is negative or the lengths differ.
    """
    if k < 0:
        raise ValueError(f"k must not be negative, got {k}")
    if scores_N.shape != ids_N.shape or scores_N.ndim != 1:
        raise ValueError(f"scores {scores_N.shape} and ids {ids_N.shape} must be one-dimensional and equally long")
    is_nan_N = np.isnan(scores_N)
    if not is_nan_N.any():
        return _best(scores_N, ids_N, k)
    comparable = np.flatnonzero(~is_nan_N)
    return comparable[_best(scores_N[comparable], ids_N[comparable], k)]


def _best(scores_N: NDArray[np.float32], ids_N: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Return the positions of the k best, best first; no NaN."""
    if k >= len(scores_N):
        return np.lexsort((ids_N, -scores_N))
    kept = _select(scores_N, ids_N, k)
    return kept[np.lexsort((ids_N[kept], -scores_N[kept]))]


def _select(scores_N: NDArray[np.float32], ids_N: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Return the positions of the k best, unordered; 0 <= k < N and no NaN."""
    if k == 0:
        return np.empty(0, dtype=np.int64)
    threshold = np.partition(scores_N, len(scores_N) - k)[len(scores_N) - k]
    above = np.flatnonzero(scores_N > threshold)
    level = np.flatnonzero(scores_N == threshold)
    num_level = k - len(above)
    # argpartition alone would take any of the equals.
    if num_level < len(level):
        level = level[np.argpartition(ids_N[level], num_level - 1)[:num_level]]
    return np.concatenate((above, level))
