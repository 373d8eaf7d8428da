"""From a refused record to its dead letter. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.errors import RecordError
from schemas.records import DeadLetter, RawHeader

ATTEMPT_HEADER = "intertidal.attempt"
MAX_FIELD_CHARS = 256
MAX_DETAIL_CHARS = 4096

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
    """Dead letter of a refused record: its bytes, key, headers and place, and why it was refused."""
    return DeadLetter(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        timestamp_kind=record.timestamp_kind,
        key=record.key,
        value=record.value,
        headers=[RawHeader(key=name, value=value) for name, value in record.headers],
        part=part,
        stage=stage,
        reason=error.reason,
        field=error.field[:MAX_FIELD_CHARS],
        detail=error.detail[:MAX_DETAIL_CHARS],
        position=error.position,
        attempt=_attempt(record.headers),
    )


def dead_letter_key(letter: DeadLetter) -> bytes:
    """Place of the original record: the same letter written twice after a crash has the same key."""
    return f"{letter.topic}/{letter.partition}/{letter.offset}".encode()


def _attempt(headers: Headers) -> int:
    for name, value in headers:
        if name == ATTEMPT_HEADER and value is not None and value.isdigit():
            return int(value)
    return 0
