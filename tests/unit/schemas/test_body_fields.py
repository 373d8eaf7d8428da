"""Where in a body each field lies: the walk agrees with fastavro on what can be read, and names what cannot."""

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from schemas import body_fields
from schemas.avro import decode_body, encode_body, parsed_schema
from schemas.body_fields import locate
from schemas.errors import RecordError
from schemas.records import CapacityEvent, Offer
from schemas.registered import contract_types

GOLDEN = json.loads((Path(__file__).parents[2] / "contract" / "golden_records.json").read_text(encoding="utf-8"))
BY_NAME = {record_type.__name__: record_type for record_type in contract_types()}
EVENT = CapacityEvent(
    cell="us-east",
    host="h1",
    epoch_ms=1,
    seq=2,
    event_time_ms=3,
    kind="offer",
    offers=[
        Offer(accelerator="a", units=1.0, cpu_cores=2.0, memory_bytes=3, idle_cause="off_peak"),
        Offer(accelerator="b", units=4.0, cpu_cores=5.0, memory_bytes=6, idle_cause="off_peak"),
    ],
)


def golden(name: str) -> Struct:
    return msgspec.convert(GOLDEN[name]["record"], BY_NAME[name], strict=True)


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_a_whole_body_is_read_to_its_end(name: str) -> None:
    record = golden(name)
    body = encode_body(record)
    located = locate(body, parsed_schema(type(record)))
    assert located.failure is None
    assert located.end == len(body)
    assert located.data == msgspec.to_builtins(record, builtin_types=(bytes,))


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_a_body_cut_anywhere_names_the_field_that_was_cut(name: str) -> None:
    record = golden(name)
    body = encode_body(record)
    for end in range(len(body)):
        failure = locate(body[:end], parsed_schema(type(record))).failure
        assert failure is not None
        assert failure.start <= failure.position <= end
        assert failure.path.partition(".")[0].partition("[")[0] in type(record).__struct_fields__


def test_a_nested_field_is_named_by_its_path_and_what_stands_before_it_is_kept() -> None:
    body = encode_body(EVENT)
    whole = locate(body, parsed_schema(CapacityEvent))
    (span,) = [span for span in whole.spans if span.path == "offers[1].units"]
    cut = locate(body[: span.start + 3], parsed_schema(CapacityEvent))
    assert cut.failure is not None
    assert (cut.failure.path, cut.failure.start, cut.failure.position) == ("offers[1].units", span.start, span.start)
    assert cut.data["host"] == "h1"
    assert cut.data["offers"][1] == {"accelerator": "b"}


def test_bytes_that_are_no_text_are_told_to_the_byte() -> None:
    body = encode_body(EVENT).replace(b"us-east", b"us-\xffast", 1)
    failure = locate(body, parsed_schema(CapacityEvent)).failure
    assert failure is not None
    assert (failure.path, failure.position) == ("cell", 4)


@given(st.data())
def test_where_fastavro_fails_the_walk_does_and_the_letter_names_the_field(data: st.DataObject) -> None:
    record = golden(data.draw(st.sampled_from(sorted(BY_NAME))))
    body = bytearray(encode_body(record))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    schema: Any = parsed_schema(type(record))
    located = locate(bytes(body), schema)
    try:
        fastavro.schemaless_reader(io.BytesIO(bytes(body)), schema, schema)
    except Exception:  # noqa: BLE001  # whatever it raises, it could not read it
        assert located.failure is not None
        with pytest.raises(RecordError) as refused:
            decode_body(bytes(body), type(record))
        assert refused.value.field == located.failure.path


def test_an_endless_array_is_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_fields, "MAX_VALUES", 5)
    located = locate(encode_body(EVENT), parsed_schema(CapacityEvent))
    assert len(located.spans) == 5
    assert located.failure is None
