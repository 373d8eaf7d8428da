"""The health server over a real socket on loopback."""

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from ops.telemetry.health import HealthServer
from ops.telemetry.metrics import Metric, Metrics

state: dict[str, str | None] = {}


def _broken() -> str | None:
    raise OSError("no route")


@pytest.fixture
def server() -> Iterator[HealthServer]:
    state.clear()
    metrics = Metrics([Metric("intertidal_level", "gauge", "Level.")])
    metrics.gauge("intertidal_level").set(7)
    ready = {"broker": lambda: state.get("broker"), "target": lambda: state.get("target")}
    with HealthServer(metrics, live={"offsets": lambda: state.get("offsets")}, ready=ready) as server:
        yield server


def get(server: HealthServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(server.url + path, timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_metrics_are_served(server: HealthServer) -> None:
    status, body = get(server, "/metrics")
    assert status == 200
    assert "intertidal_level 7.0" in body


def test_readiness_names_each_reason(server: HealthServer) -> None:
    assert get(server, "/readyz")[0] == 200
    state.update(broker="no broker", target="expired")
    status, body = get(server, "/readyz?verbose=1")
    assert status == 503
    assert json.loads(body) == {"ok": False, "reasons": {"broker": "no broker", "target": "expired"}}
    state.clear()
    assert get(server, "/readyz")[0] == 200


def test_liveness_is_another_question(server: HealthServer) -> None:
    state["broker"] = "no broker"
    assert get(server, "/healthz")[0] == 200
    state["offsets"] = "stand still"
    assert get(server, "/healthz")[0] == 503


def test_a_check_that_raises_is_a_reason() -> None:
    with HealthServer(Metrics([]), ready={"broker": _broken}) as server:
        status, body = get(server, "/readyz")
    assert status == 503
    assert json.loads(body)["reasons"] == {"broker": "the check failed: OSError: no route"}


def test_any_other_path_is_not_found(server: HealthServer) -> None:
    assert get(server, "/")[0] == 404


def test_it_listens_on_loopback_and_lets_go_of_its_port() -> None:
    server = HealthServer(Metrics([])).start()
    assert server._server.server_address[0] == "127.0.0.1"
    server.close()
    server.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", server.port), timeout=1)


def test_a_port_in_use_is_refused(server: HealthServer) -> None:
    with pytest.raises(OSError, match="in use"):
        HealthServer(Metrics([]), port=server.port)
