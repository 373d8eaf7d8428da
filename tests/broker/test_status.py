"""`intertidal status` against a real broker: records put there by hand, read back as a status; nothing is joined."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from msgspec import Struct
from msgspec.structs import replace

from ops.cli import main
from ops.status.look import Looker
from schemas.dead_letters import RawRecord, envelope
from schemas.errors import RecordError
from schemas.kafka.admin import TopicAdmin
from schemas.kafka.config import BOOTSTRAP_ENV, NAMESPACE_ENV, client_config, producer_config
from schemas.kafka.producer import DurableProducer
from schemas.partition import partition_for
from schemas.settings import TimeSettings
from schemas.topics import (
    CONTROL_CELLS,
    CONTROL_TARGETS,
    CONTROL_WINDOWS,
    FLEET_CAPACITY,
    RANKING_REQUESTS,
    SERVING_LATENCY,
    Namespace,
    Topic,
)
from tests.unit.ops.status_makers import WINDOW_MS, capacity_window, declaration, interval, latency_window, target

SCHEMA = Path(__file__).parents[2] / "docs" / "status.schema.json"
TIME = TimeSettings(window_ms=WINDOW_MS)


@pytest.fixture
def namespace(kafka: str, topic_prefix: str) -> Iterator[Namespace]:
    made = Namespace(topic_prefix)
    admin = TopicAdmin({"bootstrap.servers": kafka})
    admin.create(made)
    yield made
    admin.delete(made)


def status(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Runs the verb; returns its exit code, what it said and what it complained of."""
    exit_code = main(["status", *arguments])
    said = capsys.readouterr()
    return exit_code, said.out, said.err


@pytest.fixture(autouse=True)
def environ(monkeypatch: pytest.MonkeyPatch, kafka: str, topic_prefix: str) -> None:
    monkeypatch.setenv(BOOTSTRAP_ENV, kafka)
    monkeypatch.setenv(NAMESPACE_ENV, topic_prefix)


def put(producer: DurableProducer, namespace: Namespace, topic: Topic, record: Struct | bytes) -> None:
    producer.send(namespace.topic(topic), record, key=b"us-east")


def test_a_pipeline_put_together_by_hand_is_told_as_it_is(
    namespace: Namespace, capsys: pytest.CaptureFixture[str]
) -> None:
    config = client_config("t")
    with Looker(config, namespace, TIME) as looker:
        empty = looker.look()
        assert (empty.verdict.state, [trouble.kind for trouble in empty.troubles]) == ("waiting", ["no_cell"])

    index = time.time_ns() // 1_000_000 // WINDOW_MS - 1
    letter = envelope(
        RawRecord(
            topic=namespace.topic(FLEET_CAPACITY),
            partition=0,
            offset=0,
            timestamp_ms=0,
            timestamp_kind="append",
            key=None,
            value=b"x",
        ),
        RecordError("bad_framing", "starts with 78"),
        part="ingest",
        stage="decode",
    )
    with DurableProducer(producer_config(config)) as producer:
        put(producer, namespace, CONTROL_CELLS, declaration())
        for window in (index - 1, index):
            put(producer, namespace, CONTROL_WINDOWS, capacity_window(window))
            put(producer, namespace, CONTROL_WINDOWS, latency_window(window, sheds=[("gate_closed", 7)]))
        # Another pipeline's bytes, and a target that would rule for ever.
        put(producer, namespace, CONTROL_WINDOWS, b"not one of ours")
        put(producer, namespace, CONTROL_TARGETS, target(index - 1, candidates=100))
        put(producer, namespace, CONTROL_TARGETS, target(index))
        put(producer, namespace, CONTROL_TARGETS, replace(target(index), valid_until_ms=1 << 52, candidate_target=256))
        put(producer, namespace, SERVING_LATENCY, interval())
        for _ in range(3):
            put(producer, namespace, RANKING_REQUESTS, b"a request")
        producer.send(namespace.dead_letters(FLEET_CAPACITY), letter)
    requests = partition_for(b"us-east", RANKING_REQUESTS.num_partitions)
    router = Consumer({**config, "group.id": namespace.group("router"), "enable.auto.commit": False})
    router.commit(offsets=[TopicPartition(namespace.topic(RANKING_REQUESTS), requests, 1)], asynchronous=False)
    router.close()

    exit_code, said, complaint = status(capsys, "--json")
    assert (exit_code, complaint) == (0, "")
    seen = json.loads(said)
    jsonschema.validate(seen, json.loads(SCHEMA.read_text(encoding="utf-8")))
    (cell,) = seen["cells"]
    assert (cell["target"]["candidates"], cell["target"]["previous_candidates"]) == (112, 100)
    assert cell["pools"][0]["unusable_units"] == {"missing_cpu": 1.0}
    assert (cell["optional"][0]["sheds"], cell["num_reclaims"]) == ({"gate_closed": 14}, 2)
    assert [reporter["source"] for reporter in cell["reporters"]] == ["router-1"]
    unreadable = {bad["topic"].removeprefix(namespace.prefix): bad for bad in seen["unreadable"]}
    assert set(unreadable) == {"control.windows", "control.targets"}
    assert "bad_framing" in unreadable["control.windows"]["example"]
    assert "valid_until_ms" in unreadable["control.targets"]["example"]
    (letters,) = seen["dead_letters"]
    assert (letters["topic"], letters["count"]) == (namespace.dead_letters(FLEET_CAPACITY), 1)
    (part,) = [part for part in seen["parts"] if part["part"] == "router"]
    assert (part["state"], part["num_members"], part["lag_records"]) == ("absent", 0, 2)
    (partition,) = [at for at in part["partitions"] if at["partition"] == requests]
    assert (partition["position"], partition["end"], partition["lag_records"]) == (1, 3, 2)
    assert partition["lag_s"] is not None
    assert 0 < partition["waiting_s"] < 600
    assert {trouble["kind"] for trouble in seen["troubles"]} >= {"part_absent", "dead_letters_growing", "unreadable"}
    assert seen["verdict"]["state"] == "attention"

    # No group was joined or made, and nothing committed.
    groups = {group.group_id for group in AdminClient(config).list_consumer_groups().result(30).valid}
    assert {name for name in groups if name.startswith(namespace.prefix)} <= {namespace.group("router")}
    assert "intertidal.status" not in groups


def test_missing_topics_are_named_in_one_line(topic_prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    exit_code, said, complaint = status(capsys)
    assert (exit_code, said, complaint.count("\n")) == (1, "", 1)
    assert f"{topic_prefix}fleet.capacity and 33 more" in complaint
    assert "intertidal topics create" in complaint
