"""The examples outside Python, run as their page says: what Java sends we take, what we send Java reads."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ops.broker.maven import MavenJars
from ops.broker.prerequisites import BrokerError, find_java
from schemas.avro import avro_schema
from schemas.framing import encode
from schemas.kafka.admin import TopicAdmin
from schemas.kafka.config import producer_config
from schemas.kafka.producer import DurableProducer
from schemas.kafka.ranges import read_to_end
from schemas.partition import partition_for
from schemas.records import CapacityEvent, ClockRecord, RankingResult
from schemas.settings import TimeSettings
from schemas.topics import FLEET_CAPACITY, RANKING_RESULTS, Namespace
from streams.ingest.capacity import CapacityKind
from streams.ingest.partition import RawRecord, recompute
from tests.unit.streams.ingest_makers import capacity_of, cells_of, declaration

ROOT = Path(__file__).parents[2]
JAVA = ROOT / "docs/examples/java"
GOLDEN = json.loads((ROOT / "tests/contract/golden_records.json").read_text(encoding="utf-8"))
TIME = TimeSettings(window_ms=1_000, lateness_ms=200, heartbeat_ms=5_000, host_ttl_ms=60_000)
# The first fetch of the examples' jars is within it.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def class_path() -> str:
    """Class path of the examples; skips where there is no Java with its compiler, or no Maven and nothing fetched."""
    jars = MavenJars("java", JAVA / "pom.xml")
    try:
        java = find_java()
        fetched = jars.ensure()
    except BrokerError as error:
        pytest.skip(str(error))
    modules = subprocess.run([java.path, "--list-modules"], capture_output=True, text=True, timeout=60, check=True)
    if "jdk.compiler@" not in modules.stdout:
        pytest.skip("Java runs source files only with its compiler: apt-get install openjdk-17-jdk-headless")
    return ":".join(map(str, fetched))


@pytest.fixture
def space(kafka: str, topic_prefix: str) -> Iterator[Namespace]:
    """A namespace with the two topics of the examples."""
    namespace = Namespace(topic_prefix)
    admin = AdminClient({"bootstrap.servers": kafka})
    wanted = [
        NewTopic(namespace.topic(topic), topic.num_partitions, 1, config=topic.config())
        for topic in (FLEET_CAPACITY, RANKING_RESULTS)
    ]
    for future in admin.create_topics(wanted).values():
        future.result(30)
    TopicAdmin({"bootstrap.servers": kafka}).wait_until_served({topic.topic: topic.num_partitions for topic in wanted})
    yield namespace
    TopicAdmin({"bootstrap.servers": kafka}).delete(namespace)


def run_java(program: str, *arguments: object, kafka: str, space: Namespace, class_path: str, said: str = "") -> str:
    command = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", class_path, f"{JAVA / program}.java"]
    done = subprocess.run(
        [*command, *map(str, arguments)],
        env={**os.environ, "KAFKA_BOOTSTRAP": kafka, "INTERTIDAL_NAMESPACE": space.prefix},
        input=said,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def schema_file(folder: Path, record_type: type[msgspec.Struct]) -> Path:
    path = folder / f"{record_type.__name__}.avsc"
    path.write_text(json.dumps(avro_schema(record_type)), encoding="utf-8")
    return path


def test_what_java_reports_is_a_window_of_ours(kafka: str, space: Namespace, class_path: str, tmp_path: Path) -> None:
    cell = "us-east"
    arguments = (schema_file(tmp_path, CapacityEvent), cell, "host-1", "h200")
    said = "offer 4\nheartbeat 3\nreclaim 0\noffer 2\n"
    printed = run_java("CapacityReporter", *arguments, kafka=kafka, space=space, class_path=class_path, said=said)
    home = partition_for(cell.encode(), FLEET_CAPACITY.num_partitions)
    assert printed == f"offer {home} 0\nheartbeat {home} 1\nreclaim {home} 2\noffer {home} 3\n"

    sent = list(read_to_end({"bootstrap.servers": kafka}, space.topic(FLEET_CAPACITY)))
    log = [RawRecord(m.offset() or 0, m.timestamp()[1], m.key(), m.value()) for m in sent]
    declared = msgspec.structs.replace(declaration(cell), window_ms=TIME.window_ms)
    # A clock record closes the window of the last one.
    closing_ms = log[-1].append_ms + TIME.window_ms + TIME.lateness_ms
    log.append(RawRecord(4, closing_ms, None, encode(ClockRecord(writer="test"))))
    made = recompute(
        log,
        CapacityKind(),
        home,
        num_partitions=FLEET_CAPACITY.num_partitions,
        time=TIME,
        cells=cells_of(declared, window_ms=TIME.window_ms),
    )
    assert [refusal.error for refusal in made.refusals] == []
    assert made.num_duplicates == 0
    assert sum(capacity_of(window).num_events for window in made.windows) == 4
    last = capacity_of(made.windows[-1])
    (pool,) = last.pools
    assert (last.num_hosts, pool.accelerator, pool.units_micro) == (1, "h200", 2_000_000)
    assert pool.cpu_cores_micro == 16_000_000
    assert pool.memory_bytes == 2 * (64 << 30)


def test_java_reads_the_result_that_we_send(kafka: str, space: Namespace, class_path: str, tmp_path: Path) -> None:
    result = msgspec.convert(GOLDEN["RankingResult"]["record"], RankingResult)
    assert np.frombuffer(result.ad_ids, "<i8").size > 1
    producer = DurableProducer(producer_config({"bootstrap.servers": kafka}))
    producer.send(space.topic(RANKING_RESULTS), result, key=result.user_id.encode())
    producer.drain(30)

    printed = run_java(
        "ReadResults", schema_file(tmp_path, RankingResult), kafka=kafka, space=space, class_path=class_path
    )
    read = json.loads(printed)
    expected = msgspec.to_builtins(result, builtin_types=(bytes,))
    expected["ad_ids"] = np.frombuffer(result.ad_ids, "<i8").tolist()
    scores = read.pop("scores")
    assert np.array_equal(np.float32(scores), np.frombuffer(expected.pop("scores"), "<f4"))
    assert read == expected
