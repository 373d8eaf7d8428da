"""Field types shared by the records, with the bounds that a believable value keeps.

A float bounded on both sides also refuses NaN and infinities: no comparison with NaN holds.
"""

from typing import Annotated, Literal

from msgspec import Meta

from schemas.errors import ArrayLengthError

CellName = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[a-z0-9][a-z0-9._-]*$")]
Name = Annotated[str, Meta(min_length=1, max_length=256)]
Label = Annotated[str, Meta(max_length=256)]
Text = Annotated[str, Meta(max_length=4096)]
Count = Annotated[int, Meta(ge=0, le=2**62)]
MAX_TIME_MS = 2**53
TimeMs = Annotated[int, Meta(ge=0, le=MAX_TIME_MS)]
WindowIndex = Annotated[int, Meta(ge=0, le=2**53)]
Partition = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Quantity = Annotated[float, Meta(ge=0.0, le=1e12)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Finite = Annotated[float, Meta(ge=-1e300, le=1e300)]
Money = Annotated[float, Meta(ge=-1e12, le=1e12)]
Packed = Annotated[bytes, Meta(max_length=1 << 20)]
Body = Annotated[bytes, Meta(max_length=1 << 22)]

Route = Literal["baseline", "wide", "powerful"]
Lever = Literal["rma", "sbm", "precompute"]
IdleCause = Literal["off_peak", "ahead_of_models", "region_imbalance", "not_ported"]
UnusableReason = Literal["model_format", "memory", "missing_cpu", "too_short"]

INT64_BYTES = 8
FLOAT32_BYTES = 4


def packed_length(packed: bytes, item_bytes: int, *, field: str) -> int:
    """Number of items in a packed little-endian array; raises ArrayLengthError naming ``field`` when it is ragged."""
    count, rest = divmod(len(packed), item_bytes)
    if rest:
        raise ArrayLengthError(f"{field}: {len(packed)} bytes are not a whole number of {item_bytes}-byte items")
    return count


def require_length(packed: bytes, item_bytes: int, expected: int, *, field: str) -> None:
    """Raise ArrayLengthError naming ``field`` unless the packed array holds exactly ``expected`` items."""
    count = packed_length(packed, item_bytes, field=field)
    if count != expected:
        raise ArrayLengthError(f"{field}: {count} items where {expected} are expected")
