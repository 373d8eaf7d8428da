"""Numbers that belong to a name: whoever draws for it, wherever and whenever, draws the same."""

from hashlib import blake2b

_BITS = 53


def uniform(name: str, *, purpose: bytes) -> float:
    """A number in [0, 1) for a name, uniform over names; ``purpose`` (at most 16 bytes) keeps its uses independent.

    The top 53 bits of BLAKE2b (RFC 7693), personalised with the purpose. Not the hash of partitions: what is drawn for
    the users of one partition must be as mixed as for those of all.
    """
    digest = blake2b(name.encode(), digest_size=8, person=purpose).digest()
    return (int.from_bytes(digest, "big") >> (64 - _BITS)) * 2.0**-_BITS
