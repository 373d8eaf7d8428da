"""Which partition a key leads to: murmur2, as Java producers have it by default."""

from functools import lru_cache

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C


def murmur2(data: bytes) -> int:
    """Unsigned 32-bit MurmurHash2 with Kafka's seed (A. Appleby; org.apache.kafka.common.utils.Utils.murmur2)."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for start in range(0, whole, 4):
        k = (int.from_bytes(data[start : start + 4], "little") * _M) & _MASK
        k = ((k ^ (k >> 24)) * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
    if length > whole:
        h = ((h ^ int.from_bytes(data[whole:], "little")) * _M) & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    return h ^ (h >> 15)


@lru_cache(maxsize=65536)
def partition_for(key: bytes, num_partitions: int) -> int:
    """Partition of a non-null key: (murmur2(key) & 0x7fffffff) mod the number of partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % num_partitions
