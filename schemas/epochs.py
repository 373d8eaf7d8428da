"""Who of several senders speaks last: the fencing epoch of a record, in a header.

A header and not a field, as a record's bytes must be the same after every replay, whoever sends it.
"""

from typing import Final

from schemas.dead_letters import Headers
from schemas.errors import RecordError

EPOCH_HEADER: Final = "intertidal.epoch"
# Of a sender that says none: whoever says one is later.
NO_EPOCH: Final = 0
# No time in milliseconds of the next million years is longer.
_MAX_DIGITS: Final = 18


def epoch_header(epoch: int) -> tuple[str, bytes]:
    """The epoch as a Kafka header: decimal digits."""
    return EPOCH_HEADER, str(epoch).encode()


def epoch_of(headers: Headers) -> int:
    """Epoch in the headers of a record, NO_EPOCH where there is none; raises RecordError for one that is no number."""
    for name, value in headers:
        if name != EPOCH_HEADER:
            continue
        if value is None or not value.isdigit() or len(value) > _MAX_DIGITS:
            raise RecordError("invalid_field", f"{(value or b'')[:32]!r} is no epoch", field=f"headers.{EPOCH_HEADER}")
        return int(value)
    return NO_EPOCH
