"""The contract as an AsyncAPI 3 document: channels, messages, keys and operations by part. Pure.

Everything in it comes from ``schemas.topics``, ``schemas.records`` and ``schemas.parts``
(https://www.asyncapi.com/docs/reference/specification/v3.0.0, Kafka bindings 0.5.0).
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from schemas.avro import avro_schema, schema_fingerprint
from schemas.epochs import EPOCH_HEADER
from schemas.parts import PARTS, Part
from schemas.records import (
    CandidateTarget,
    ClockRecord,
    ControllerSnapshot,
    ControlWindow,
    DeadLetter,
    PoolSnapshot,
    RankingAnswer,
    RankingRequest,
    RankingResult,
    RankingWork,
)
from schemas.registered import contract_types
from schemas.topics import DEAD_LETTER_PARTITIONS, DEAD_LETTER_TYPES, TOPICS, Topic, dead_letter_config
from schemas.tracing import TRACEPARENT

SPECIFICATION: Final = "3.0.0"
BINDING: Final = "0.5.0"
AVRO_FORMAT: Final = "application/vnd.apache.avro+json;version=1.9.0"
# As the Avro specification calls a binary body in HTTP; the frame before it stands in each message's description.
CONTENT_TYPE: Final = "avro/binary"

Json = dict[str, Any]

_KEYS: Final = {
    "cell": "The record's cell",
    "cell/accelerator": "The record's cell and accelerator, joined by a slash",
    "cell/segment": "The record's cell and segment, joined by a slash",
    "user": "The record's user_id",
}
_PLACE_KEY: Final = "Place of the refused record: topic/partition/offset"
_FRAME: Final = (
    "Framed as Avro single-object encoding (C3 01, fingerprint, body), or in the Confluent wire format (00, schema id, "
    "body) where a Schema Registry is configured; readers accept both."
)
_EPOCH: Final = (
    "Start of the sender in milliseconds, or one more than the epoch of the controller that it took over from; decimal"
)
_TRACED: Final = frozenset({RankingRequest, RankingWork, RankingAnswer, RankingResult})
# Whose sender's epoch stands in a header and never in the bytes: whoever sends the record, it is the same one.
_FENCED: Final = frozenset({ControlWindow, CandidateTarget, ClockRecord, ControllerSnapshot, PoolSnapshot})


def asyncapi_document() -> Json:
    """The document as plain JSON data, in the order of the contract."""
    kinds = contract_types()
    return {
        "asyncapi": SPECIFICATION,
        "info": {
            "title": "Intertidal",
            "version": "1",
            "description": (
                "Topics of one pipeline. Names are those of the live pipeline; INTERTIDAL_NAMESPACE puts a prefix "
                "before each. Keys lead to partitions by murmur2, times are milliseconds since the Unix epoch."
            ),
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": CONTENT_TYPE,
        "servers": {
            "kafka": {
                "host": "{bootstrap}",
                "protocol": "kafka",
                "variables": {"bootstrap": {"default": "127.0.0.1:9092", "description": "KAFKA_BOOTSTRAP"}},
            }
        },
        "channels": dict(_channels()),
        "operations": dict(_operations()),
        "components": {
            "messages": {kind.__name__: _message(kind) for kind in kinds},
            "schemas": {kind.__name__: _schema(kind) for kind in kinds},
        },
    }


def render(document: Json) -> str:
    """The document as it is committed."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def differences(committed: Any, current: Any, *, at: str = "") -> Iterator[str]:
    """Places (JSON pointers) at which a committed document differs from the current one, and how."""
    if isinstance(committed, dict) and isinstance(current, dict):
        for name in sorted(committed.keys() | current.keys()):
            place = f"{at}/{name.replace('~', '~0').replace('/', '~1')}"
            if name not in committed:
                yield f"{place}: missing"
            elif name not in current:
                yield f"{place}: no longer in the contract"
            else:
                yield from differences(committed[name], current[name], at=place)
    elif isinstance(committed, list) and isinstance(current, list) and len(committed) == len(current):
        for index, (before, now) in enumerate(zip(committed, current, strict=True)):
            yield from differences(before, now, at=f"{at}/{index}")
    elif committed != current:
        yield f"{at or '/'}: is {_short(committed)}, should be {_short(current)}"


def _channels() -> Iterator[tuple[str, Json]]:
    for topic in TOPICS:
        yield (
            topic.name,
            {
                "address": topic.name,
                "description": topic.purpose,
                "messages": _message_refs(topic.record_types),
                "bindings": {"kafka": _channel_binding(topic.num_partitions, topic.config())},
                "x-key": topic.key,
                "x-dead-letters": topic.dead_letters,
            },
        )
    for topic in TOPICS:
        yield (
            topic.dead_letters,
            {
                "address": topic.dead_letters,
                "description": f"Records of {topic.name} that could not be read or believed, with the reason",
                "messages": _message_refs(DEAD_LETTER_TYPES),
                "bindings": {"kafka": _channel_binding(DEAD_LETTER_PARTITIONS, dead_letter_config())},
                "x-key": "topic/partition/offset",
            },
        )


def _channel_binding(num_partitions: int, config: dict[str, str]) -> Json:
    settings: Json = {name: int(value) if value.isdecimal() else value for name, value in config.items()}
    # The binding has a list here, as the broker takes "compact,delete".
    settings["cleanup.policy"] = config["cleanup.policy"].split(",")
    return {"partitions": num_partitions, "topicConfiguration": settings, "bindingVersion": BINDING}


def _message_refs(record_types: tuple[type[Struct], ...]) -> Json:
    return {kind.__name__: {"$ref": f"#/components/messages/{kind.__name__}"} for kind in record_types}


def _operations() -> Iterator[tuple[str, Json]]:
    for part in PARTS:
        for topic in dict.fromkeys((*part.sends, *part.clocks)):
            yield f"{part.name}.send.{topic.name}", _operation(part, "send", topic)
        for topic in part.receives:
            yield f"{part.name}.receive.{topic.name}", _operation(part, "receive", topic)
        for topic in part.refuses:
            yield (
                f"{part.name}.send.{topic.dead_letters}",
                {
                    "action": "send",
                    "channel": {"$ref": f"#/channels/{topic.dead_letters}"},
                    "summary": f"The {part.name} refuses what it cannot read or believe",
                    "tags": [{"name": part.name}],
                },
            )


def _operation(part: Part, action: str, topic: Topic) -> Json:
    kinds = [
        kind
        for kind in topic.record_types
        if action == "receive" or topic in (part.clocks if kind is ClockRecord else part.sends)
    ]
    return {
        "action": action,
        "channel": {"$ref": f"#/channels/{topic.name}"},
        "summary": part.purpose,
        "tags": [{"name": part.name}],
        "messages": [{"$ref": f"#/channels/{topic.name}/messages/{kind.__name__}"} for kind in kinds],
    }


def _message(record_type: type[Struct]) -> Json:
    doc = str(avro_schema(record_type)["doc"])
    message: Json = {
        "name": record_type.__name__,
        "summary": doc.partition("\n")[0],
        "description": _FRAME,
        "contentType": CONTENT_TYPE,
        "payload": {"$ref": f"#/components/schemas/{record_type.__name__}"},
        "x-avro-fingerprint": schema_fingerprint(record_type).hex(),
    }
    if headers := _headers(record_type):
        message["headers"] = {"type": "object", "properties": headers}
    if key := _key(record_type):
        message["bindings"] = {"kafka": {"key": {"type": "string", "description": key}, "bindingVersion": BINDING}}
    return message


def _headers(record_type: type[Struct]) -> Json:
    if record_type in _TRACED:
        return {TRACEPARENT: {"type": "string", "description": "W3C trace context of the request"}}
    if record_type in _FENCED:
        return {EPOCH_HEADER: {"type": "string", "description": _EPOCH}}
    return {}


def _key(record_type: type[Struct]) -> str | None:
    if record_type is DeadLetter:
        return _PLACE_KEY
    # It speaks to a partition, whatever the keys in it.
    if record_type is ClockRecord:
        return None
    kinds = {topic.key for topic in TOPICS if record_type in topic.record_types}
    assert len(kinds) == 1, f"{record_type.__name__} has one key wherever it stands"
    return _KEYS.get(kinds.pop())


def _schema(record_type: type[Struct]) -> Json:
    return {"schemaFormat": AVRO_FORMAT, "schema": avro_schema(record_type)}


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."
