"""The AsyncAPI document: current, whole, and true to topics, records and parts."""

import ast
import copy
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import fastavro
import pytest
from click.testing import CliRunner, Result

from ops.errors import UserError
from ops.topics_cli import topics as topics_verb
from schemas import asyncapi, topics
from schemas.parts import PARTS
from schemas.topics import TOPICS, WORK_BY_ROUTE, Namespace, Topic, planned_topics

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
GOLDEN = json.loads((HERE / "golden_records.json").read_text(encoding="utf-8"))
DOCUMENT = asyncapi.asyncapi_document()

# Topics of the contract that no part touches yet.
NOT_YET = {"segment.uplift", "precompute.jobs", "precompute.results"}
# Where the code of each part names its topics.
CODE = {
    "agent": ["ops/agent/agent.py", "ops/simulator/agents.py"],
    "operator": ["ops/cells_cli.py"],
    "ingest": ["streams/ingest"],
    "control": ["streams/control"],
    "caller": ["ranking/client/requests.py", "ops/simulator/outcome_worker.py"],
    "router": ["ranking/router", "ranking/client/targets.py", "ranking/client/cells.py"],
    "ranker": ["ranking/consumer"],
}


def test_the_committed_document_is_current() -> None:
    committed = (ROOT / "docs/asyncapi.json").read_text(encoding="utf-8")
    differences = list(asyncapi.differences(json.loads(committed), DOCUMENT))
    assert not differences, "renew it by `intertidal topics asyncapi > docs/asyncapi.json`"
    assert committed == asyncapi.render(DOCUMENT)


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "$ref":
                yield inner
            else:
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_every_reference_leads_somewhere() -> None:
    found = list(references(DOCUMENT))
    assert len(found) > 100
    for reference in found:
        assert reference.startswith("#/")
        at: Any = DOCUMENT
        for name in reference.removeprefix("#/").split("/"):
            at = at[name]


def test_every_planned_topic_but_the_changelog_is_a_channel_with_its_settings() -> None:
    planned = {topic.name: topic for topic in planned_topics(Namespace())}
    del planned[Namespace().control_changelog]
    assert DOCUMENT["channels"].keys() == planned.keys()
    for name, topic in planned.items():
        binding = DOCUMENT["channels"][name]["bindings"]["kafka"]
        settings = dict(binding["topicConfiguration"])
        settings["cleanup.policy"] = ",".join(settings["cleanup.policy"])
        assert {setting: str(value) for setting, value in settings.items()} == topic.config
        assert binding["partitions"] == topic.num_partitions


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_payloads_read_the_golden_bytes_and_have_their_fingerprint(name: str) -> None:
    message = DOCUMENT["components"]["messages"][name]
    framed = bytes.fromhex(GOLDEN[name]["bytes"])
    assert message["x-avro-fingerprint"] == framed[2:10].hex()
    payload = DOCUMENT["components"]["schemas"][name]
    assert payload["schemaFormat"] == "application/vnd.apache.avro+json;version=1.9.0"

    body = io.BytesIO(framed[10:])
    fastavro.schemaless_reader(body, fastavro.parse_schema(payload["schema"]), None)
    assert body.read() == b""


def test_keys_are_named_where_the_sender_does_not_choose_the_partition() -> None:
    def key(name: str) -> Any:
        bindings = DOCUMENT["components"]["messages"][name].get("bindings", {})
        return bindings.get("kafka", {}).get("key", {}).get("description")

    assert key("CapacityEvent") == key("CandidateTarget") == "The record's cell"
    assert key("RankingResult") == "The record's user_id"
    assert key("DeadLetter") == "Place of the refused record: topic/partition/offset"
    assert key("RankingWork") is key("RankingAnswer") is key("ClockRecord") is None


def topics_named_in(paths: list[str]) -> set[str]:
    files = [
        file for path in paths for file in ([ROOT / path] if path.endswith(".py") else (ROOT / path).rglob("*.py"))
    ]
    named: set[str] = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            value = getattr(topics, node.id, None) if isinstance(node, ast.Name) else None
            if isinstance(value, Topic):
                named.add(value.name)
            elif value is WORK_BY_ROUTE:
                named |= {topic.name for topic in WORK_BY_ROUTE.values()}
    return named


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_part_touches_the_topics_that_its_code_names(part: Any) -> None:
    said = {topic.name for topic in (*part.sends, *part.receives, *part.clocks)}
    assert said == topics_named_in(CODE[part.name]) - NOT_YET
    assert {topic.name for topic in part.refuses} <= {topic.name for topic in part.receives}


def test_every_topic_has_a_sender_and_a_receiver_or_is_not_in_use_yet() -> None:
    sent = {topic.name for part in PARTS for topic in (*part.sends, *part.clocks)}
    received = {topic.name for part in PARTS for topic in part.receives}
    assert sent | received == {topic.name for topic in TOPICS} - NOT_YET
    # Read by people and their programs alone, so far.
    assert sent - received == {"control.state", "capacity.pools"}
    assert received <= sent


def test_clock_records_are_sent_by_ingest_and_by_who_learns_the_brokers_time() -> None:
    clock = {
        name
        for name, operation in DOCUMENT["operations"].items()
        if operation["action"] == "send"
        for message in operation.get("messages", [])
        if message["$ref"].endswith("/ClockRecord")
    }
    who = {"ingest.send.fleet.capacity", "ingest.send.serving.latency", "router.send.serving.latency"}
    assert clock == who | {"ranker.send.serving.latency"}
    assert len(DOCUMENT["operations"]["ingest.send.fleet.capacity"]["messages"]) == 1


@pytest.mark.parametrize(
    ("committed", "current", "said"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": {"b/c": 1}}, {"a": {"b/c": 2}}, ["/a/b~1c: is 1, should be 2"]),
        ({"a": 1}, {"b": 1}, ["/a: no longer in the contract", "/b: missing"]),
        ({"a": [1, 2]}, {"a": [1, 3]}, ["/a/1: is 2, should be 3"]),
        ({"a": [1]}, {"a": [1, 2]}, ["/a: is [1], should be [1, 2]"]),
        ([], {}, ["/: is [], should be {}"]),
    ],
)
def test_differences_are_named_by_their_place(committed: Any, current: Any, said: list[str]) -> None:
    assert list(asyncapi.differences(committed, current)) == said


def verb(*arguments: object) -> Result:
    return CliRunner().invoke(topics_verb, [str(argument) for argument in arguments], standalone_mode=False)


def test_the_verb_checks_a_file_and_names_what_differs(tmp_path: Path) -> None:
    stale = copy.deepcopy(DOCUMENT)
    stale["channels"]["fleet.capacity"]["bindings"]["kafka"]["partitions"] = 7
    (tmp_path / "stale.json").write_text(asyncapi.render(stale), encoding="utf-8")
    done = verb("asyncapi", "--check", "--file", tmp_path / "stale.json")
    assert done.return_value == 1
    assert done.stdout == "/channels/fleet.capacity/bindings/kafka/partitions: is 7, should be 8\n"
    assert verb("asyncapi", "--check", "--file", ROOT / "docs/asyncapi.json").return_value == 0
    assert isinstance(verb("asyncapi", "--check", "--file", tmp_path / "absent.json").exception, UserError)


def test_the_verb_prints_and_writes_each_schema(tmp_path: Path) -> None:
    assert verb("schema", "--out", tmp_path / "avsc").exception is None
    written = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (tmp_path / "avsc").iterdir()}
    assert written == {name: kind["schema"] for name, kind in DOCUMENT["components"]["schemas"].items()}
    assert json.loads(verb("schema").stdout) == written
    assert json.loads(verb("schema", "CapacityEvent").stdout) == written["CapacityEvent"]
    wrong = verb("schema", "Nothing").exception
    assert isinstance(wrong, click.UsageError)
    assert "CapacityEvent" in wrong.message
