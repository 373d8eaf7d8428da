"""A record as JSON and back: nothing changes on the way, and what cannot be read is named by its field."""

import base64
import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from ops import record_json
from ops.record_json import PACKED, from_json, plain_from_json, plain_to_json, to_json
from schemas.errors import RecordError
from schemas.records import CapacityEvent, ControllerSnapshot, RankingAnswer, RankingOutcome, RankingRequest
from schemas.registered import contract_types

GOLDEN = json.loads(
    (Path(__file__).parents[2] / "contract" / "golden_records.json").read_text(encoding="utf-8"),
)
# Bytes that are no numbers to us: base64 in JSON.
OPAQUE = {
    ("ControllerSnapshot", "state"),
    ("DeadLetter", "key"),
    ("DeadLetter", "value"),
    ("PrecomputeJob", "payload"),
    ("PrecomputeResult", "payload"),
    ("RawHeader", "value"),
}
BY_NAME = {record_type.__name__: record_type for record_type in contract_types()}


def golden(name: str) -> Struct:
    return msgspec.convert(GOLDEN[name]["record"], BY_NAME[name], strict=True)


def request(**changed: Any) -> dict[str, Any]:
    return to_json(golden("RankingRequest")) | changed


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_every_record_comes_back_from_its_json(name: str) -> None:
    record = golden(name)
    text = json.dumps(to_json(record), allow_nan=False)
    assert from_json(BY_NAME[name], json.loads(text)) == record


def test_every_field_of_bytes_is_a_packed_array_or_known_to_be_none() -> None:
    found = {
        place for record_type in contract_types() for place in bytes_fields(msgspec.inspect.type_info(record_type))
    }
    assert found == set(PACKED) | OPAQUE


def bytes_fields(info: msgspec.inspect.Type, place: tuple[str, str] = ("", "")) -> Iterator[tuple[str, str]]:
    match info:
        case msgspec.inspect.BytesType():
            yield place
        case msgspec.inspect.ListType():
            yield from bytes_fields(info.item_type, place)
        case msgspec.inspect.UnionType():
            for kind in info.types:
                yield from bytes_fields(kind, place)
        case msgspec.inspect.StructType():
            for field in info.fields:
                yield from bytes_fields(field.type, (info.cls.__name__, field.encode_name))


def test_packed_arrays_are_lists_and_other_bytes_base64() -> None:
    shown = to_json(
        RankingRequest(
            request_id="r",
            user_id="u",
            cell="c",
            intake_ms=1,
            deadline_ms=2,
            num_base_candidates=1,
            num_results=1,
            ad_ids=struct.pack("<2q", 7, -(2**63)),
            bids=struct.pack("<2f", 0.5, 0.1),
            retrieval_scores=struct.pack("<2f", 1.0, 0.0),
            user_features=b"",
        )
    )
    assert shown["ad_ids"] == [7, -(2**63)]
    assert shown["bids"][0] == 0.5
    assert shown["history_ids"] == []
    snapshot = ControllerSnapshot(cell="c", window_index=1, controller_version="1", state=b"\x00\xff")
    assert to_json(snapshot)["state"] == base64.b64encode(b"\x00\xff").decode()


@given(st.binary(max_size=40))
def test_any_bytes_of_a_packed_array_come_back(packed: bytes) -> None:
    data = GOLDEN["RankingAnswer"]["record"] | {"scores": packed}
    shown = plain_to_json(data, RankingAnswer)
    back = plain_from_json(RankingAnswer, json.loads(json.dumps(shown, allow_nan=False)))
    assert len(back["scores"]) == len(packed)
    if len(packed) % 4:
        assert back["scores"] == packed
        return
    for before, after in zip(struct.iter_unpack("<f", packed), struct.iter_unpack("<f", back["scores"]), strict=True):
        # The bits of a NaN are not told apart.
        assert before == after or (math.isnan(before[0]) and math.isnan(after[0]))


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"cell": "Not A Cell"}, "cell"),
        ({"advertizer_segment": "x"}, "advertizer_segment"),
        ({"ad_ids": 5}, "ad_ids"),
        ({"ad_ids": "%%"}, "ad_ids"),
        ({"ad_ids": [1, 2.5]}, "ad_ids[1]"),
        ({"ad_ids": [1, 2**63]}, "ad_ids[1]"),
        ({"ad_ids": [True]}, "ad_ids[0]"),
        ({"bids": [1.0, "much"]}, "bids[1]"),
        ({"bids": [1e39]}, "bids[0]"),
        ({"bids": [False]}, "bids[0]"),
        ({"bids": [1.0, 1.0, 1.0, 1.0, 1.0]}, "bids"),
        ({"intake_ms": -1}, "intake_ms"),
        ({"intake_ms": None}, "intake_ms"),
        ({"num_results": 2**70}, "num_results"),
    ],
)
def test_what_cannot_be_read_is_named(changed: dict[str, Any], field: str) -> None:
    with pytest.raises(RecordError) as refused:
        from_json(RankingRequest, request(**changed))
    assert refused.value.field == field


def test_nested_fields_are_named_by_their_path() -> None:
    event = to_json(golden("CapacityEvent"))
    event["offers"][0]["unitz"] = 1.0
    with pytest.raises(RecordError) as refused:
        from_json(CapacityEvent, event)
    assert refused.value.field == "offers[0].unitz"
    del event["offers"][0]["unitz"]
    event["offers"][0]["units"] = -1.0
    with pytest.raises(RecordError) as refused:
        from_json(CapacityEvent, event)
    assert refused.value.field.startswith("offers[")
    assert refused.value.field.endswith("].units")


def test_a_number_beyond_64_bits_is_refused_where_the_record_sets_no_bound() -> None:
    outcome = to_json(golden("RankingOutcome")) | {"ad_id": 2**63}
    with pytest.raises(RecordError) as refused:
        from_json(RankingOutcome, outcome)
    assert refused.value.field == "ad_id"


@pytest.mark.parametrize("data", [None, [], "x", 1])
def test_what_is_no_object_is_refused(data: Any) -> None:
    with pytest.raises(RecordError) as refused:
        from_json(RankingRequest, data)
    assert refused.value.reason == "malformed"


def test_a_required_field_that_is_missing_is_said() -> None:
    data = request()
    del data["user_id"]
    with pytest.raises(RecordError) as refused:
        from_json(RankingRequest, data)
    assert refused.value.field == "user_id"


def test_numbers_of_any_length_are_held_against_what_an_item_takes() -> None:
    with pytest.raises(RecordError, match="is no float32"):
        record_json._number(10**400, "scores[0]", np.dtype("<f4"))
