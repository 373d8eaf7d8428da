"""The bytes of each record type on the wire: whoever changes a schema sees it here, and other languages can check."""

import json
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct

from schemas import records
from schemas.framing import Decoder, encode

GOLDEN = json.loads((Path(__file__).parent / "golden_records.json").read_text(encoding="utf-8"))
OLDER = json.loads((Path(__file__).parent / "golden_older_records.json").read_text(encoding="utf-8"))
RECORD_TYPES = {
    name: record_type
    for name, record_type in vars(records).items()
    if isinstance(record_type, type) and issubclass(record_type, Struct)
}


def test_every_topic_record_has_golden_bytes() -> None:
    from schemas.topics import DEAD_LETTER_TYPES, TOPICS

    on_topics = {record_type.__name__ for topic in TOPICS for record_type in topic.record_types}
    on_topics |= {record_type.__name__ for record_type in DEAD_LETTER_TYPES}
    assert on_topics == set(GOLDEN)


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_encoding_is_the_golden_one(name: str) -> None:
    record = msgspec.convert(GOLDEN[name]["record"], RECORD_TYPES[name], strict=True)
    assert encode(record).hex() == GOLDEN[name]["bytes"]


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_golden_bytes_are_read_back(name: str) -> None:
    record_type = RECORD_TYPES[name]
    decoded = Decoder([record_type]).decode(bytes.fromhex(GOLDEN[name]["bytes"]))
    assert msgspec.to_builtins(decoded) == GOLDEN[name]["record"]


@pytest.mark.parametrize("name", sorted(OLDER))
def test_bytes_of_older_writers_are_read_with_todays_defaults(name: str) -> None:
    record_type = RECORD_TYPES[name]
    decoded = Decoder([record_type]).decode(bytes.fromhex(OLDER[name]["bytes"]))
    assert decoded == msgspec.convert(OLDER[name]["record"], record_type, strict=True)
