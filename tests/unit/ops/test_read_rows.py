"""Every record of the contract as a line and as columns: nothing of it is lost, and the schema of a line says it."""

import json
from pathlib import Path

import jsonschema
import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from ops.read.columns import columns_of, to_batch
from ops.read.document import line_schema
from ops.read.rows import LogRecord, json_line
from ops.read.topics import readable_topics
from ops.record_json import from_json
from schemas.records import LatencyInterval, RankingResult
from schemas.registered import contract_types
from schemas.topics import Namespace

ROOT = Path(__file__).parents[3]
GOLDEN = json.loads((ROOT / "tests/contract/golden_records.json").read_text(encoding="utf-8"))
TYPES = {record_type.__name__: record_type for record_type in contract_types()}
SCHEMA = json.loads((ROOT / "docs/read.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def golden(name):
    return msgspec.json.decode(json.dumps(GOLDEN[name]["record"]), type=TYPES[name])


def read_of(record, *, partition=3, offset=7, time_ms=1_700_000_000_000, key=b"us-east", size_bytes=100):
    return LogRecord(partition=partition, offset=offset, time_ms=time_ms, key=key, size_bytes=size_bytes, record=record)


def line_of(record):
    return json.loads(json_line(read_of(record)))


def test_the_schema_in_the_repository_is_the_one_that_the_records_make():
    assert line_schema() == SCHEMA, "python -m ops.read.document > docs/read.schema.json"


@pytest.mark.parametrize("name", TYPES)
def test_a_line_has_the_whole_record_and_keeps_to_the_schema(name):
    record = golden(name)
    line = line_of(record)
    VALIDATOR.validate(line)
    assert {column: line[column] for column in ("_record", "_partition", "_offset", "_time_ms", "_key")} == {
        "_record": name,
        "_partition": 3,
        "_offset": 7,
        "_time_ms": 1_700_000_000_000,
        "_key": "us-east",
    }
    fields = {column: value for column, value in line.items() if not column.startswith("_")}
    assert from_json(TYPES[name], fields) == record


@pytest.mark.parametrize(
    ("changes", "standing"),
    [
        ({}, "ok"),
        ({"late": True}, "late"),
        ({"degraded": True, "late": True}, "degraded"),
        ({"status": "error", "error": "no base candidates", "late": True}, "error"),
    ],
)
def test_a_result_says_what_it_is_worth(changes, standing):
    line = line_of(replace(golden("RankingResult"), **changes))
    VALIDATOR.validate(line)
    assert (line["_standing"], line["routes"]) == (standing, ["baseline", "wide"])


def test_a_score_that_is_no_number_is_a_word_and_a_deleted_key_null():
    scores = np.array([np.nan, 1.5], dtype="<f4").tobytes()
    line = line_of(replace(golden("RankingResult"), scores=scores))
    assert line["scores"] == ["NaN", 1.5]
    deleted = json.loads(json_line(read_of(None, key=b"\xff")))
    assert (deleted["_record"], deleted["_key"], len(deleted)) == (None, "\\xff", 5)
    for each in (line, deleted):
        VALIDATOR.validate(each)


def test_every_topic_and_its_dead_letters_can_be_read():
    topics = readable_topics(Namespace("replay.a."))
    assert topics["ranking.results"].record_types == (RankingResult,)
    assert topics["ranking.results"].name == "replay.a.ranking.results"
    assert topics["ranking.results.dlq"].name == "replay.a.ranking.results.dlq"
    assert {record_type for topic in topics.values() for record_type in topic.record_types} == set(TYPES.values())


def test_columns_hold_what_the_lines_say():
    for topic in readable_topics(Namespace()).values():
        records = [golden(record_type.__name__) for record_type in topic.record_types]
        batch = to_batch([read_of(record) for record in [*records, None]], columns_of(topic.record_types))
        *rows, deleted = batch.to_pylist()
        for row, record in zip(rows, records, strict=True):
            line = line_of(record)
            assert json.loads(msgspec.json.encode({name: row[name] for name in line})) == line
            assert all(row[name] is None for name in row.keys() - line.keys())
        assert {name for name, value in deleted.items() if value is not None} == {
            "_partition",
            "_offset",
            "_time_ms",
            "_key",
        }


def test_an_array_that_is_not_whole_is_null_in_a_file():
    record = golden("LatencyInterval")
    ragged = replace(record, latency=replace(record.latency, counts=b"123"))
    (row,) = to_batch([read_of(ragged)], columns_of([LatencyInterval])).to_pylist()
    assert row["latency"]["counts"] is None
    assert row["routes"][0]["latency"]["counts"] == [1, 0, 4]
    VALIDATOR.validate(line_of(ragged))
