"""Where in an Avro body each field lies, and in which one reading fails. Pure.

For bodies that are no record: fastavro says that they are not and at which byte, but not in which field. This walks the
schema byte by byte (Avro specification, "Binary encoding"), so it is for the few records that were refused.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

# Far beyond what a record of ours holds outside of its packed arrays; an array of a million items is not walked.
MAX_VALUES: Final = 10_000
_MAX_VARINT_BYTES: Final = 10


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes ``start`` to ``end`` of a body hold the value of the field at ``path``, like ``offers[0].units``."""

    path: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Failure:
    """The field at ``path`` begins at byte ``start`` and cannot be read from byte ``position`` on."""

    path: str
    start: int
    position: int
    why: str


@dataclass(slots=True)
class Located:
    """What could be read: plain data, the place of each value in it, and where it ended if that was too early.

    ``failure`` is also None where the walk was given up after ``MAX_VALUES`` values; ``end`` is how far it came.
    """

    data: dict[str, Any] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    failure: Failure | None = None
    end: int = 0


class _UnreadableError(Exception):
    """Bytes that follow no schema; ``position`` is the first of them."""

    def __init__(self, why: str, position: int) -> None:
        super().__init__(why)
        self.position = position


class _EnoughError(Exception):
    """More values than are looked at."""


def locate(body: bytes, schema: Any) -> Located:
    """Read a body written with ``schema`` (a record, as fastavro parses it) as far as it goes."""
    located = Located()
    walk = _Walk(body, dict(_named(schema)), located)
    try:
        walk.record(schema, located.data, "")
    except _UnreadableError as error:
        located.failure = Failure(walk.path, walk.start, error.position, str(error))
    except _EnoughError:
        pass
    located.end = walk.at
    return located


class _Walk:
    """A place in a body, and which field begins where before it."""

    def __init__(self, body: bytes, named: dict[str, Any], located: Located) -> None:
        self._body = body
        self._named = named
        self._located = located
        self.at = 0
        self.path = ""
        self.start = 0

    def record(self, schema: Any, into: dict[str, Any], path: str) -> None:
        """Read a record's fields one after the other into a dict that holds what was read when this fails."""
        for described in schema["fields"]:
            name = described["name"]
            self._value(described["type"], into, name, f"{path}.{name}" if path else name)

    def _value(self, schema: Any, into: Any, key: Any, path: str) -> None:
        """Read one value into ``into[key]``."""
        self.path, self.start = path, self.at
        schema = self._named.get(schema, schema) if isinstance(schema, str) else schema
        kind = schema if isinstance(schema, str) else "union" if isinstance(schema, list) else schema["type"]
        match kind:
            case "record" | "error":
                inner: dict[str, Any] = {}
                _put(into, key, inner)
                self.record(schema, inner, path)
            case "array":
                items: list[Any] = []
                _put(into, key, items)
                for index in self._items():
                    self._value(schema["items"], items, None, f"{path}[{index}]")
                    self.path, self.start = path, self.at
            case "map":
                entries: dict[str, Any] = {}
                _put(into, key, entries)
                for _ in self._items():
                    name = self._text()
                    self._value(schema["values"], entries, name, f"{path}.{name}")
                    self.path, self.start = path, self.at
            case "union":
                branch = self._long()
                if not 0 <= branch < len(schema):
                    raise _UnreadableError(f"branch {branch} of {len(schema)}", self.start)
                self._value(schema[branch], into, key, path)
            case _:
                _put(into, key, self._leaf(kind, schema))
                self._located.spans.append(Span(path, self.start, self.at))
                if len(self._located.spans) >= MAX_VALUES:
                    raise _EnoughError

    def _leaf(self, kind: str, schema: Any) -> Any:
        match kind:
            case "null":
                return None
            case "boolean":
                return self._take(1) != b"\0"
            case "int" | "long":
                return self._long()
            case "float":
                return struct.unpack("<f", self._take(4))[0]
            case "double":
                return struct.unpack("<d", self._take(8))[0]
            case "bytes":
                return self._take(self._length())
            case "string":
                return self._text()
            case "fixed":
                return self._take(schema["size"])
            case "enum":
                index = self._long()
                if not 0 <= index < len(schema["symbols"]):
                    raise _UnreadableError(f"symbol {index} of {len(schema['symbols'])}", self.start)
                return schema["symbols"][index]
        raise AssertionError(f"no Avro type {kind}")

    def _items(self) -> Iterator[int]:
        """Indices of the items of an array or map, its blocks one after the other."""
        index = 0
        while True:
            count = self._long()
            if count == 0:
                return
            if count < 0:
                # The block says its size too.
                count = -count
                self._long()
            for _ in range(count):
                yield index
                index += 1

    def _text(self) -> str:
        length = self._length()
        start = self.at
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise _UnreadableError("no UTF-8", start + error.start) from None

    def _length(self) -> int:
        start = self.at
        length = self._long()
        if length < 0:
            raise _UnreadableError(f"a length of {length}", start)
        return length

    def _long(self) -> int:
        """A zigzag varint."""
        bits = shift = 0
        start = self.at
        while True:
            (byte,) = self._take(1)
            bits |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return (bits >> 1) ^ -(bits & 1)
            shift += 7
            if self.at - start >= _MAX_VARINT_BYTES:
                raise _UnreadableError("a number that does not end", start)

    def _take(self, num_bytes: int) -> bytes:
        taken = self._body[self.at : self.at + num_bytes]
        if len(taken) < num_bytes:
            raise _UnreadableError(f"{num_bytes} bytes are said to follow, {len(taken)} do", self.at)
        self.at += num_bytes
        return taken


def _put(into: Any, key: Any, value: Any) -> None:
    if isinstance(into, list):
        into.append(value)
    else:
        into[key] = value


def _named(schema: Any) -> Iterator[tuple[str, Any]]:
    """Every named type of a schema, under the name that the rest of it may use."""
    if isinstance(schema, list):
        for branch in schema:
            yield from _named(branch)
    elif isinstance(schema, dict):
        if "name" in schema and "type" in schema and schema["type"] in ("record", "error", "enum", "fixed"):
            yield schema["name"], schema
        for described in schema.get("fields", ()):
            yield from _named(described["type"])
        for inner in ("items", "values"):
            if inner in schema:
                yield from _named(schema[inner])
