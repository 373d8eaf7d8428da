"""Looking for a Docker engine: over the socket, quickly, and only on this machine."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.broker.docker_engine import DockerEngine, find_engine
from tests.fake_docker import FakeEngine


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEngine]:
    """A machine with an engine at DOCKER_HOST."""
    with FakeEngine() as engine:
        monkeypatch.setenv("DOCKER_HOST", engine.host)
        yield engine


def test_the_engine_of_docker_host_is_found(engine: FakeEngine) -> None:
    assert find_engine() == DockerEngine(engine.host)
    assert engine.asked == ["GET /_ping"]


def test_the_sockets_of_rootless_docker_and_of_the_desktop_are_looked_at(
    engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOCKER_HOST")
    monkeypatch.setattr(
        "ops.broker.docker_engine._answers", lambda host, _: Path(host.removeprefix("unix://")).exists()
    )
    folder = engine.socket_path.parent
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    assert find_engine() == DockerEngine(engine.host)
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".docker/run").mkdir(parents=True)
    (tmp_path / ".docker/run/docker.sock").touch()
    assert find_engine() == DockerEngine(f"unix://{tmp_path}/.docker/run/docker.sock")


@pytest.mark.parametrize(
    "host",
    ["unix:///nowhere/docker.sock", "tcp://127.0.0.1:1", "tcp://10.0.0.1:2375", "ssh://me@host", "nonsense", "/x"],
)
def test_no_engine_and_engines_of_other_machines_are_not_waited_for(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("another machine was asked")

    if "127.0.0.1" not in host:
        monkeypatch.setattr(socket, "create_connection", never)
    monkeypatch.setenv("DOCKER_HOST", host)
    assert find_engine() is None


def test_an_engine_that_never_answers_is_left_after_the_time_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/tmp/mute-{os.getpid()}-{time.monotonic_ns()}.sock"
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(path)
        mute.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
        assert find_engine(timeout_s=0.05) is None
    Path(path).unlink()


def test_what_is_no_engine_behind_the_socket_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.0 404 Not Found\r\n\r\n")

        thread = threading.Thread(target=refuse)
        thread.start()
        monkeypatch.setenv("DOCKER_HOST", f"tcp://localhost:{server.getsockname()[1]}")
        assert find_engine() is None
        thread.join()
