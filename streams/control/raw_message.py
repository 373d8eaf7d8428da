"""From a message of the stream library to the record that any client would have read."""

from typing import Any

from schemas.dead_letters import RawRecord

_TIMESTAMP_KINDS = {0: "create", 1: "append"}


def raw_record(message: Any) -> RawRecord:
    """The record in a message of Faust."""
    return RawRecord(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        timestamp_ms=round(message.timestamp * 1000),
        timestamp_kind=_TIMESTAMP_KINDS.get(message.timestamp_type, "none"),
        key=message.key,
        value=message.value,
        headers=tuple(message.headers or ()),
    )
