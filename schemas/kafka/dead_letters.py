"""From a refused Kafka message to its dead letter."""

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from schemas.dead_letters import RawRecord, envelope
from schemas.errors import RecordError
from schemas.records import DeadLetter

_TIMESTAMP_KINDS = {TIMESTAMP_CREATE_TIME: "create", TIMESTAMP_LOG_APPEND_TIME: "append"}


def dead_letter(message: Message, error: RecordError, *, part: str, stage: str) -> DeadLetter:
    """Envelope of a refused message: its bytes, key, headers and place, and why it was refused."""
    return envelope(raw_record(message), error, part=part, stage=stage)


def raw_record(message: Message) -> RawRecord:
    """A message as any client would have read it."""
    kind, timestamp_ms = message.timestamp()
    return RawRecord(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        timestamp_ms=timestamp_ms,
        timestamp_kind=_TIMESTAMP_KINDS.get(kind, "none"),
        key=message.key(),
        value=message.value(),
        headers=message_headers(message),
    )


def message_headers(message: Message) -> list[tuple[str, bytes | None]]:
    """Headers of a message in order, values as bytes."""
    headers = message.headers() or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in pairs]
