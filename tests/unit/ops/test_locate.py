"""Where a broker is looked for, without one."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.broker.locate import check_reachable, find_broker, running_broker
from ops.broker.prerequisites import BrokerError


@pytest.fixture
def port() -> Iterator[int]:
    """A loopback port that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


def test_the_users_bootstrap_comes_first(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", f"127.0.0.1:1,127.0.0.1:{port}")
    with find_broker() as found:
        assert (found.bootstrap, found.origin, found.local) == (
            f"127.0.0.1:1,127.0.0.1:{port}",
            "KAFKA_BOOTSTRAP",
            None,
        )


def test_a_bootstrap_that_does_not_answer_is_no_reason_to_use_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "127.0.0.1:1")
    with pytest.raises(BrokerError, match=r"no broker answers at 127\.0\.0\.1:1"), find_broker():
        pass


def test_nothing_is_started_by_looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_BOOTSTRAP", raising=False)
    monkeypatch.setenv("INTERTIDAL_STATE_DIR", str(tmp_path))
    assert running_broker() is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bootstrap", ["host:port", ":9092", "kafka://host:x"])
def test_what_is_no_address_is_named(bootstrap: str) -> None:
    with pytest.raises(BrokerError, match="is not host:port"):
        check_reachable(bootstrap)
