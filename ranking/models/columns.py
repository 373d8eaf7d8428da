"""How ids, bids and retrieval scores become numbers, alike in every model of the project."""

from torch import Tensor

# 2^64 divided by the golden ratio, as int64. Fibonacci hashing (Knuth, TAOCP 3, 6.4): neighbouring ids spread out.
_HASH_FACTOR = 0x9E3779B97F4A7C15 - 2**64
# Retrieval scores beyond this say no more; a wild one must not saturate the network.
_RETRIEVAL_LIMIT = 32.0
_SMALLEST_BID = 1e-6


def buckets(ad_ids_N: Tensor, bits: int) -> Tensor:
    """The row of each ad id in an embedding of 2^bits rows: int64 [N]."""
    # The arithmetic shift of a negative hash is harmless: the mask keeps the low bits only.
    return ((ad_ids_N * _HASH_FACTOR) >> (64 - bits)) & ((1 << bits) - 1)


def scalars(retrieval_scores_N: Tensor, bids_N: Tensor) -> tuple[Tensor, Tensor]:
    """The bounded retrieval score and the logarithm of the bid: two float32 [N, 1].

    Retrieval ranks by value; with the bid beside it, a network can tell what it says of the click.
    """
    return (
        retrieval_scores_N.clamp(-_RETRIEVAL_LIMIT, _RETRIEVAL_LIMIT).unsqueeze(1),
        bids_N.clamp(min=_SMALLEST_BID).log().unsqueeze(1),
    )
