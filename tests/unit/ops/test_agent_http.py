"""The agent's port, and what is wrong use of its verbs."""

import http.client
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ops import cli
from ops.agent.metered import AgentMeters, MeteredGates, sending_problem
from ops.agent.outbox import OutboxState
from ops.agent.plans import CloseGate, OpenGate, RenewGate
from ops.telemetry.declared import METRICS
from ops.telemetry.health import HealthServer
from ops.telemetry.metrics import Metrics
from schemas.gate import FlipReason
from schemas.gate_drain import DrainReport, RankerDrain

JSON = {"Content-Type": "application/json"}


def echo(body: bytes) -> tuple[int, Mapping[str, object]]:
    return 202, {"body": body.decode()}


@pytest.fixture
def server() -> Iterator[HealthServer]:
    with HealthServer(Metrics([]), commands={"/reclaim": echo}) as server:
        yield server


def post(server: HealthServer, path: str, body: str, headers: Mapping[str, str]) -> tuple[int, object]:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=10)
    connection.request("POST", path, body, dict(headers))
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def test_a_command_gets_its_body_and_says_its_answer(server: HealthServer) -> None:
    assert post(server, "/reclaim", '{"a": 1}', JSON) == (202, {"body": '{"a": 1}'})
    assert post(server, "/reclaim", "", JSON) == (202, {"body": ""})


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/other", "{}", JSON, 404),
        ("/metrics", "{}", JSON, 404),
        ("/reclaim", "a=1", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ("/reclaim", "a=1", {"Content-Type": "text/plain"}, 415),
        ("/reclaim", "x" * 100_000, JSON, 413),
    ],
)
def test_what_is_no_command_is_refused(
    server: HealthServer, path: str, body: str, headers: Mapping[str, str], status: int
) -> None:
    assert post(server, path, body, headers)[0] == status


class FakeGates:
    def __init__(self) -> None:
        self.report = DrainReport(2, 0, (), (), ())

    def add(self, host: str, pool: str, folder: Path) -> None:
        """Nothing is kept."""

    def take(self, host: str, step: object) -> bool:
        return not isinstance(step, RenewGate)

    def look(self, host: str, pool: str) -> DrainReport:
        return self.report


def test_flips_and_reactions_are_counted_by_pool() -> None:
    metrics = Metrics(METRICS)
    fake = FakeGates()
    gates = MeteredGates(fake, metrics)  # type: ignore[arg-type]
    gates.add("h", "p", Path())
    gates.take("h", OpenGate("p"))
    assert not gates.take("h", RenewGate("p"))
    assert 'intertidal_gate_open{pool="p"} 1.0' in metrics.render().decode()
    gates.take("h", CloseGate("p", FlipReason.RECLAIMED))
    gates.take("h", CloseGate("p", FlipReason.AGENT_STOPPED))
    fake.report = DrainReport(2, 0, (RankerDrain(1, 3_000_000, 9),), (), (2,))
    gates.look("h", "p")
    fake.report = DrainReport(2, 0, (RankerDrain(1, 3_000_000, 9), RankerDrain(2, 1, 9)), (), ())
    gates.look("h", "p")
    text = metrics.render().decode()
    assert 'intertidal_gate_open{pool="p"} 0.0' in text
    assert 'intertidal_reclaims_total{pool="p"} 1.0' in text
    assert 'intertidal_reclaim_reaction_seconds_count{pool="p"} 2.0' in text


def test_counts_of_others_become_counters() -> None:
    metrics = Metrics(METRICS)
    meters = AgentMeters(metrics, "fleet.capacity")
    for acknowledged in (3, 5):
        state = OutboxState(num_waiting=2, size_bytes=9, num_acknowledged=acknowledged, num_dropped=(("beats", 4),))
        meters.show(state, {"nvml": 1}, 2)
    text = metrics.render().decode()
    for line in (
        'intertidal_records_sent_total{topic="fleet.capacity"} 5.0',
        'intertidal_spool_dropped_total{log="beats"} 4.0',
        'intertidal_source_failures_total{source="nvml"} 1.0',
        "intertidal_clock_jumps_total 2.0",
        "intertidal_spool_records 2.0",
        "intertidal_spool_bytes 9.0",
    ):
        assert line in text


def test_what_keeps_records_from_the_broker_is_a_reason_not_to_be_ready() -> None:
    assert sending_problem(OutboxState(), 100.0) is None
    assert sending_problem(OutboxState(num_waiting=1, waiting_since_s=80.0), 100.0) is None
    assert "1 records wait" in (sending_problem(OutboxState(num_waiting=1, waiting_since_s=60.0), 100.0) or "")
    assert sending_problem(OutboxState(problem="no topic"), 0.0) == "no topic"
    assert "disk" in (sending_problem(OutboxState(is_disk_well=False), 0.0) or "")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("run", "agent"), 2, "one of --config and --scenario"),
        (("run", "agent", "--config", "CONFIG", "--scenario", "quick"), 2, "one of --config and --scenario"),
        (("run", "agent", "--scenario", "quick"), 2, "--base-dir"),
        (("run", "agent", "--config", "/none.toml"), 2, "none.toml"),
        (("run", "agent", "--config", "CONFIG", "--copies", "0"), 2, "--copies"),
        (("run", "agent", "--config", "CONFIG"), 1, "cell"),
        (("agent", "check", "--since", "5"), 2, "no time"),
        (("agent", "check", "extra"), 2, "extra"),
    ],
)
def test_wrong_use_of_the_verbs_is_one_line(
    arguments: tuple[str, ...],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "127.0.0.1:1")
    (tmp_path / "agent.toml").write_text("[sources.host]\n")
    assert cli.main([str(tmp_path / "agent.toml") if word == "CONFIG" else word for word in arguments]) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "code"), [(("--bogus",), 2), ((), 2), (("--help",), 0), (("--config", "/none.toml"), 2)]
)
def test_wrong_use_and_help_need_no_broker(
    arguments: tuple[str, ...], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def asked() -> None:
        raise AssertionError("a broker was looked for")

    monkeypatch.delenv("KAFKA_BOOTSTRAP", raising=False)
    monkeypatch.setattr("ops.run_cli.require_broker", asked)
    assert cli.main(["run", "agent", *arguments]) == code
    capsys.readouterr()


@pytest.mark.parametrize("verb", [("agent",), ("agent", "check"), ("reclaim",), ("run", "agent")])
def test_every_help_has_an_example(
    verb: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "127.0.0.1:1")
    assert cli.main([*verb, "--help"]) == 0
    assert "intertidal " in capsys.readouterr().out.split("Example:")[1]
