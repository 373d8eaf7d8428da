"""Verbs against a real broker: what they do, and one clear line with exit code 1 where they cannot."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from schemas.kafka.admin import TopicAdmin
from schemas.kafka.config import BOOTSTRAP_ENV, NAMESPACE_ENV
from schemas.topics import Namespace, planned_topics

Verb = Callable[..., "subprocess.CompletedProcess[str]"]
LIMITS = ("--base", "64", "--max", "512", "--latency-limit-ms", "150")


@pytest.fixture
def verb(kafka: str, topic_prefix: str) -> Verb:
    """Runs `intertidal` in a namespace of this test's own."""

    def run(*arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "ops.cli", *arguments],
            env={**os.environ, BOOTSTRAP_ENV: kafka, NAMESPACE_ENV: topic_prefix, **environ},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield int(held.getsockname()[1])


def refused(done: "subprocess.CompletedProcess[str]") -> str:
    """The one line of a failure."""
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    # A part's log stands above; the failure is its last line.
    return done.stderr.strip().splitlines()[-1]


def test_topics_are_created_once_and_checked(verb: Verb, topic_prefix: str) -> None:
    missing = verb("topics", "check", "--json")
    assert missing.returncode == 1
    expected = {planned.name for planned in planned_topics(Namespace(topic_prefix))}
    assert {row["topic"] for row in json.loads(missing.stdout)} == expected
    created = verb("topics", "create")
    assert (created.returncode, set(created.stdout.split())) == (0, expected)
    assert verb("topics", "create").stdout == ""
    checked = verb("topics", "check", "--json")
    assert (checked.returncode, json.loads(checked.stdout)) == (0, [])


def test_a_topic_of_another_shape_is_named(verb: Verb, kafka: str, topic_prefix: str) -> None:
    name = f"{topic_prefix}fleet.capacity"
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(name, num_partitions=3, replication_factor=1)])[name].result(30)
    assert verb("topics", "create").returncode == 0
    checked = verb("topics", "check")
    assert checked.returncode == 1
    assert checked.stdout.splitlines() == [
        f"{name}: partitions is 3, should be 8",
        f"{name}: message.timestamp.type is CreateTime, should be LogAppendTime",
    ]
    assert name in refused(verb("run", "ingest", "--id", "i"))


def test_cells_are_added_listed_and_retired(verb: Verb) -> None:
    assert verb("topics", "create").returncode == 0
    assert verb("cells", "add", "us-east", *LIMITS, "--provider", "own").returncode == 0
    (cell,) = json.loads(verb("cells", "list", "--json").stdout)
    assert (cell["cell"], cell["window_ms"], cell["providers"]) == ("us-east", 10_000, ["own"])
    assert cell["revisions"][-1]["limits"]["max_candidates"] == 512
    assert verb("cells", "retire", "us-east").returncode == 0
    assert "already retired" in refused(verb("cells", "retire", "us-east"))
    assert "us-west is not declared" in refused(verb("cells", "retire", "us-west"))
    assert "cell: " in refused(verb("cells", "add", "US-East", *LIMITS))
    assert verb("cells", "add", "us-east", "--base", "64").returncode == 2


@pytest.mark.parametrize(
    "part",
    [
        ("ingest", "--id", "i"),
        ("router", "--id", "r"),
        ("control", "--id", "c", "--data-dir", "DIR"),
        ("ranker", "--id", "w", "--route", "baseline", "--cell", "us-east", "--bundle", "BUNDLE"),
    ],
    ids=lambda part: part[0],
)
def test_a_part_without_its_topics_says_so(verb: Verb, tmp_path: Path, part: tuple[str, ...]) -> None:
    from ops.demo.parts import BUNDLE

    places = {"DIR": str(tmp_path), "BUNDLE": str(BUNDLE)}
    line = refused(verb("run", *(places.get(word, word) for word in part)))
    assert "topic" in line
    assert "intertidal topics create" in line


def test_a_broker_that_is_not_there_is_named(verb: Verb, taken_port: int) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{free.getsockname()[1]}"
        for arguments in (("topics", "check"), ("cells", "list")):
            assert nobody in refused(verb(*arguments, KAFKA_BOOTSTRAP=nobody))


def test_a_health_port_in_use_is_named(verb: Verb, taken_port: int) -> None:
    assert verb("topics", "create").returncode == 0
    assert verb("cells", "add", "us-east", *LIMITS).returncode == 0
    for part in ("ingest", "router"):
        line = refused(verb("run", part, "--id", "x", "--health-port", str(taken_port)))
        assert "in use" in line
        assert str(taken_port) in line


def test_topics_of_a_namespace_are_deleted_and_those_of_others_are_not(
    verb: Verb, kafka: str, topic_prefix: str
) -> None:
    assert verb("topics", "create").returncode == 0
    admin = TopicAdmin({"bootstrap.servers": kafka})
    admin.create(Namespace(f"x{topic_prefix}"))
    admin.delete(Namespace(topic_prefix))
    # A deletion is acknowledged by the controller; the broker that is asked hears of it a moment later.
    deadline_s = time.monotonic() + 20.0
    left = set(admin.existing())
    while any(name.startswith(topic_prefix) for name in left):
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
        left = set(admin.existing())
    assert {planned.name for planned in planned_topics(Namespace(f"x{topic_prefix}"))} <= left
    with pytest.raises(ValueError, match="namespace with a prefix"):
        admin.delete(Namespace())
