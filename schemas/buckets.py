"""Buckets of users: sums are kept by bucket, so that intervals respect that a user's requests are alike. Pure."""

from hashlib import blake2b
from typing import Final

NUM_BUCKETS: Final = 64


def bucket_of(user_id: str) -> int:
    """Bucket of a user in [0, 64), independent of the hashes that draw arms and partitions."""
    return blake2b(user_id.encode(), digest_size=8, person=b"bucket").digest()[0] % NUM_BUCKETS
