"""Avro schema resolution as a question about schemas alone: can a reader read all that a writer may have written? Pure.

Avro specification, "Schema Resolution". Two points on which implementations differ are taken as the Java library and
the registries built on it take them: named types match by their name without its namespace, or by an alias of the
reader's; and a writer's union is read only if each of its branches is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from fastavro.schema import parse_schema

Rule = Literal[
    "type",
    "name",
    "missing_default",
    "enum_symbol",
    "fixed_size",
    "union_branch",
]

_PROMOTIONS: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_RECORDS: Final = frozenset({"record", "error"})


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One reason why a reader cannot read a writer: where (a path of fields), which rule, and what is the matter."""

    path: str
    rule: Rule
    detail: str

    def __str__(self) -> str:
        return f"{self.path or 'the record'}: {self.rule}: {self.detail}"


def disagreements(reader: Any, writer: Any) -> list[Disagreement]:
    """Every reason why data written with ``writer`` may not be readable with ``reader``; empty when all of it is.

    Both are Avro schemas as JSON data. Raises fastavro's SchemaParseException or UnknownType for what is none.
    """
    reader_types: dict[str, Any] = {}
    writer_types: dict[str, Any] = {}
    # Parsing writes every name in full and leaves each named type behind under it.
    parsed_reader = parse_schema(reader, named_schemas=reader_types)
    parsed_writer = parse_schema(writer, named_schemas=writer_types)
    return list(_Comparison(reader_types, writer_types).compare(parsed_reader, parsed_writer, ""))


class _Comparison:
    def __init__(self, reader_types: Mapping[str, Any], writer_types: Mapping[str, Any]) -> None:
        self._reader_types = reader_types
        self._writer_types = writer_types
        # Pairs under comparison or done: a type that contains itself is compared once.
        self._seen: set[tuple[str, str]] = set()

    def compare(self, reader: Any, writer: Any, path: str) -> Iterator[Disagreement]:
        reader, writer = _named(reader, self._reader_types), _named(writer, self._writer_types)
        if isinstance(writer, list):
            for branch in writer:
                yield from self._branch(reader, branch, path)
            return
        if isinstance(reader, list):
            yield from self._branch(reader, writer, path)
            return
        reader_kind, writer_kind = _kind(reader), _kind(writer)
        if reader_kind == writer_kind == "array":
            yield from self.compare(reader["items"], writer["items"], f"{path}[]")
        elif reader_kind == writer_kind == "map":
            yield from self.compare(reader["values"], writer["values"], f"{path}{{}}")
        elif reader_kind in _NAMED and writer_kind in _NAMED:
            yield from self._compare_named(reader, writer, path)
        elif reader_kind != writer_kind and reader_kind not in _PROMOTIONS.get(writer_kind, ()):
            yield Disagreement(path, "type", f"{writer_kind} cannot be read as {reader_kind}")

    def _branch(self, reader: Any, branch: Any, path: str) -> Iterator[Disagreement]:
        """One branch of a writer's union, or a writer that is none, against what may be a reader's union."""
        if not isinstance(reader, list):
            found = list(self.compare(reader, branch, path))
            if found and all(each.path == path for each in found):
                yield Disagreement(path, "union_branch", f"the branch {_label(branch)} cannot be read")
            else:
                yield from found
            return
        attempts = [self._attempt(alternative, branch, path) for alternative in reader]
        if any(not found for found in attempts):
            return
        # The alternative of the same name says best what is wrong; others differ in kind anyway.
        inner = [found for found in attempts if any(each.path != path for each in found)]
        if inner:
            yield from inner[0]
        else:
            yield Disagreement(path, "union_branch", f"no branch of the reader's union takes {_label(branch)}")

    def _attempt(self, reader: Any, writer: Any, path: str) -> list[Disagreement]:
        """What speaks against one alternative; a pair that is refused here must be looked at again elsewhere."""
        before = set(self._seen)
        found = list(self.compare(reader, writer, path))
        if found:
            self._seen = before
        return found

    def _compare_named(self, reader: Any, writer: Any, path: str) -> Iterator[Disagreement]:
        if not _same_name(reader, writer):
            yield Disagreement(path, "name", f"{writer['name']} is not {reader['name']}")
            return
        reader_kind, writer_kind = _kind(reader), _kind(writer)
        if reader_kind != writer_kind and not {reader_kind, writer_kind} <= _RECORDS:
            yield Disagreement(path, "type", f"{writer_kind} cannot be read as {reader_kind}")
        elif reader_kind == "enum":
            unknown = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
            if unknown and "default" not in reader:
                yield Disagreement(path, "enum_symbol", f"the reader has no {', '.join(unknown)}, and no default")
        elif reader_kind == "fixed":
            if reader["size"] != writer["size"]:
                yield Disagreement(path, "fixed_size", f"{writer['size']} bytes cannot be read as {reader['size']}")
        elif (pair := (reader["name"], writer["name"])) not in self._seen:
            self._seen.add(pair)
            yield from self._compare_fields(reader, writer, path)

    def _compare_fields(self, reader: Any, writer: Any, path: str) -> Iterator[Disagreement]:
        writer_fields = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            inner = f"{path}.{field['name']}" if path else field["name"]
            names = (field["name"], *field.get("aliases", ()))
            written = next((writer_fields[name] for name in names if name in writer_fields), None)
            if written is not None:
                yield from self.compare(field["type"], written["type"], inner)
            elif "default" not in field:
                yield Disagreement(inner, "missing_default", "the writer has no such field, and there is no default")


def _named(schema: Any, types: Mapping[str, Any]) -> Any:
    """The type behind a name; everything else as it is."""
    return types.get(schema, schema) if isinstance(schema, str) else schema


def _kind(schema: Any) -> str:
    kind = schema["type"] if isinstance(schema, dict) else schema
    assert isinstance(kind, str)
    return kind


def _label(schema: Any) -> str:
    return str(schema["name"]) if isinstance(schema, dict) and "name" in schema else _kind(schema)


def _same_name(reader: Any, writer: Any) -> bool:
    written = writer["name"]
    unqualified = written.rpartition(".")[2]
    aliases = reader.get("aliases", ())
    return reader["name"].rpartition(".")[2] == unqualified or written in aliases or unqualified in aliases
