"""Every record of the contract in both framings: one body, read as one record, by one reader of one topic."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from schemas.framing import Decoder, encode, frame, use_registry
from schemas.registered import contract_types, registered_schema
from schemas.writer_schemas import by_subject, readable

GOLDEN = json.loads((Path(__file__).parent / "golden_records.json").read_text(encoding="utf-8"))
TYPES = {record_type.__name__: record_type for record_type in contract_types()}


class NumberedRegistry:
    """Ids in the order of names; schemas come back as text, as from a real registry."""

    def schema_by_id(self, schema_id: int) -> tuple[str, Any]:
        found = readable(json.dumps(registered_schema(contract_types()[schema_id])), by_subject(contract_types()))
        return found.record, found.schema

    def id_of(self, record_type: type[Struct]) -> int:
        return contract_types().index(record_type)


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    use_registry(NumberedRegistry())
    yield
    use_registry(None)


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_one_body_in_both_framings(name: str) -> None:
    record = msgspec.convert(GOLDEN[name]["record"], TYPES[name], strict=True)
    alone, confluent = encode(record), frame(record)
    assert alone.hex() == GOLDEN[name]["bytes"]
    assert confluent[:5] == b"\0" + contract_types().index(TYPES[name]).to_bytes(4, "big")
    assert confluent[5:] == alone[10:]
    decoder = Decoder([TYPES[name]])
    assert decoder.decode(alone) == decoder.decode(confluent) == record
