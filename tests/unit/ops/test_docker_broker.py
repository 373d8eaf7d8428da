"""The broker in a container against an engine of straw: what is asked of it, remembered, and said of a failure."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.broker import container_settings, jvm, locate
from ops.broker.choice import kept_broker, running_kept_broker
from ops.broker.container_settings import IMAGE, KAFKA_VERSION, container_environment, container_name
from ops.broker.docker_broker import DockerBroker
from ops.broker.local import LocalBroker
from ops.broker.prerequisites import BrokerError
from ops.broker.settings import shared_properties
from ops.errors import UserError
from tests.fake_docker import FakeContainer, FakeEngine

pytest.importorskip("testcontainers")

REAPER = "testcontainers/ryuk"


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEngine]:
    """A machine with an engine, without KAFKA_BOOTSTRAP and without a broker; a broker in it is usable at once."""
    for name in ("KAFKA_BOOTSTRAP", "INTERTIDAL_BROKER", "DOCKER_TLS_VERIFY", "TESTCONTAINERS_RYUK_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("INTERTIDAL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(jvm, "is_listening", lambda _: True)
    monkeypatch.setattr(jvm, "answers", lambda _: True)
    with FakeEngine() as engine:
        monkeypatch.setenv("DOCKER_HOST", engine.host)
        yield engine


@pytest.fixture
def no_reaper(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reaper turned off: it is a container that really has to run."""
    from testcontainers.core.config import testcontainers_config

    monkeypatch.setattr(testcontainers_config, "_ryuk_disabled", True)


def test_a_kept_broker_is_created_on_loopback_and_without_the_reaper(engine: FakeEngine, tmp_path: Path) -> None:
    broker = DockerBroker(tmp_path / "broker", port=19_111).start()
    (container,) = engine.containers.values()
    assert broker.bootstrap == "127.0.0.1:19111"
    assert container.image == IMAGE
    assert container.port_bindings == {"19111/tcp": [{"HostIp": "127.0.0.1", "HostPort": "19111"}]}
    assert container.environment == container_environment(19_111)
    assert not any(REAPER in asked for asked in engine.asked)
    assert broker.pid == 4711
    assert broker.log == f"docker logs {container.name}"


def test_a_broker_of_one_run_is_given_to_the_reaper(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    from testcontainers.core.container import Reaper

    given: list[str] = []
    monkeypatch.setattr(Reaper, "get_instance", lambda: given.append("reaper"))
    with DockerBroker() as broker:
        assert given == ["reaper"]
        (container,) = engine.containers.values()
        assert "org.testcontainers.session-id" in container.labels
        folder = broker.data_dir
        assert folder.exists()
    assert engine.containers == {}
    assert not folder.exists()
    assert len(given) == 1


def test_who_comes_later_adopts_stops_and_starts_it_again(engine: FakeEngine, tmp_path: Path) -> None:
    first = DockerBroker(tmp_path).start()
    later = DockerBroker(tmp_path).start()
    assert later.bootstrap == first.bootstrap
    (container,) = engine.containers.values()
    assert container.num_starts == 1

    assert later.stop()
    assert (first.pid, container.is_running) == (None, False)
    assert not later.stop()
    again = DockerBroker(tmp_path).start()
    assert (again.bootstrap, container.num_starts) == (first.bootstrap, 2)
    with pytest.raises(BrokerError, match=f"has port {first.bootstrap.split(':')[1]}"):
        DockerBroker(tmp_path, port=1).start()


def test_it_outlives_the_command_that_started_it(engine: FakeEngine, tmp_path: Path) -> None:
    script = (
        "import sys; from ops.broker import jvm; from ops.cli import main\n"
        "jvm.is_listening = jvm.answers = lambda _: True\n"
        "sys.exit(main(['broker', *sys.argv[1:]]))"
    )

    def verb(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", script, *arguments]
        return subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=60, check=False)

    started = verb("start")
    assert (started.returncode, started.stderr) == (0, "")
    (container,) = engine.containers.values()
    assert container.is_running
    assert locate.require_broker().bootstrap == started.stdout.strip()
    stopped = verb("stop")
    assert (stopped.returncode, stopped.stdout, stopped.stderr) == (0, "stopped\n", "")
    assert [one.is_running for one in engine.containers.values()] == [False]
    assert locate.running_broker() is None


def test_the_image_is_fetched_once(engine: FakeEngine, tmp_path: Path) -> None:
    DockerBroker(tmp_path / "one").start()
    DockerBroker(tmp_path / "two").start()
    assert engine.asked.count("POST /images/create") == 1
    assert engine.images == {IMAGE}


@pytest.mark.parametrize(
    ("verb", "message"), [("create", "pull access denied"), ("start", "port is already allocated")]
)
def test_what_the_engine_refuses_is_one_line(engine: FakeEngine, tmp_path: Path, verb: str, message: str) -> None:
    engine.refuse[verb] = message
    with pytest.raises(BrokerError, match=message) as raised:
        DockerBroker(tmp_path).start()
    assert "\n" not in str(raised.value)
    # What broke off is taken up again.
    engine.refuse.clear()
    assert DockerBroker(tmp_path).start().pid is not None


def test_a_broker_that_ends_while_it_starts_says_why_and_is_removed(
    engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(container: FakeContainer) -> None:
        container.is_running = False

    engine.on_start = end
    engine.log = b"INFO fine\nCaused by: a.B: no space\n\tat z\n"
    monkeypatch.setattr(jvm, "is_listening", lambda _: False)
    with pytest.raises(BrokerError, match=r"ended while it started: Caused by: a\.B: no space"):
        DockerBroker(tmp_path).start()
    assert engine.containers == {}


def test_one_that_does_not_become_usable_is_given_up(
    engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm, "answers", lambda _: False)
    with pytest.raises(BrokerError, match="not usable after 0 s"):
        DockerBroker(tmp_path).start(timeout_s=0.01)
    assert engine.containers == {}


def test_without_an_engine_the_folder_says_that_nothing_runs(
    engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = DockerBroker(tmp_path).start()
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")
    assert broker.pid is None
    assert not broker.stop()
    with pytest.raises(BrokerError, match="no Docker engine"):
        DockerBroker(tmp_path).start()


def test_no_engine_is_asked_where_no_container_was_created(engine: FakeEngine, tmp_path: Path) -> None:
    assert DockerBroker(tmp_path).pid is None
    assert not DockerBroker(tmp_path).stop()
    assert running_kept_broker(tmp_path) is None
    assert engine.asked == []


@pytest.mark.usefixtures("no_reaper")
def test_a_container_comes_after_the_users_bootstrap_and_before_a_jvm(engine: FakeEngine) -> None:
    with locate.find_broker() as found:
        assert isinstance(found.local, DockerBroker)
        assert len(engine.containers) == 1
    assert engine.containers == {}


@pytest.mark.usefixtures("no_reaper")
def test_an_engine_that_cannot_start_it_leaves_the_jvm(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine.refuse["create"] = "no route to the registry"
    started: list[LocalBroker] = []

    def start(broker: LocalBroker) -> LocalBroker:
        started.append(broker)
        return broker

    monkeypatch.setattr(LocalBroker, "start", start)
    monkeypatch.setattr(LocalBroker, "bootstrap", "127.0.0.1:1")
    with locate.find_broker() as found:
        assert found.local is started[0]
    assert "no route to the registry; a JVM of this machine is used instead" in caplog.text

    monkeypatch.setenv("INTERTIDAL_BROKER", "docker")
    with pytest.raises(BrokerError, match="no route"), locate.find_broker():
        pass


@pytest.mark.usefixtures("no_reaper")
def test_a_fault_of_the_block_is_no_reason_to_start_another(engine: FakeEngine) -> None:
    with pytest.raises(BrokerError, match="of the block"), locate.find_broker():
        raise BrokerError("of the block")
    assert engine.containers == {}


def test_the_kind_is_the_one_asked_for_else_the_folders_own_else_the_engines(
    engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(kept_broker(tmp_path), DockerBroker)
    assert isinstance(kept_broker(tmp_path, kind="jvm"), LocalBroker)
    (tmp_path / "broker.json").write_text('{"port": 1, "controller_port": 2, "pid": null}')
    assert isinstance(kept_broker(tmp_path), LocalBroker)
    monkeypatch.setenv("INTERTIDAL_BROKER", "docker")
    assert isinstance(kept_broker(tmp_path), DockerBroker)
    monkeypatch.setenv("INTERTIDAL_BROKER", "podman")
    with pytest.raises(UserError, match="must be docker or jvm, is 'podman'"):
        kept_broker(tmp_path)
    monkeypatch.delenv("INTERTIDAL_BROKER")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")
    assert isinstance(kept_broker(tmp_path / "new"), LocalBroker)


def test_one_that_runs_is_found_by_every_verb_and_not_shadowed_by_the_other_kind(
    engine: FakeEngine, tmp_path: Path
) -> None:
    DockerBroker(tmp_path).start()
    (tmp_path / "broker.json").write_text('{"port": 1, "controller_port": 2, "pid": null}')
    assert isinstance(kept_broker(tmp_path), DockerBroker)
    assert isinstance(running_kept_broker(tmp_path), DockerBroker)
    with pytest.raises(UserError, match="a broker of kind docker runs"):
        kept_broker(tmp_path, kind="jvm")


def test_the_container_is_told_what_the_jvm_is_told() -> None:
    environment = container_environment(19_111)
    for name, value in shared_properties().items():
        assert environment[f"KAFKA_{name.upper().replace('.', '_')}"] == str(value)
    assert environment["KAFKA_ADVERTISED_LISTENERS"] == "PLAINTEXT://127.0.0.1:19111"
    # The controller gives way to a broker that was asked onto its port.
    assert ":9093," not in container_environment(9093)["KAFKA_LISTENERS"].split("CONTROLLER")[1]
    assert container_environment(9093)["KAFKA_CONTROLLER_QUORUM_VOTERS"] == "1@127.0.0.1:9094"


def test_the_image_is_of_the_version_that_the_jvm_runs() -> None:
    pom = (Path(container_settings.__file__).parent / "pom.xml").read_text()
    match = re.search(r"<artifactId>kafka_2\.13</artifactId>\s*<version>([^<]+)</version>", pom)
    assert match is not None
    assert match[1] == KAFKA_VERSION
    assert container_name(Path("/a")) != container_name(Path("/b"))
