"""From a refused record to its dead letter. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.errors import RecordError
from schemas.records import DeadLetter, RawHeader

ATTEMPT_HEADER = "intertidal.attempt"
MAX_FIELD_CHARS = 256
MAX_DETAIL_CHARS = 4096
# An envelope must fit its topic whatever it holds: what is longer is cut, and the letter says so.
MAX_KEPT_BYTES = 1 << 20
MAX_KEPT_HEADERS = 64
MAX_HEADER_NAME_CHARS = 1024
MAX_KEPT_HEADER_BYTES = 1 << 12
MAX_ATTEMPT_DIGITS = 9

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, kw_only=True)
class RawRecord:
    """One Kafka record as it was read, by any client; ``timestamp_kind`` is ``create``, ``append`` or ``none``."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_kind: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def envelope(record: RawRecord, error: RecordError, *, part: str, stage: str) -> DeadLetter:
    """Dead letter of a refused record: its bytes, key, headers and place, and why it was refused.

    What no record of ours can be (a value or key over 1 MiB, headers without end) is cut, and ``detail`` says so; the
    whole record stays at its place for as long as its topic keeps it.
    """
    cut = _cut(record)
    detail = f"{error.detail} ({cut})" if cut else error.detail
    return DeadLetter(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        timestamp_kind=record.timestamp_kind,
        key=_kept(record.key, MAX_KEPT_HEADER_BYTES),
        value=_kept(record.value, MAX_KEPT_BYTES),
        headers=[
            RawHeader(key=name[:MAX_HEADER_NAME_CHARS], value=_kept(value, MAX_KEPT_HEADER_BYTES))
            for name, value in record.headers[:MAX_KEPT_HEADERS]
        ],
        part=part,
        stage=stage,
        reason=error.reason,
        field=error.field[:MAX_FIELD_CHARS],
        detail=detail[:MAX_DETAIL_CHARS],
        position=error.position,
        attempt=_attempt(record.headers),
    )


def dead_letter_key(letter: DeadLetter) -> bytes:
    """Place of the original record: the same letter written twice after a crash has the same key."""
    return f"{letter.topic}/{letter.partition}/{letter.offset}".encode()


def _kept(packed: bytes | None, limit_bytes: int) -> bytes | None:
    return packed if packed is None else packed[:limit_bytes]


def _cut(record: RawRecord) -> str:
    """What an envelope cannot hold whole, in words; empty where it holds everything."""
    cut = []
    if len(record.value or b"") > MAX_KEPT_BYTES:
        cut.append(f"value cut from {len(record.value or b'')} bytes")
    if len(record.key or b"") > MAX_KEPT_HEADER_BYTES:
        cut.append(f"key cut from {len(record.key or b'')} bytes")
    long = any(len(value or b"") > MAX_KEPT_HEADER_BYTES for _, value in record.headers)
    if long or len(record.headers) > MAX_KEPT_HEADERS:
        cut.append(f"headers cut, there were {len(record.headers)}")
    return ", ".join(cut)


def _attempt(headers: Headers) -> int:
    for name, value in headers:
        # No number of ours is longer; another's may be longer than any integer on the wire.
        if name == ATTEMPT_HEADER and value is not None and value.isdigit() and len(value) <= MAX_ATTEMPT_DIGITS:
            return int(value)
    return 0
