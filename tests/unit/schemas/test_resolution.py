"""When a reader's schema can read all that a writer's has written."""

from typing import Any

import pytest

from schemas.compatibility.resolution import disagreements


def record(*fields: dict[str, Any], name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": "n", "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def found(reader: Any, writer: Any) -> list[tuple[str, str]]:
    return [(each.path, each.rule) for each in disagreements(reader, writer)]


A = field("a", "int")


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (record(A), record(A)),
        (record(A), record(A, field("b", "string"))),
        (record(A, field("b", "string", default="")), record(A)),
        (record(A, field("b", ["null", "int"], default=None)), record(A)),
        (record(field("a", "double")), record(A)),
        (record(field("a", "string")), record(field("a", "bytes"))),
        (record(field("z", "int", aliases=["a"])), record(A)),
        (record(A, aliases=["n.Old"]), record(A, name="Old")),
        (record(A), {**record(A), "namespace": "elsewhere"}),
        (record(field("a", ["null", "int"])), record(A)),
        (record(field("a", ["null", "long"])), record(field("a", ["int", "null"]))),
        (record(field("a", enum("x", "y"))), record(field("a", enum("x")))),
        (record(field("a", enum("x", default="x"))), record(field("a", enum("x", "y")))),
        (record(field("a", {"type": "map", "values": "long"})), record(field("a", {"type": "map", "values": "int"}))),
        (record(field("next", ["null", "n.R"])), record(field("next", ["null", "n.R"]))),
    ],
)
def test_readable(reader: Any, writer: Any) -> None:
    assert found(reader, writer) == []


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        (record(A, field("b", "string")), record(A), [("b", "missing_default")]),
        (record(field("a", "int")), record(field("a", "long")), [("a", "type")]),
        (record(field("z", "int")), record(A), [("z", "missing_default")]),
        (record(A, name="New"), record(A, name="Old"), [("", "name")]),
        (record(A), record(field("a", ["null", "int"])), [("a", "union_branch")]),
        (record(field("a", ["null", "int"])), record(field("a", "string")), [("a", "union_branch")]),
        (record(field("a", enum("x"))), record(field("a", enum("x", "y"))), [("a", "enum_symbol")]),
        (
            record(field("a", {"type": "fixed", "name": "F", "size": 4})),
            record(field("a", {"type": "fixed", "name": "F", "size": 8})),
            [("a", "fixed_size")],
        ),
        (
            record(field("in", record(field("b", "int"), name="N"))),
            record(field("in", record(field("b", "string"), name="N"))),
            [("in.b", "type")],
        ),
        (
            record(field("many", {"type": "array", "items": record(A, field("c", "int"), name="N")})),
            record(field("many", {"type": "array", "items": record(A, name="N")})),
            [("many[].c", "missing_default")],
        ),
        # Inside a union the field at fault is named, not only the branch.
        (
            record(field("u", ["null", record(A, field("c", "int"), name="N")])),
            record(field("u", ["null", record(A, name="N")])),
            [("u.c", "missing_default")],
        ),
        # The same type in two places: found where it is met first, and not lost behind a union.
        (
            record(field("u", ["null", record(field("b", "int"), name="N")]), field("v", "n.N")),
            record(field("u", ["null", record(field("b", "string"), name="N")]), field("v", "n.N")),
            [("u.b", "type"), ("v.b", "type")],
        ),
        (
            record(field("v", "int"), field("next", ["null", "n.R"])),
            record(field("v", "string"), field("next", ["null", "n.R"])),
            [("v", "type")],
        ),
    ],
)
def test_unreadable_names_field_and_rule(reader: Any, writer: Any, expected: list[tuple[str, str]]) -> None:
    assert found(reader, writer) == expected
