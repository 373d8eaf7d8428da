"""Avro schemas derived from the record types, and bodies in Avro binary.

A record type is the one place where a field stands: its Avro schema, bounds and defaults follow from it.
int -> long, float -> double, str and Literal -> string (so that a vocabulary can grow
without a new schema; the reader checks the word), bytes -> bytes, list -> array, X | None -> [null, X].
"""

import inspect
import io
import struct
from functools import cache
from typing import Any, TypeVar, cast

import fastavro
import msgspec
from fastavro.read import SchemaResolutionError
from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form
from msgspec import Struct

from schemas.body_fields import locate
from schemas.errors import ArrayLengthError, RecordError

NAMESPACE = "intertidal"

R = TypeVar("R", bound=Struct)

# What fastavro raises on bytes that do not follow the schema; anything else is a fault of ours and is not caught.
_TRUNCATED = (EOFError, struct.error)
_MALFORMED = (ValueError, TypeError, KeyError, IndexError, OverflowError, MemoryError, SchemaResolutionError)


@cache
def avro_schema(record_type: type[Struct]) -> dict[str, Any]:
    """Avro schema of a record type as plain JSON data, nested records named once and referred to afterwards."""
    return cast(dict[str, Any], _record_schema(msgspec.inspect.type_info(record_type), set()))


@cache
def parsed_schema(record_type: type[Struct]) -> Any:
    """The schema as fastavro wants it for reading and writing."""
    types: dict[str, Any] = {}
    parsed = parse_schema(avro_schema(record_type), named_schemas=types)
    for named in types.values():
        for field in named["fields"]:
            # Where a writer has no such field fastavro gives the default as it stands: in JSON, bytes are text.
            if field["type"] == "bytes" and isinstance(field.get("default"), str):
                field["default"] = field["default"].encode("latin-1")
    return parsed


@cache
def schema_fingerprint(record_type: type[Struct]) -> bytes:
    """CRC-64-AVRO fingerprint of the parsing canonical form: 8 bytes, little-endian (Avro specification)."""
    return bytes.fromhex(fingerprint(to_parsing_canonical_form(avro_schema(record_type)), "CRC-64-AVRO"))


def encode_body(record: Struct) -> bytes:
    """Avro binary body of a record, without framing."""
    out = io.BytesIO()
    fastavro.schemaless_writer(
        out, parsed_schema(type(record)), msgspec.to_builtins(record, builtin_types=(bytes,)), strict=True
    )
    return out.getvalue()


def decode_body(body: bytes, record_type: type[R], *, writer_schema: Any = None) -> R:
    """Record from an Avro body written with ``writer_schema`` (default: the type's own).

    Raises RecordError with the reason, the field at fault and, for unreadable bytes, the position.
    """
    return validate(decode_plain(body, record_type, writer_schema=writer_schema), record_type)


def decode_plain(body: bytes, record_type: type[Struct], *, writer_schema: Any = None) -> Any:
    """The fields of a body as plain data, not yet held against their bounds; raises RecordError as decode_body."""
    own = parsed_schema(record_type)
    written = own if writer_schema is None else writer_schema
    stream = io.BytesIO(body)
    try:
        data = fastavro.schemaless_reader(stream, written, own)
    except _TRUNCATED as error:
        raise RecordError(
            "truncated",
            f"ends inside a field ({len(body)} bytes)",
            field=_unread_field(body, written),
            position=stream.tell(),
        ) from error
    except _MALFORMED as error:
        raise RecordError(
            "malformed",
            f"{type(error).__name__}: {error}",
            field=_unread_field(body, written),
            position=stream.tell(),
        ) from error
    if stream.tell() != len(body):
        raise RecordError("malformed", f"{len(body) - stream.tell()} bytes behind the record", position=stream.tell())
    return data


def validate(data: Any, record_type: type[R]) -> R:
    """Record from plain data within the bounds of its type; raises RecordError naming the field."""
    try:
        return msgspec.convert(data, record_type, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `")
        # What a record says of its fields together begins with the one at fault.
        said = message.partition(":")[0]
        if isinstance(error.__cause__, ArrayLengthError):
            raise RecordError("length_mismatch", message, field=said) from error
        field = path.rstrip("`").removeprefix("$").removeprefix(".")
        if not field and said in record_type.__struct_fields__:
            field = said
        raise RecordError("invalid_field", message, field=field) from error


def _unread_field(body: bytes, schema: Any) -> str:
    """Path of the field in which reading a body fails; empty where none is to blame."""
    failure = locate(body, schema).failure
    return "" if failure is None else failure.path


def _record_schema(info: msgspec.inspect.Type, known: set[str]) -> dict[str, Any] | str:
    assert isinstance(info, msgspec.inspect.StructType)
    name = info.cls.__name__
    if name in known:
        return f"{NAMESPACE}.{name}"
    known.add(name)
    fields = []
    for field in info.fields:
        described: dict[str, Any] = {
            "name": field.encode_name,
            "type": _field_schema(field.type, known),
        }
        if not field.required:
            described["default"] = _default(field)
        fields.append(described)
    return {
        "type": "record",
        "name": name,
        "namespace": NAMESPACE,
        "doc": inspect.cleandoc(info.cls.__doc__ or ""),
        "fields": fields,
    }


def _default(field: msgspec.inspect.Field) -> Any:
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _field_schema(info: msgspec.inspect.Type, known: set[str]) -> Any:
    match info:
        case msgspec.inspect.IntType():
            return "long"
        case msgspec.inspect.FloatType():
            return "double"
        case msgspec.inspect.BoolType():
            return "boolean"
        case msgspec.inspect.StrType() | msgspec.inspect.LiteralType():
            return "string"
        case msgspec.inspect.BytesType():
            return "bytes"
        case msgspec.inspect.ListType():
            return {"type": "array", "items": _field_schema(info.item_type, known)}
        case msgspec.inspect.UnionType():
            inner = [kind for kind in info.types if not isinstance(kind, msgspec.inspect.NoneType)]
            assert len(inner) == len(info.types) - 1 == 1, "only X | None has a schema"
            return ["null", _field_schema(inner[0], known)]
        case msgspec.inspect.StructType():
            return _record_schema(info, known)
    raise AssertionError(f"no Avro type for {info}")
