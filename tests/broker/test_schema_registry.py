"""A real Schema Registry: as a process, as a judge of schemas, and away while readers run."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message

from ops.broker.prerequisites import BrokerError
from ops.broker.registry import LocalRegistry, registry_dir
from ranking.client.targets import TargetsView
from schemas.avro import encode_body
from schemas.compatibility.resolution import disagreements
from schemas.framing import decode_as, encode, use_registry
from schemas.kafka.admin import TopicAdmin
from schemas.kafka.config import producer_config
from schemas.kafka.producer import DurableProducer
from schemas.kafka.ranges import read_to_end
from schemas.kafka.registry import Registry
from schemas.kafka.registry_api import RegistryApi, SchemaRefusedError, registry_settings
from schemas.partition import partition_for
from schemas.records import CandidateTarget, CapacityEvent, CellDeclaration, CellLimits, CellRevision, ControlWindow
from schemas.registered import contract_types, registered_schema, subject
from schemas.settings import TimeSettings
from schemas.topics import (
    CONTROL_CELLS,
    CONTROL_PARTITIONS,
    CONTROL_TARGETS,
    CONTROL_WINDOWS,
    FLEET_CAPACITY,
    Namespace,
)

pytest.importorskip("confluent_kafka.schema_registry", reason="the registry's client is an extra")
# Its archive may have to be fetched first.
pytestmark = pytest.mark.timeout(600)

WAIT_S = 60.0
# However slow the machine: no host falls silent and no target expires while a registry starts again.
TIME = TimeSettings(window_ms=500, lateness_ms=100, clock_silence_ms=200, skew_ms=30_000, host_ttl_ms=600_000)
VALIDITY_MS = 600_000
LIMITS = CellLimits(base_candidates=100, max_candidates=500, latency_limit_ms=200.0)
INGEST = """
import sys
from ops.telemetry.logs import set_up_logging
from schemas.settings import TimeSettings
from schemas.topics import Namespace
from streams.ingest.worker import IngestOptions, run
set_up_logging("ingest")
prefix, port = sys.argv[1:]
run(IngestOptions(namespace=Namespace(prefix), time=TimeSettings.from_env(), worker_id="i-0", health_port=int(port)))
"""


@pytest.fixture(scope="module")
def local(java_and_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRegistry]:
    """A registry for this file, whose schemas outlive a kill."""
    # Where `intertidal broker start --registry` has it, under a state folder of this file's own.
    registry = LocalRegistry(registry_dir(tmp_path_factory.mktemp("state") / "broker"))
    try:
        registry.start()
    except BrokerError as error:
        if "Maven" in str(error):
            pytest.skip(str(error))
        raise
    yield registry
    registry.stop()


@pytest.fixture(scope="module")
def api(local: LocalRegistry) -> RegistryApi:
    settings = registry_settings({"SCHEMA_REGISTRY_URL": local.url})
    assert settings is not None
    return RegistryApi(settings)


# Two versions of one record, and whether every reader of each can read the other.


def record(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "namespace": "judged", "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def nested(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "N", "fields": list(fields)}


A = field("a", "long")
B = field("b", "string", default="")
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "nothing but the order of fields": (record(A, B), record(B, A), True),
    "words": (record(A), record(A, doc="said better"), True),
    "a field with a default": (record(A), record(A, B), True),
    "a field without a default": (record(A), record(A, field("b", "string")), False),
    "a field with a default goes": (record(A, B), record(A), True),
    "a field without a default goes": (record(A, field("b", "string")), record(A), False),
    "a nullable field": (record(A), record(A, field("c", ["null", "long"], default=None)), True),
    "int becomes long": (record(field("a", "int")), record(A), False),
    "long becomes string": (record(A), record(field("a", "string")), False),
    "string becomes bytes": (record(field("a", "string")), record(field("a", "bytes")), True),
    "a rename": (record(A), record(field("z", "long")), False),
    "a rename with an alias on one side": (record(A), record(field("z", "long", aliases=["a"])), False),
    "another record": (record(A), record(A, name="Other"), False),
    "a symbol": (record(field("e", enum("x"))), record(field("e", enum("x", "y"))), False),
    "a symbol, with a default": (
        record(field("e", enum("x", default="x"))),
        record(field("e", enum("x", "y", default="x"))),
        True,
    ),
    "a wider union": (record(field("u", ["null", "long"])), record(field("u", ["null", "long", "string"])), False),
    "long becomes nullable": (record(A), record(field("a", ["null", "long"])), False),
    "in a nested record, a field with a default": (
        record(field("n", nested(A))),
        record(field("n", nested(A, B))),
        True,
    ),
    "in a nested record, a field without one": (
        record(field("n", nested(A))),
        record(field("n", nested(A, field("b", "string")))),
        False,
    ),
    "in an array, a type": (
        record(field("m", {"type": "array", "items": nested(A)})),
        record(field("m", {"type": "array", "items": nested(field("a", "string"))})),
        False,
    ),
}


def test_our_gate_and_the_registry_agree(api: RegistryApi) -> None:
    registry_says, we_say = {}, {}
    for number, (change, (before, after, _)) in enumerate(CHANGES.items()):
        api.find_or_register(f"judged.{number}", json.dumps(before))
        try:
            api.find_or_register(f"judged.{number}", json.dumps(after))
        except SchemaRefusedError:
            registry_says[change] = False
        else:
            registry_says[change] = True
        we_say[change] = not disagreements(before, after) and not disagreements(after, before)
    assert registry_says == we_say == {change: expected for change, (_, _, expected) in CHANGES.items()}


def test_a_schema_of_ours_that_breaks_the_contract_is_refused_by_both(api: RegistryApi) -> None:
    ours = registered_schema(CapacityEvent)
    api.find_or_register(subject(CapacityEvent), json.dumps(ours))
    broken = {**ours, "fields": [each for each in ours["fields"] if each["name"] != "cell"]}
    assert [each.path for each in disagreements(ours, broken)] == ["cell"]
    with pytest.raises(SchemaRefusedError):
        api.find_or_register(subject(CapacityEvent), json.dumps(broken))


# A registry that is away.


def event(cell: str, host: str) -> CapacityEvent:
    now_ms = time.time_ns() // 1_000_000
    return CapacityEvent(
        cell=cell, host=host, epoch_ms=now_ms, seq=1, event_time_ms=now_ms, kind="heartbeat", offers=[]
    )


def foreign(api: RegistryApi, record_type: Any, added: str) -> int:
    """Id of a later version of one of our records, as somebody else has registered it."""
    ours = registered_schema(record_type)
    later = {**ours, "fields": [*ours["fields"], field(added, "long", default=0)]}
    return api.find_or_register(subject(record_type), json.dumps(later))


def framed(schema_id: int, value: Any) -> bytes:
    """A record of that later version: ours, and a seven."""
    return b"\0" + schema_id.to_bytes(4, "big") + encode_body(value) + b"\x0e"


class Health:
    """What a part says of itself."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]

    def reasons(self) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=10) as answer:
                return str(answer.read())
        except urllib.error.HTTPError as error:
            return str(error.read())
        except OSError:
            return "not there"


def until(what: str, holds: Any) -> Any:
    """Wait for something that is going to be true; returns it."""
    deadline_s = time.monotonic() + WAIT_S
    while not (found := holds()):
        assert time.monotonic() < deadline_s, f"never: {what}"
        time.sleep(0.1)
    return found


@pytest.fixture
def registry(api: RegistryApi) -> Iterator[Registry]:
    """The registry in use in this process, which frames and reads as a part does."""
    registry = Registry(api, record_types=contract_types())
    registry.start()
    use_registry(registry)
    yield registry
    use_registry(None)
    registry.close()


def target(cell: str, candidates: int) -> CandidateTarget:
    now_ms = time.time_ns() // 1_000_000
    return CandidateTarget(
        cell=cell,
        window_index=now_ms // 500,
        window_end_ms=now_ms,
        valid_until_ms=now_ms + VALIDITY_MS,
        base_candidates=100,
        max_candidates=500,
        candidate_target=candidates,
        extra_budget_units_s=1.0,
        coverage=0.0,
        segment_shares=[],
        reason="steady",
        detail="",
        manifest=[],
        latency_limit_ms=200.0,
        latency_p99_ms=None,
        request_rate_per_s=1.0,
        controller_version="test",
    )


def cells_apart() -> tuple[str, str]:
    """Two cells whose keys lead to different partitions."""
    names = [f"cell-{number}" for number in range(20)]
    first = names[0]
    home = partition_for(first.encode(), CONTROL_PARTITIONS)
    return first, next(name for name in names if partition_for(name.encode(), CONTROL_PARTITIONS) != home)


def test_readers_outlive_a_registry_that_is_killed(
    local: LocalRegistry,
    api: RegistryApi,
    registry: Registry,
    kafka: str,
    topic_prefix: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both framings in one topic; then a kill: what is known is read on, what is not waits, and is read at last."""
    namespace, config = Namespace(topic_prefix), {"bootstrap.servers": kafka, "client.id": "test"}
    TopicAdmin(config).create(namespace, replication_factor=1)
    known_id = foreign(api, CapacityEvent, "seen_before")
    known_target_id = foreign(api, CandidateTarget, "seen_before")
    unknown_ids = foreign(api, CapacityEvent, "not_seen"), foreign(api, CandidateTarget, "not_seen")
    here, there = cells_apart()
    producer = DurableProducer(producer_config(config))
    capacity, targets_topic = namespace.topic(FLEET_CAPACITY), namespace.topic(CONTROL_TARGETS)

    def send(topic: str, value: Any, cell: str) -> None:
        producer.send(topic, value, key=cell.encode())
        producer.drain()

    def last_windows() -> dict[str, int]:
        """Hosts in the last capacity window of each cell."""
        found = {}
        for message in read_to_end(config, namespace.topic(CONTROL_WINDOWS)):
            window = decode_as(message.value(), ControlWindow)
            if window.capacity is not None:
                found[window.cell] = window.capacity.num_hosts
        return found

    for cell in (here, there):
        revisions = [CellRevision(from_window=0, limits=LIMITS)]
        declared = CellDeclaration(cell=cell, window_ms=TIME.window_ms, revisions=revisions)
        send(namespace.topic(CONTROL_CELLS), declared, cell)
    health = Health()
    environ = {**os.environ, **TIME.to_env(), "KAFKA_BOOTSTRAP": kafka, "SCHEMA_REGISTRY_URL": local.url}
    monkeypatch.setenv("KAFKA_BOOTSTRAP", kafka)
    arguments = [sys.executable, "-c", INGEST, namespace.prefix, str(health.port)]
    with subprocess.Popen(arguments, env=environ) as ingest, TargetsView(namespace) as targets:
        try:
            # Both framings, and a version that somebody else has registered, in one topic.
            send(capacity, encode(event(here, "single-object")), here)
            send(capacity, event(here, "confluent"), here)
            send(capacity, framed(known_id, event(here, "later")), here)
            send(targets_topic, encode(target(here, 110)), here)
            send(targets_topic, framed(known_target_id, target(there, 120)), there)
            first_bytes = {(message.value() or b"")[:1] for message in read_to_end(config, capacity)}
            assert first_bytes == {b"\xc3", b"\0"}
            until("three hosts", lambda: last_windows().get(here) == 3)
            until("both targets", lambda: (targets.valid(here), targets.valid(there)).count(None) == 0)

            assert local.pid is not None
            os.kill(local.pid, signal.SIGKILL)
            until("the registry is gone", lambda: local.pid is None)
            # What is known goes on.
            send(capacity, event(here, "confluent, away"), here)
            send(capacity, framed(known_id, event(here, "later, away")), here)
            send(targets_topic, target(here, 210), here)
            until("five hosts", lambda: last_windows().get(here) == 5)
            until("the new target", lambda: _candidates(targets, here) == 210)
            # What is not waits, with its partition alone, and says so.
            send(capacity, framed(unknown_ids[0], event(there, "unknown")), there)
            send(capacity, encode(event(there, "behind it")), there)
            send(targets_topic, framed(unknown_ids[1], target(there, 220)), there)
            until("it says that it waits", lambda: f"schema id {unknown_ids[0]} is not known yet" in health.reasons())
            send(capacity, encode(event(here, "meanwhile")), here)
            until("six hosts", lambda: last_windows().get(here) == 6)
            assert last_windows()[there] == 0
            assert _candidates(targets, there) == 120

            local.start()
            until("the two that waited", lambda: last_windows()[there] == 2)
            until("the target that waited", lambda: _candidates(targets, there) == 220)
            until("ready again", lambda: "not known yet" not in health.reasons())
            assert _dead_letters(config, namespace) == []
        finally:
            ingest.terminate()
    assert ingest.returncode == 0


def _candidates(targets: TargetsView, cell: str) -> int | None:
    found = targets.valid(cell)
    return found.candidate_target if found is not None else None


def _dead_letters(config: dict[str, Any], namespace: Namespace) -> list[Message]:
    topics = (FLEET_CAPACITY, CONTROL_TARGETS)
    return [letter for topic in topics for letter in read_to_end(config, namespace.dead_letters(topic))]


# The registry as a process. Last in this file: it is stopped here.


def test_a_registry_is_adopted_stopped_and_found_again(local: LocalRegistry) -> None:
    pid, url = local.pid, local.url
    later = LocalRegistry(local.data_dir)
    assert later.start().pid == pid
    with pytest.raises(BrokerError, match="already runs on"):
        LocalRegistry(local.data_dir, port=1).start()
    taken = int(url.partition("127.0.0.1:")[2].partition("/")[0])
    with pytest.raises(BrokerError, match=f"port {taken} on 127.0.0.1 is in use"):
        LocalRegistry(local.data_dir / "another", port=taken).start()
    shown = run_verb("status", "--registry", state_dir=local.data_dir.parent.parent)
    assert (shown.returncode, shown.stdout) == (0, f"{url}\n")
    # Who is not its parent stops it; its parent must take the exit status.
    reaper = threading.Thread(target=lambda: until("ended", lambda: local.pid is None))
    reaper.start()
    stopped = run_verb("stop", state_dir=local.data_dir.parent.parent)
    reaper.join()
    assert (stopped.returncode, stopped.stdout) == (0, "stopped\n")
    assert run_verb("status", "--registry", state_dir=local.data_dir.parent.parent).returncode == 1
    assert not later.stop()
    assert Path(local.data_dir / "schemas.mv.db").exists()


def run_verb(*arguments: str, state_dir: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "ops.cli", "broker", *arguments]
    environ = {**os.environ, "INTERTIDAL_STATE_DIR": str(state_dir)}
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False, env=environ)


def test_a_pid_that_now_belongs_to_another_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as bystander:
        (tmp_path / "registry.json").write_text(json.dumps({"port": 1, "pid": bystander.pid}))
        registry = LocalRegistry(tmp_path)
        assert registry.pid is None
        assert not registry.stop()
        assert bystander.poll() is None
        bystander.kill()
