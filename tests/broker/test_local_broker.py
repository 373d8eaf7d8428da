"""The local broker as a process: start, stop, kill -9, leftovers, adoption, restart with its data."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ops.broker import jvm
from ops.broker.local import LocalBroker, default_data_dir
from ops.broker.locate import find_broker, require_broker
from ops.broker.prerequisites import BrokerError

pytestmark = pytest.mark.usefixtures("java_and_jars")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    """A broker on a data folder of its own, not started; ended whatever the test did."""
    local = LocalBroker(tmp_path / "broker")
    yield local
    local.kill()


@pytest.fixture
def no_bootstrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without KAFKA_BOOTSTRAP whose user has started no broker; returns the user's state folder."""
    monkeypatch.delenv("KAFKA_BOOTSTRAP", raising=False)
    monkeypatch.setenv("INTERTIDAL_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("INTERTIDAL_BROKER", "jvm")
    return tmp_path


def write(bootstrap: str, value: bytes) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(timeout=20)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    errors: list[object] = []
    producer.produce("kept", value, on_delivery=lambda error, _: errors.append(error))
    producer.flush(20)
    assert errors == [None]


def read(bootstrap: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("kept", 0, 0)])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None
    assert message.error() is None
    return message.value()


def is_running(broker: LocalBroker) -> bool:
    return broker.pid is not None


def test_data_and_port_survive_a_stop_and_a_crash(broker: LocalBroker) -> None:
    broker.start()
    bootstrap = broker.bootstrap
    write(bootstrap, b"before")

    assert broker.stop()
    assert not is_running(broker)
    assert not broker.stop()

    broker.start()
    assert broker.bootstrap == bootstrap
    assert read(bootstrap) == b"before"

    pid = broker.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    # Who comes after a crash is not the parent and cannot wait for the process; its pid is still remembered.
    assert json.loads((broker.data_dir / "broker.json").read_text())["pid"] == pid
    later = LocalBroker(broker.data_dir).start()
    assert later.pid not in (None, pid)
    assert later.bootstrap == bootstrap
    assert read(bootstrap) == b"before"


def test_a_pid_that_now_belongs_to_another_is_left_alone(broker: LocalBroker) -> None:
    with subprocess.Popen(["sleep", "60"]) as bystander:
        broker.data_dir.mkdir()
        state = {"port": jvm.free_port(), "controller_port": jvm.free_port(), "pid": bystander.pid}
        (broker.data_dir / "broker.json").write_text(json.dumps(state))
        assert not is_running(broker)
        assert not broker.stop()
        broker.start()
        assert broker.bootstrap == f"127.0.0.1:{state['port']}"
        assert broker.pid not in (None, bystander.pid)
        assert broker.stop()
        assert bystander.poll() is None
        bystander.kill()


def test_a_broker_that_is_just_ending_is_not_adopted(broker: LocalBroker) -> None:
    broker.start()
    broker.stop()
    state = json.loads((broker.data_dir / "broker.json").read_text())
    # By its command line it is the broker; it never listens, and goes after a moment.
    argv = [sys.executable, "-c", "import time; time.sleep(2.0)", str(broker.data_dir / "server.properties")]
    with subprocess.Popen(argv) as ending:
        (broker.data_dir / "broker.json").write_text(json.dumps({**state, "pid": ending.pid}))
        # Until it has become the other program it is a copy of this one.
        deadline_s = time.monotonic() + 10.0
        while broker.pid != ending.pid:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        later = LocalBroker(broker.data_dir)
        reaper = threading.Thread(target=ending.wait)
        reaper.start()
        later.start()
        reaper.join()
        assert later.pid not in (None, ending.pid)


def test_two_at_once_are_apart_and_listen_on_loopback_alone(broker: LocalBroker) -> None:
    with LocalBroker() as other:
        broker.start()
        assert broker.bootstrap != other.bootstrap
        write(broker.bootstrap, b"first")
        write(other.bootstrap, b"second")
        assert read(broker.bootstrap) == b"first"
        assert read(other.bootstrap) == b"second"
        assert other.pid is not None
        listeners = _listening_addresses(other.pid)
        assert len(listeners) == 2
        # ::ffff:127.0.0.1 as the kernel prints it.
        assert set(listeners) <= {"0100007F", "0000000000000000FFFF00000100007F"}
        folder = other.data_dir
    assert not folder.exists()


def test_topics_are_not_created_by_using_them(kafka: str, topic_prefix: str) -> None:
    errors: list[KafkaError | None] = []
    # Long enough that a broker which does create topics would have done so, and the record would be delivered.
    producer = Producer({"bootstrap.servers": kafka, "topic.metadata.propagation.max.ms": 3000})
    try:
        producer.produce(f"{topic_prefix}absent", b"x", on_delivery=lambda error, _: errors.append(error))
    except KafkaException as error:
        errors.append(error.args[0])
    producer.flush(10)
    assert [error.code() for error in errors if error] == [KafkaError.UNKNOWN_TOPIC_OR_PART]
    assert f"{topic_prefix}absent" not in AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=10).topics


def test_a_port_in_use_is_named(broker: LocalBroker, kafka: str) -> None:
    port = int(kafka.rpartition(":")[2])
    with pytest.raises(BrokerError, match=f"port {port} on 127.0.0.1 is in use"):
        LocalBroker(broker.data_dir, port=port).start()


def test_a_start_that_fails_names_the_log_and_its_telling_line(broker: LocalBroker) -> None:
    (broker.data_dir / "kafka").mkdir(parents=True)
    (broker.data_dir / "kafka" / "meta.properties").write_text("version=77\n")
    with pytest.raises(BrokerError, match=r"ended while it started, see .*/broker\.log: .*meta\.properties") as raised:
        broker.start()
    assert "\n" not in str(raised.value)
    assert broker.pid is None


def test_who_comes_later_adopts_a_live_broker_and_can_stop_it(no_bootstrap: Path) -> None:
    started = run_verb("start")
    folder = default_data_dir()
    try:
        assert (started.returncode, started.stderr) == (0, "")
        pid = LocalBroker(folder).pid
        assert LocalBroker(folder).start().pid == pid
        assert run_verb("start").stdout == started.stdout
        assert run_verb("status").stdout == started.stdout
        with pytest.raises(BrokerError, match="already runs on"):
            LocalBroker(folder, port=jvm.free_port()).start()
        # What is running is used, and left running.
        with find_broker() as found:
            assert found.bootstrap == started.stdout.strip()
        assert require_broker().bootstrap == started.stdout.strip()
    finally:
        stopped = run_verb("stop")
    assert (stopped.returncode, stopped.stdout) == (0, "stopped\n")
    assert run_verb("status").returncode == 1
    with pytest.raises(BrokerError, match="intertidal broker start"):
        require_broker()


def run_verb(verb: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "ops.cli", "broker", verb]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)


def _listening_addresses(pid: int) -> list[str]:
    """Returns the local addresses, in the kernel's notation, that the process listens on."""
    sockets = {str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()}
    tables = [Path(f"/proc/{pid}/net/{name}").read_text() for name in ("tcp", "tcp6")]
    lines = [line.split() for table in tables for line in table.splitlines()]
    # Columns of /proc/net/tcp: 1 local address, 3 state (0A listens), 9 inode.
    return [line[1].partition(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in sockets]
