"""From a refused Kafka message to its dead letter."""

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from schemas.errors import RecordError
from schemas.records import DeadLetter, RawHeader

ATTEMPT_HEADER = "intertidal.attempt"
_TIMESTAMP_KINDS = {TIMESTAMP_CREATE_TIME: "create", TIMESTAMP_LOG_APPEND_TIME: "append"}


def dead_letter(message: Message, error: RecordError, *, part: str, stage: str) -> DeadLetter:
    """Envelope of a refused message: its bytes, key, headers and place, and why it was refused."""
    kind, timestamp_ms = message.timestamp()
    headers = message_headers(message)
    return DeadLetter(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        timestamp_ms=timestamp_ms,
        timestamp_kind=_TIMESTAMP_KINDS.get(kind, "none"),
        key=message.key(),
        value=message.value(),
        headers=[RawHeader(key=name, value=value) for name, value in headers],
        part=part,
        stage=stage,
        reason=error.reason,
        field=error.field[:256],
        detail=error.detail[:4096],
        position=error.position,
        attempt=_attempt(headers),
    )


def dead_letter_key(letter: DeadLetter) -> bytes:
    """Place of the original record: the same letter written twice after a crash has the same key."""
    return f"{letter.topic}/{letter.partition}/{letter.offset}".encode()


def message_headers(message: Message) -> list[tuple[str, bytes | None]]:
    """Headers of a message in order, values as bytes."""
    headers = message.headers() or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in pairs]


def _attempt(headers: list[tuple[str, bytes | None]]) -> int:
    for name, value in headers:
        if name == ATTEMPT_HEADER and value is not None and value.isdigit():
            return int(value)
    return 0
