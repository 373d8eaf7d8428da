"""Schemas registered by others: which of them are read, and what is known of an id."""

import io
import json
from typing import Any

import fastavro
import pytest

from schemas.avro import decode_body, encode_body, parsed_schema
from schemas.errors import RecordError
from schemas.records import CapacityEvent, ClockRecord, Offer, RankingRequest
from schemas.registered import registered_schema
from schemas.writer_schemas import MAX_KNOWN, MAX_REFUSED, REFUSED_S, SchemaTable, WriterSchema, by_subject, readable

OURS = by_subject((CapacityEvent, ClockRecord, RankingRequest))
EVENT = CapacityEvent(
    cell="us-east",
    host="host-1",
    epoch_ms=1,
    seq=2,
    event_time_ms=3,
    kind="heartbeat",
    offers=[Offer(accelerator="h100", units=1.0, cpu_cores=2.0, memory_bytes=3, idle_cause="off_peak")],
)


def clock(*fields: dict[str, Any]) -> dict[str, Any]:
    """A clock record as another version may have it."""
    return {**registered_schema(ClockRecord), "fields": [*registered_schema(ClockRecord)["fields"], *fields]}


def refused(schema: Any) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # its words are what is looked at
        readable(schema if isinstance(schema, str) else json.dumps(schema), OURS)
    return str(caught.value)


def written(schema: Any, data: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), data)
    return out.getvalue()


def read(schema: Any, data: Any, record_type: Any) -> Any:
    found = readable(json.dumps(schema), OURS)
    return decode_body(written(schema, data), record_type, writer_schema=found.schema)


def test_our_own_schema_is_read_as_ours() -> None:
    found = readable(json.dumps(registered_schema(CapacityEvent)), OURS)
    assert found == WriterSchema("CapacityEvent", parsed_schema(CapacityEvent))
    assert decode_body(encode_body(EVENT), CapacityEvent, writer_schema=found.schema) == EVENT


def test_a_newer_version_is_read_without_what_it_adds() -> None:
    newer = clock({"name": "added", "type": "string"})
    assert read(newer, {"writer": "w", "added": "x"}, ClockRecord) == ClockRecord(writer="w")


def test_an_older_version_is_read_with_our_defaults_bytes_among_them() -> None:
    schema = registered_schema(RankingRequest)
    with_default = {field["name"] for field in schema["fields"] if "default" in field}
    assert any(field["type"] == "bytes" for field in schema["fields"] if "default" in field)
    older = {**schema, "fields": [field for field in schema["fields"] if field["name"] not in with_default]}
    request = RankingRequest(
        request_id="r",
        user_id="u",
        cell="c",
        intake_ms=1,
        deadline_ms=2,
        num_base_candidates=1,
        num_results=1,
        ad_ids=bytes(8),
        bids=bytes(4),
        retrieval_scores=bytes(4),
        user_features=bytes(4),
    )
    data = {name: getattr(request, name) for name in request.__struct_fields__ if name not in with_default}
    assert read(older, data, RankingRequest) == request


def test_bounds_are_checked_after_resolution() -> None:
    narrower = json.loads(json.dumps(registered_schema(CapacityEvent)).replace('"long"', '"int"'))
    data = {name: getattr(EVENT, name) for name in EVENT.__struct_fields__ if name != "offers"} | {"offers": []}
    assert read(narrower, data, CapacityEvent).seq == 2
    with pytest.raises(RecordError) as caught:
        read(narrower, {**data, "seq": -1}, CapacityEvent)
    assert (caught.value.reason, caught.value.field) == ("invalid_field", "seq")


def test_what_is_a_timestamp_elsewhere_is_a_number_here() -> None:
    stamped = json.loads(json.dumps(registered_schema(CapacityEvent)))
    for field in stamped["fields"]:
        if field["name"] == "event_time_ms":
            field["type"] = {"type": "long", "logicalType": "timestamp-millis"}
    data = {name: getattr(EVENT, name) for name in EVENT.__struct_fields__ if name != "offers"} | {"offers": []}
    assert read(stamped, data, CapacityEvent).event_time_ms == 3


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("no json", "is no JSON"),
        ('"string"', "is no record"),
        ({"type": "record", "name": "Other", "namespace": "theirs", "fields": []}, "theirs.Other, which is none of"),
        ({"type": "array", "items": "string"}, "is no record, which is none of ours"),
        ({**registered_schema(ClockRecord), "fields": [{"name": "writer", "type": "nosuch"}]}, "is no Avro schema"),
        ({**registered_schema(ClockRecord), "fields": []}, "writer: missing_default"),
        ({**registered_schema(ClockRecord), "fields": [{"name": "writer", "type": "long"}]}, "writer: type: long"),
        (clock({"name": "x", "type": {"type": "array", "items": "null"}}), "items take no bytes"),
        (
            clock({"name": "x", "type": {"type": "array", "items": {"type": "record", "name": "E", "fields": []}}}),
            "items take no bytes",
        ),
        (clock({"name": "x", "type": ["null", "intertidal.ClockRecord"]}), "holds intertidal.ClockRecord in itself"),
        ("[" * 100_000, "nested more than"),
        (" " * 300_000, "characters long"),
    ],
)
def test_what_cannot_be_read_says_why(schema: Any, words: str) -> None:
    assert words in refused(schema)


def test_names_that_double_at_each_line_are_refused_at_once() -> None:
    kind: Any = {"type": "record", "name": "T0", "fields": [{"name": "n", "type": "null"}]}
    fields = [{"name": "f0", "type": kind}]
    for number in range(1, 60):
        inner = [{"name": side, "type": f"intertidal.T{number - 1}"} for side in ("l", "r")]
        fields.append({"name": f"f{number}", "type": {"type": "record", "name": f"T{number}", "fields": inner}})
    assert "at most" in refused(clock(*fields))


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_an_id_is_forgotten_last_used_first_but_never_our_own() -> None:
    table = SchemaTable(clock_s=Clock())
    table.own(1, ClockRecord)
    schema = WriterSchema("ClockRecord", None)
    for number in range(2, 2 + MAX_KNOWN):
        table.know(number, schema)
    assert table.find(2) == schema
    table.know(10_000, schema)
    assert table.find(3) is None
    assert table.find(2) == schema
    own = table.find(1)
    assert own is not None
    assert own.record == "ClockRecord"


def test_a_refusal_expires_and_refusals_are_bounded() -> None:
    clock_s = Clock()
    table = SchemaTable(clock_s=clock_s)
    table.refuse(7, "is not in the registry")
    with pytest.raises(RecordError, match="schema id 7 is not in the registry"):
        table.find(7)
    clock_s.now_s = REFUSED_S
    assert table.find(7) is None
    for number in range(MAX_REFUSED + 1):
        table.refuse(number, "no")
    assert table.find(0) is None
    with pytest.raises(RecordError):
        table.find(1)
