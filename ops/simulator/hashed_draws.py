"""Random numbers that belong to a key: the same key always gives the same numbers, and no table holds them.

Shape legend: B keys, K numbers per key.
"""

import numpy as np
from numpy.typing import NDArray

_GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def hashed_bits(keys_B: NDArray[np.int64], num: int, *, seed: int) -> NDArray[np.uint64]:
    """Return `num` 64-bit words per key.

    `seed` separates independent uses of the same keys. Returns uint64 [B, K].
    SplitMix64 (Steele, Lea, Flood 2014), used as a hash: the stream of each key starts at the mixed key,
    so that neighbouring keys do not share shifted streams.
    """
    # One-element array: numpy warns of the intended overflow of scalars, not of arrays.
    seed_1 = np.array([seed], dtype=np.uint64)
    start_B = _mix(keys_B.astype(np.uint64) * _GOLDEN_GAMMA + _mix(seed_1))
    steps_K = np.arange(1, num + 1, dtype=np.uint64) * _GOLDEN_GAMMA
    return _mix(start_B[:, None] + steps_K)


def hashed_uniforms(keys_B: NDArray[np.int64], num: int, *, seed: int) -> NDArray[np.float64]:
    """Return `num` uniform numbers in (0, 1) per key: float64 [B, K]."""
    bits_BK = hashed_bits(keys_B, num, seed=seed)
    # The half keeps zero out: its logarithm is taken below.
    return ((bits_BK >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def normals_from_uniforms(uniforms_BK: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn an even number of uniforms per key into standard normals (Box and Muller 1958): float64 [B, K]."""
    half = uniforms_BK.shape[1] // 2
    radius_BK = np.sqrt(-2.0 * np.log(uniforms_BK[:, :half]))
    angle_BK = 2.0 * np.pi * uniforms_BK[:, half:]
    return np.concatenate((radius_BK * np.cos(angle_BK), radius_BK * np.sin(angle_BK)), axis=1)


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    words = (words ^ (words >> np.uint64(30))) * _MIX_1
    words = (words ^ (words >> np.uint64(27))) * _MIX_2
    return words ^ (words >> np.uint64(31))
