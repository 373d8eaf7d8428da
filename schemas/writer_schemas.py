"""Schemas that others have registered: whether we can read what they write, and what is known of each id. Pure."""

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fastavro.schema import SchemaParseException, UnknownType, parse_schema
from msgspec import Struct

from schemas.avro import parsed_schema
from schemas.compatibility.resolution import disagreements
from schemas.errors import RecordError
from schemas.registered import registered_schema, subject

MAX_SCHEMA_CHARS: Final = 1 << 18
# Deeper than any record of ours, and far from where a recursive reader of schemas runs out of stack.
MAX_SCHEMA_DEPTH: Final = 32
# With each name written out: names can double a schema at every line. Ours have some 200.
MAX_SCHEMA_TYPES: Final = 10_000
MAX_KNOWN: Final = 1_024
MAX_REFUSED: Final = 4_096
REFUSED_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """A schema that records may be written with: the name of the record and the schema as fastavro wants it."""

    record: str
    schema: Any


def readable(text: str, record_types: Mapping[str, type[Struct]]) -> WriterSchema:
    """A registered schema that one of our record types can read; raises ValueError that says why none can.

    ``record_types`` are ours by subject. What a foreign schema could do to a reader is ruled out here, once per schema
    and before a record is touched: a huge or deep one, one that contains itself or doubles at
    every name, and items of no bytes, of which a
    record of a kilobyte may claim to hold a billion.
    """
    if len(text) > MAX_SCHEMA_CHARS:
        raise ValueError(f"is {len(text)} characters long, at most {MAX_SCHEMA_CHARS} are read")
    if _nesting(text) > MAX_SCHEMA_DEPTH:
        raise ValueError(f"is nested more than {MAX_SCHEMA_DEPTH} deep")
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise ValueError(f"is no JSON: {error}") from None
    if not isinstance(schema, dict):
        raise ValueError("is no record")
    name = _full_name(schema)
    record_type = record_types.get(name)
    if record_type is None:
        raise ValueError(f"is {name or 'no record'}, which is none of ours")
    own = registered_schema(record_type)
    if schema == own:
        return WriterSchema(record_type.__name__, parsed_schema(record_type))
    types: dict[str, Any] = {}
    try:
        parsed = parse_schema(_without_logical_types(schema), named_schemas=types)
        found = disagreements(own, schema)
    except (SchemaParseException, UnknownType, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"is no Avro schema: {type(error).__name__}: {error}") from None
    if found:
        raise ValueError(f"is {name} as it cannot be read here: {found[0]}")
    num_types = _Bounds(types).size(parsed)
    if num_types > MAX_SCHEMA_TYPES:
        raise ValueError(f"is made of {num_types} types, at most {MAX_SCHEMA_TYPES} are read")
    return WriterSchema(record_type.__name__, parsed)


class SchemaTable:
    """What is known of the ids of one registry: schemas, which never change, and refusals, which expire.

    Both are bounded: of schemas the one least recently used goes, but never one of our own; of refusals the oldest.
    """

    def __init__(self, *, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._own: dict[int, WriterSchema] = {}
        self._known: OrderedDict[int, WriterSchema] = OrderedDict()
        self._refused: OrderedDict[int, tuple[float, str]] = OrderedDict()

    def own(self, schema_id: int, record_type: type[Struct]) -> None:
        """Note the id of one of our current schemas."""
        self._own[schema_id] = WriterSchema(record_type.__name__, parsed_schema(record_type))

    def find_own(self, schema_id: int) -> WriterSchema | None:
        """One of our current schemas, None for any other id; needs no lock, as these are noted once, at the start."""
        return self._own.get(schema_id)

    def know(self, schema_id: int, schema: WriterSchema) -> None:
        """Note what an id stands for."""
        self._known[schema_id] = schema
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)

    def refuse(self, schema_id: int, why: str) -> None:
        """Note that an id leads to nothing that can be read, for a while."""
        self._refused.pop(schema_id, None)
        self._refused[schema_id] = (self._clock_s() + REFUSED_S, why)
        while len(self._refused) > MAX_REFUSED:
            self._refused.popitem(last=False)

    def find(self, schema_id: int) -> WriterSchema | None:
        """Schema of an id; None when nothing is known of it.

        Raises RecordError for an id that leads to nothing that can be read.
        """
        known = self._own.get(schema_id)
        if known is not None:
            return known
        known = self._known.get(schema_id)
        if known is not None:
            self._known.move_to_end(schema_id)
            return known
        refused = self._refused.get(schema_id)
        if refused is None:
            return None
        until_s, why = refused
        if self._clock_s() >= until_s:
            del self._refused[schema_id]
            return None
        raise RecordError("unknown_schema", f"registry schema id {schema_id} {why}", position=1)


def by_subject(record_types: tuple[type[Struct], ...]) -> dict[str, type[Struct]]:
    """Record types by the full name under which they are registered."""
    return {subject(record_type): record_type for record_type in record_types}


def _full_name(schema: Mapping[str, Any]) -> str:
    name, namespace = schema.get("name"), schema.get("namespace")
    if not isinstance(name, str):
        return ""
    return name if "." in name or not isinstance(namespace, str) else f"{namespace}.{name}"


def _without_logical_types(schema: Any) -> Any:
    """The schema with plain types alone: what a timestamp is called elsewhere is a number here."""
    if isinstance(schema, list):
        return [_without_logical_types(branch) for branch in schema]
    if isinstance(schema, dict):
        # A default is data, whatever its keys are called.
        return {
            key: value if key == "default" else _without_logical_types(value)
            for key, value in schema.items()
            if key != "logicalType"
        }
    return schema


def _nesting(text: str) -> int:
    """An upper bound of how deep JSON is nested, without parsing it: brackets in strings count too."""
    depth = deepest = 0
    for character in text:
        if character in "{[":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "}]":
            depth -= 1
    return deepest


class _Bounds:
    """How large a schema is with every name in it written out, and whether a few bytes may stand for very much."""

    def __init__(self, types: Mapping[str, Any]) -> None:
        self._types = types
        self._sizes: dict[str, int] = {}

    def size(self, schema: Any, *, inside: tuple[str, ...] = ()) -> int:
        """Number of types in it; raises ValueError for a type that contains itself, and for items of no bytes."""
        if isinstance(schema, list):
            return 1 + sum(self.size(branch, inside=inside) for branch in schema)
        if isinstance(schema, str):
            if schema not in self._types:
                return 1
            schema = self._types[schema]
        kind = schema["type"]
        if kind in ("array", "map"):
            items = schema["items" if kind == "array" else "values"]
            size = self.size(items, inside=inside)
            # Before what follows walks through all of it.
            if size > MAX_SCHEMA_TYPES:
                raise ValueError(f"is made of {size} types and more, at most {MAX_SCHEMA_TYPES} are read")
            if kind == "array" and not _takes_bytes(items, self._types):
                raise ValueError("has an array whose items take no bytes")
            return 1 + size
        if kind not in ("record", "error"):
            return 1
        name = schema["name"]
        if name in inside:
            raise ValueError(f"holds {name} in itself")
        if name not in self._sizes:
            self._sizes[name] = 1 + sum(self.size(field["type"], inside=(*inside, name)) for field in schema["fields"])
        return self._sizes[name]


def _takes_bytes(schema: Any, types: Mapping[str, Any]) -> bool:
    """Whether each value of a type takes a byte at least; a type that contains itself counts as one that does."""
    if isinstance(schema, list):
        return True  # the branch's number
    if isinstance(schema, str):
        if schema not in types:
            return schema != "null"
        schema = types[schema]
    kind = schema["type"]
    if kind in ("record", "error"):
        names = {**types, schema["name"]: "string"}
        return any(_takes_bytes(field["type"], names) for field in schema["fields"])
    if kind == "fixed":
        return int(schema["size"]) > 0
    return bool(kind != "null")
