"""What the local broker is told: server.properties and the JVM's command line, as text. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LOOPBACK: Final = "127.0.0.1"

# Measured on two shared cores, Java 17, Kafka 4.1.1. Format and start until usable: 6.0 s without flags, 4.8 s with
# the first compiler tier and the serial collector, 2.7 s with a class archive on top. Serving 400 records/s of
# 4 kB, CPU seconds per 5 s: 4.5 to 8.6 without flags, 2.6 to 4.1 with them.
JVM_FLAGS: Final = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

_LOG_FLAGS: Final = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    "-Dorg.slf4j.simpleLogger.showThreadName=false",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server=info",
)


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """One broker: its two loopback ports and its data folder."""

    port: int
    controller_port: int
    data_dir: Path

    @property
    def bootstrap(self) -> str:
        """Returns what a client connects to."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def properties_path(self) -> Path:
        """Returns the path of server.properties; it also marks the process in its command line."""
        return self.data_dir / "server.properties"

    @property
    def log_path(self) -> Path:
        """Returns the path of what the JVM prints."""
        return self.data_dir / "broker.log"

    @property
    def storage_dir(self) -> Path:
        """Returns the folder of Kafka's own files."""
        return self.data_dir / "kafka"

    @property
    def is_formatted(self) -> bool:
        """Returns whether Kafka's storage folder has been formatted."""
        return (self.storage_dir / "meta.properties").exists()


def shared_properties() -> dict[str, object]:
    """Returns what every broker of ours is told, wherever it runs: one node that is broker and controller."""
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        # Every topic is created as the contract says before it is used.
        "auto.create.topics.enable": "false",
        # One broker: one copy.
        "default.replication.factor": 1,
        "min.insync.replicas": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        # Fewer internal partitions to create and to load: 50 of each by default.
        "offsets.topic.num.partitions": 8,
        "transaction.state.log.num.partitions": 2,
        "share.coordinator.state.topic.num.partitions": 2,
        # A record as large as our producers may send: 1 MiB by default.
        "message.max.bytes": 4 << 20,
        # A group starts at once; short sessions are allowed: a killed member is replaced in a second or two.
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1000,
        "group.consumer.min.session.timeout.ms": 1000,
        "group.consumer.min.heartbeat.interval.ms": 100,
        # After kill -9 the controller takes the broker back when its old session is over: 9 s by default.
        "broker.session.timeout.ms": 2000,
        "broker.heartbeat.interval.ms": 500,
        # A machine of a few cores, a heap of half a gigabyte; the cleaner alone would take 128 MiB of it.
        "num.network.threads": 2,
        "num.io.threads": 4,
        "background.threads": 2,
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
    }


def render_properties(settings: BrokerSettings) -> str:
    """Returns server.properties for a process of this machine, bound to loopback alone."""
    listeners = f"PLAINTEXT://{settings.bootstrap},CONTROLLER://{LOOPBACK}:{settings.controller_port}"
    properties = {
        **shared_properties(),
        "listeners": listeners,
        "advertised.listeners": listeners,
        "controller.quorum.bootstrap.servers": f"{LOOPBACK}:{settings.controller_port}",
        "log.dirs": settings.storage_dir,
    }
    return "".join(f"{key}={value}\n" for key, value in properties.items())


def java_command(java: Path, *, jars: Sequence[Path], main_class: str, jvm_flags: Sequence[str]) -> list[str]:
    """Returns the command up to the main class; its arguments follow."""
    # An explicit order: the class archive is valid only for the same class path.
    class_path = ":".join(str(jar) for jar in sorted(jars))
    return [str(java), *JVM_FLAGS, *_LOG_FLAGS, *jvm_flags, "-cp", class_path, main_class]


def format_command(java: list[str], settings: BrokerSettings, *, cluster_id: str) -> list[str]:
    """Returns the whole command that formats the storage folder, given the command up to the main class."""
    properties = str(settings.properties_path)
    return [*java, "format", "--standalone", "--ignore-formatted", "-t", cluster_id, "-c", properties]


def telling_line(log: str) -> str:
    """Returns the line of a broker's log that says best why it ended, empty when there is none.

    The first cause is the most telling one, and Java prints it last: "Caused by:".
    """
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    for marks in (("Caused by:",), ("Exception", "Error:"), ("ERROR", "FATAL")):
        found = [line for line in lines if any(mark in line for mark in marks)]
        if found:
            return found[-1]
    return lines[-1] if lines else ""
