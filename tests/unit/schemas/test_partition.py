"""Keys lead where Java producers and librdkafka's murmur2 lead them."""

import pytest

from schemas.partition import murmur2, partition_for


# Vectors of Apache Kafka's own UtilsTest, as signed 32-bit integers.
@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF


def test_partition_is_taken_from_the_positive_hash() -> None:
    assert partition_for(b"21", 8) == (-973932308 & 0x7FFFFFFF) % 8
