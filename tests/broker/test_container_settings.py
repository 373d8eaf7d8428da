"""What a container's broker is told, believed by the start program of the image itself, which is among Kafka's jars.

No engine is needed: in place of the container runs the image's own program, with the environment that was asked for.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from ops.broker.docker_broker import DockerBroker
from ops.broker.installation import Installation, ensure_installation
from ops.broker.settings import shared_properties
from tests.fake_docker import FakeContainer, FakeEngine

pytestmark = pytest.mark.usefixtures("java_and_jars")


class Image:
    """Does what the image does when its container starts: server.properties of the environment, format, run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._installation: Installation = ensure_installation()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, container: FakeContainer) -> None:
        # A network and a disk of its own are what only a container has.
        listeners = container.environment["KAFKA_LISTENERS"].replace("0.0.0.0", "127.0.0.1")
        environment = {
            **container.environment,
            "KAFKA_LISTENERS": listeners,
            "KAFKA_LOG_DIRS": str(self._folder / "data"),
            "CLUSTER_ID": "iTestTestTestTestTestTg",
        }
        folders = {name: self._folder / name for name in ("default", "mounted", "final")}
        for folder in folders.values():
            folder.mkdir()
        for name in ("server.properties", "log4j2.yaml", "tools-log4j2.yaml"):
            (folders["default"] / name).touch()
        setup = self._installation.command("kafka.docker.KafkaDockerWrapper")
        arguments = ["setup", "-D", folders["default"], "-M", folders["mounted"], "-F", folders["final"]]
        done = subprocess.run(
            [*setup, *map(str, arguments)], env=environment, capture_output=True, text=True, check=False
        )
        assert "Formatting metadata directory" in done.stdout + done.stderr, done.stdout + done.stderr
        command = [*self._installation.command("kafka.Kafka"), str(folders["final"] / "server.properties")]
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self, _: FakeContainer) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerBroker]:
    pytest.importorskip("testcontainers")
    image = Image(tmp_path)
    with FakeEngine(on_start=image.start, on_stop=image.stop) as engine:
        monkeypatch.setenv("DOCKER_HOST", engine.host)
        broker = DockerBroker(tmp_path / "broker")
        try:
            yield broker.start()
        finally:
            broker.remove()


def test_the_image_makes_the_same_settings_of_it_and_its_broker_works(broker: DockerBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (described,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
    actual = {name: entry.value for name, entry in described.result(30).items()}
    told = {name: str(value) for name, value in shared_properties().items()}
    assert {name: actual.get(name) for name in told} == told
    assert actual["advertised.listeners"] == f"PLAINTEXT://{broker.bootstrap}"

    admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(30)
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    producer.produce("kept", b"value", on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert errors == [None]
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "session.timeout.ms": 1000})
    consumer.assign([TopicPartition("kept", 0, 0)])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    assert message.value() == b"value"
