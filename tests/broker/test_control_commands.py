"""An operator's commands on a real broker: where they land, what is in force, and what the controllers make of them."""

import json
import time
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ops import cli
from schemas.framing import Decoder
from schemas.kafka.config import BOOTSTRAP_ENV, NAMESPACE_ENV, Config, producer_config
from schemas.kafka.dead_letters import raw_record
from schemas.kafka.producer import DurableProducer
from schemas.kafka.ranges import read_to_end
from schemas.partition import partition_for
from schemas.records import CandidateTarget, CellDeclaration, CellRevision, ControlWindow
from schemas.topics import CONTROL_CELLS, CONTROL_WINDOWS, Namespace
from streams.control.believe import believed
from streams.control.outputs import OUTPUT_TOPICS, destination
from streams.control.processor import apply
from streams.control.state import CellState
from tests.unit.streams.control_makers import LIMITS, WINDOW_MS, capacity_window, latency_window

CELLS = ("us-east", "eu-west")
Verb = Callable[..., str]


@pytest.fixture
def verb(kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Verb:
    """Runs `intertidal control` in this process, in a namespace of this test's own."""
    monkeypatch.setenv(BOOTSTRAP_ENV, kafka)
    monkeypatch.setenv(NAMESPACE_ENV, topic_prefix)
    monkeypatch.setenv("USER", "ada")

    def run(*arguments: str) -> str:
        assert cli.main(["control", *arguments]) == 0
        return capsys.readouterr().out

    return run


def test_a_hold_from_the_command_line_to_the_target(verb: Verb, kafka: str, topic_prefix: str) -> None:
    namespace = Namespace(topic_prefix)
    config: Config = {"bootstrap.servers": kafka, "client.id": "test", "log_level": 3}
    admin = AdminClient(config)
    # Of all topics only those that a hold passes through.
    topics = [
        NewTopic(
            namespace.topic(topic), num_partitions=topic.num_partitions, replication_factor=1, config=topic.config()
        )
        for topic in (CONTROL_CELLS, CONTROL_WINDOWS, *OUTPUT_TOPICS)
    ]
    for future in admin.create_topics(topics).values():
        future.result(30)
    with DurableProducer(producer_config(config)) as producer:
        for cell in CELLS:
            declared = CellDeclaration(
                cell=cell, window_ms=WINDOW_MS, revisions=[CellRevision(from_window=0, limits=LIMITS)]
            )
            producer.send(namespace.topic(CONTROL_CELLS), declared, key=cell.encode())

    order = ("--cell", "us-east", "--reason", "a drill", "--for", "5m", "--json")
    (row,) = json.loads(verb("override", "--candidates", "300", *order))

    (message,) = read_to_end(config, namespace.topic(CONTROL_WINDOWS))
    assert (message.partition(), message.offset()) == (row["partition"], row["offset"])
    assert message.partition() == partition_for(b"us-east", CONTROL_WINDOWS.num_partitions)
    window = believed(raw_record(message), num_partitions=CONTROL_WINDOWS.num_partitions, skew_ms=0)
    assert isinstance(window, ControlWindow)

    # As the agent would: the command, then two ticks, and what they lead to.
    index = time.time_ns() // 1_000_000 // WINDOW_MS - 2
    state, _ = apply(CellState(cell="us-east"), window)
    with DurableProducer(producer_config(config)) as producer:
        for tick in (index, index + 1):
            for closed in (capacity_window(tick), latency_window(tick)):
                producer.send(namespace.topic(CONTROL_WINDOWS), closed, key=b"us-east")
                state, records = apply(state, closed)
                for record in records:
                    topic, key = destination(record)
                    producer.send(namespace.topic(topic), record, key=key)
                    if isinstance(record, CandidateTarget):
                        assert (record.candidate_target, record.reason) == (300, "operator")
    (held,) = json.loads(verb("list", "--json"))
    assert (held["operator"], held["reason"], held["target"]) == ("ada", "a drill", 300)
    # On a busy machine the target may have run out by now.
    assert held["is_applied"] is not held["is_target_expired"]

    verb("freeze", "--all", "--reason", "a release", "--for", "1h")
    verb("resume", "--cell", "us-east")
    (left,) = verb("list").splitlines()
    assert left.startswith("eu-west")
    assert left.endswith("by ada: a release [no target yet]")
    decoder = Decoder(CONTROL_WINDOWS.record_types)
    said = [decoder.decode(message.value()) for message in read_to_end(config, namespace.topic(CONTROL_WINDOWS))]
    assert sum(window.kind == "command" for window in said if isinstance(window, ControlWindow)) == 4
