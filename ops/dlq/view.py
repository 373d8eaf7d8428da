"""One dead letter as it is shown: what of the record could be read, and the byte and field where it failed. Pure."""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import Struct

from ops.dlq.hexdump import hexdump
from ops.dlq.letters import Letter
from ops.record_json import plain_to_json
from ops.times import iso_time
from schemas.avro import decode_plain, parsed_schema
from schemas.body_fields import Span, locate
from schemas.errors import RecordError, SchemaPendingError
from schemas.framing import Decoder
from schemas.topics import Topic

_MAX_PLACES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What is known of the bytes of a refused record.

    ``record`` is the whole of it as JSON where it can be decoded, believable or not; ``partial`` what could be read of
    it otherwise. ``places`` are those of the field that is to blame; positions count from the value's first byte.
    """

    record_type: type[Struct] | None = None
    record: dict[str, Any] | None = None
    partial: dict[str, Any] | None = None
    places: tuple[Span, ...] = ()
    position: int | None = None
    why: str = ""


def content_of(letter: Letter, topic: Topic) -> Content:
    """Read the bytes of a letter as far as it goes."""
    if letter.letter is None or letter.letter.value is None:
        return Content(why=letter.why or "no value")
    value = letter.letter.value
    try:
        record_type, writer_schema, header_bytes = Decoder(topic.record_types).frame_of(value)
    except (RecordError, SchemaPendingError) as error:
        return Content(position=getattr(error, "position", None) or 0, why=str(error))
    body = value[header_bytes:]
    found = locate(body, parsed_schema(record_type) if writer_schema is None else writer_schema)
    spans = (Span(span.path, header_bytes + span.start, header_bytes + span.end) for span in found.spans)
    try:
        plain = decode_plain(body, record_type, writer_schema=writer_schema)
    except RecordError as error:
        failure = found.failure
        position = error.position if failure is None else failure.position
        return Content(
            record_type=record_type,
            partial=plain_to_json(found.data, record_type),
            places=()
            if failure is None
            else (Span(failure.path, header_bytes + failure.start, header_bytes + failure.position),),
            position=None if position is None else header_bytes + position,
            why=error.detail if failure is None else failure.why,
        )
    places = tuple(span for span in spans if letter.field and _is_at(span.path, letter.field))[:_MAX_PLACES]
    return Content(
        record_type=record_type,
        record=plain_to_json(plain, record_type),
        places=places,
        position=places[0].start if places else letter.letter.position,
    )


def to_json(letter: Letter, topic: Topic, *, is_done: bool) -> dict[str, Any]:
    """As `intertidal dlq show --json` prints it: ``record`` may be repaired and handed to `redrive --repaired`."""
    said = letter.letter
    shown: dict[str, Any] = {
        "dead_letters": topic.dead_letters,
        "partition": letter.partition,
        "offset": letter.offset,
        "time": iso_time(letter.append_ms),
        "is_done": is_done,
        "reason": letter.reason,
        "field": letter.field,
        "detail": letter.why if said is None else said.detail,
    }
    if said is None:
        return shown
    content = content_of(letter, topic)
    return shown | {
        "position": said.position,
        "part": said.part,
        "stage": said.stage,
        "attempt": said.attempt,
        "origin": {
            "topic": said.topic,
            "partition": said.partition,
            "offset": said.offset,
            "time": iso_time(said.timestamp_ms),
            "time_kind": said.timestamp_kind,
        },
        "key": None if said.key is None else _text(said.key),
        "headers": [
            {"name": header.key, "value": None if header.value is None else _text(header.value)}
            for header in said.headers
        ],
        "value": None if said.value is None else base64.b64encode(said.value).decode(),
        "type": None if content.record_type is None else content.record_type.__name__,
        "record": content.record,
        "partial": content.partial,
        "failed": None
        if content.position is None
        else {
            "position": content.position,
            "why": content.why,
            "places": [{"field": at.path, "start": at.start, "end": at.end} for at in content.places],
        },
    }


def lines(letter: Letter, topic: Topic, *, is_done: bool) -> Iterator[str]:
    """The same for a person, with the bytes around the place where it failed."""
    shown = to_json(letter, topic, is_done=is_done)
    yield f"{topic.dead_letters}[{letter.partition}] {letter.offset}, {shown['time']}{', done' if is_done else ''}"
    field = f" in {letter.field}" if letter.field else ""
    yield f"  {letter.reason}{field}: {shown['detail']}"
    said = letter.letter
    if said is None:
        return
    origin = shown["origin"]
    yield (
        f"  refused by {said.part} ({said.stage}), redriven {said.attempt} times; "
        f"it was {origin['topic']}[{origin['partition']}] {origin['offset']} of {origin['time']}"
    )
    yield f"  key {shown['key']!r}"
    for header in shown["headers"]:
        yield f"  header {header['name']} {header['value']!r}"
    data = shown["partial"] if shown["record"] is None else shown["record"]
    if data is not None:
        words = "what could be read of it" if shown["record"] is None else "the record"
        yield f"  {shown['type']}, {words}:"
        yield from ("    " + line for line in msgspec.json.format(msgspec.json.encode(data)).decode().splitlines())
    failed = shown["failed"]
    if failed is not None:
        places = ", ".join(f"{at['field']} (bytes {at['start']} to {at['end']})" for at in failed["places"])
        size_bytes = len(said.value or b"")
        yield f"  at byte {failed['position']} of {size_bytes}: {places or 'no field'} {failed['why']}".rstrip()
        yield from ("    " + line for line in hexdump(said.value or b"", at=failed["position"]))


def _is_at(path: str, field: str) -> bool:
    """Whether a value lies at a field or within it."""
    return path == field or path.startswith((f"{field}.", f"{field}["))


def _text(packed: bytes) -> str:
    return packed.decode("utf-8", "backslashreplace")
