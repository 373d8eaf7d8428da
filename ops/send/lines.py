"""Lines of a stream, numbered, and the record that each says. Pure but for the reading."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

import msgspec
from msgspec import Struct

from ops.intake import Intake, key_of
from ops.record_json import from_json
from schemas.dead_letters import RawRecord
from schemas.errors import RecordError
from schemas.framing import frame
from schemas.partition import partition_for
from schemas.topics import Topic

# A record of a mebibyte is less than this, however its numbers are written.
MAX_LINE_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """One line, or a piece of one that is longer than any record; ``number`` counts lines from 1."""

    number: int
    text: bytes
    is_first: bool
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record as it is sent."""

    key: bytes | None
    partition: int
    value: bytes


def pieces(stream: BinaryIO, *, max_bytes: int = MAX_LINE_BYTES) -> Iterator[Piece]:
    """Every line that is not blank; at most ``max_bytes`` are held, however long one is."""
    number = 1
    is_first = True
    while text := stream.readline(max_bytes):
        ends = text.endswith(b"\n") or len(text) < max_bytes
        if not is_first or not ends or text.strip():
            yield Piece(number, text, is_first, is_whole=is_first and ends)
        is_first = ends
        number += ends


def outgoing(text: bytes, topic: Topic, intake: Intake, *, partition: int | None, now_ms: int) -> Outgoing:
    """The record of one line as its topic wants it; raises RecordError, naming the field.

    ``partition`` is for topics whose senders choose it; on all others the key does.
    """
    record = record_of(text, topic)
    key = key_of(topic, record)
    if partition is None:
        partition = partition_for(key or b"", intake.num_partitions(topic))
    value = frame(record)
    intake.check(
        topic,
        RawRecord(
            topic=topic.name,
            partition=partition,
            offset=0,
            timestamp_ms=now_ms,
            timestamp_kind="append",
            key=key,
            value=value,
        ),
    )
    return Outgoing(key, partition, value)


def record_of(text: bytes, topic: Topic) -> Struct:
    """The record that a line of JSON says; raises RecordError.

    What `intertidal read` puts beside the fields begins with an underscore, and is of the log that it was read from.
    """
    try:
        data = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError("malformed", f"no JSON: {error}") from None
    record_type = topic.record_types[0]
    if isinstance(data, dict):
        name = data.get("_record", record_type.__name__)
        if name != record_type.__name__:
            raise RecordError("invalid_field", f"{name} is none to send, {record_type.__name__} is", field="_record")
        data = {key: value for key, value in data.items() if not key.startswith("_")}
    return from_json(record_type, data)


def complaint(number: int, error: RecordError) -> str:
    """What is wrong with a line: its number, the field where one is to blame, and why."""
    field = f"{error.field}: " if error.field else ""
    return " ".join(f"line {number}: {field}{error.reason}: {error.detail}".split())
