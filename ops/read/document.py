"""What is in a line of `intertidal read`, as a JSON Schema: `python -m ops.read.document > docs/read.schema.json`."""

import inspect
import json
from typing import Any

import msgspec
from msgspec import Struct

from ops.read.rows import LOG_COLUMNS, STANDING_COLUMN
from ops.read.topics import readable_topics
from ops.record_json import PACKED
from schemas.records import RankingResult
from schemas.topics import Namespace

_OF_THE_LOG: dict[str, Any] = {
    "_record": {"type": "string"},
    "_partition": {"type": "integer"},
    "_offset": {"type": "integer"},
    "_time_ms": {"type": "integer", "description": "the broker's append time, milliseconds since the Unix epoch"},
    "_key": {"type": ["string", "null"]},
}
# What JSON has no number for.
_WORDS = ("NaN", "Infinity", "-Infinity")


def line_schema() -> dict[str, Any]:
    """Schema of a line: one of the record types, told apart by ``_record``, or a key that was deleted."""
    record_types = {
        record_type.__name__: record_type
        for topic in readable_topics(Namespace()).values()
        for record_type in topic.record_types
    }
    assert _OF_THE_LOG.keys() == LOG_COLUMNS.keys()
    deleted = {**_OF_THE_LOG, "_record": {"type": "null"}}
    inner: dict[str, Any] = {}
    lines = [_line(record_type, inner) for _, record_type in sorted(record_types.items())]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of intertidal read",
        "description": "One record of a topic, or null as _record where a compacted topic says that its key is gone. "
        "Every field of the record is there; later versions may add some.",
        "oneOf": [{"type": "object", "properties": deleted, "required": list(deleted)}, *lines],
        "$defs": dict(sorted(inner.items())),
    }


def _line(record_type: type[Struct], inner: dict[str, Any]) -> dict[str, Any]:
    own = {**_OF_THE_LOG, "_record": {"const": record_type.__name__}}
    if record_type is RankingResult:
        own[STANDING_COLUMN] = {"enum": ["ok", "late", "degraded", "error"]}
    return _object(msgspec.inspect.type_info(record_type), own, inner)


def _object(info: msgspec.inspect.Type, own: dict[str, Any], inner: dict[str, Any]) -> dict[str, Any]:
    assert isinstance(info, msgspec.inspect.StructType)
    properties = own | {field.name: _value(field.type, (info.cls.__name__, field.name), inner) for field in info.fields}
    return {
        "type": "object",
        "description": inspect.cleandoc(info.cls.__doc__ or ""),
        "properties": properties,
        "required": list(properties),
    }


def _value(info: msgspec.inspect.Type, place: tuple[str, str], inner: dict[str, Any]) -> dict[str, Any]:
    """Schema of a field; records inside of records are added to ``inner`` and referred to."""
    match info:
        case msgspec.inspect.IntType():
            return {"type": "integer"}
        case msgspec.inspect.FloatType():
            return {"type": "number"}
        case msgspec.inspect.BoolType():
            return {"type": "boolean"}
        case msgspec.inspect.StrType() | msgspec.inspect.LiteralType():
            return {"type": "string"}
        case msgspec.inspect.BytesType():
            base64 = {"type": "string", "contentEncoding": "base64"}
            if place not in PACKED:
                return base64
            is_whole = PACKED[place].kind == "i"
            item = {"type": "integer"} if is_whole else {"anyOf": [{"type": "number"}, {"enum": list(_WORDS)}]}
            # What is no whole number of items is base64 as well.
            return {"anyOf": [{"type": "array", "items": item}, base64]}
        case msgspec.inspect.ListType():
            return {"type": "array", "items": _value(info.item_type, place, inner)}
        case msgspec.inspect.UnionType():
            (kind,) = (kind for kind in info.types if not isinstance(kind, msgspec.inspect.NoneType))
            return {"anyOf": [_value(kind, place, inner), {"type": "null"}]}
        case msgspec.inspect.StructType():
            if info.cls.__name__ not in inner:
                inner[info.cls.__name__] = _object(info, {}, inner)
            return {"$ref": f"#/$defs/{info.cls.__name__}"}
    raise AssertionError(f"no JSON type for {info}")


if __name__ == "__main__":
    print(json.dumps(line_schema(), indent=2))
