"""One thing that breaks takes nothing else along: gates, signals, pids that others got, clients that say nothing."""

import os
import signal
from pathlib import Path

import pytest

from ops.agent.agent import _signals
from ops.agent.gates import HostGates
from ops.agent.host_agent import HostAgent, HostAgentSettings
from ops.agent.host_reporter import HostReporter
from ops.agent.moments import Now
from ops.agent.plans import AnnounceReclaim, CloseGate, HostPlan, OpenGate, Plan
from ops.agent.runner import AgentRunner
from ops.agent.wake import Wake
from ops.telemetry.health import HealthServer
from ops.telemetry.metrics import Metrics
from schemas.gate import FlipReason
from schemas.gate_drain import DrainReport
from schemas.gate_reader import GateReader
from schemas.gate_writer import GateWriter
from schemas.records import Offer

S = 1_000_000_000
WALL_MS = 1_800_000_000_000


def at(seconds: int) -> Now:
    return Now(wall_ms=WALL_MS + seconds * 1_000, mono_ns=seconds * S)


class OneStep:
    """Hosts that want certain steps once."""

    next_due_ns = None

    def __init__(self, *steps: OpenGate | CloseGate) -> None:
        self.steps = steps
        self.lost: list[str] = []

    def advance(self, now: Now) -> list[HostPlan]:
        steps, self.steps = self.steps, ()
        return [("h", Plan(steps, ()))]

    def draining(self) -> list[tuple[str, str]]:
        return [("h", "broken")]

    def lease_lost(self, host: str, pool: str, now: Now) -> HostPlan:
        self.lost.append(pool)
        return host, Plan()


@pytest.fixture
def gates(tmp_path: Path) -> HostGates:
    """Two open gates, of which the first is broken in a folder that does not let it be made anew."""
    gates = HostGates(lease_s=60.0)
    for pool in ("broken", "well"):
        gates.add("h", pool, tmp_path / pool)
        assert gates.take("h", OpenGate(pool))
    os.truncate(tmp_path / "broken" / "broken.gate", 10)
    (tmp_path / "broken").chmod(0o755)
    return gates


def is_open(folder: Path) -> bool:
    reader = GateReader("well", folder=folder)
    try:
        return reader.is_open()
    finally:
        reader.close()


def test_a_gate_that_cannot_be_closed_keeps_no_other_one_open(tmp_path: Path, gates: HostGates) -> None:
    closes = [CloseGate(pool, FlipReason.RECLAIMED) for pool in ("broken", "well")]
    hosts = OneStep(*closes)
    AgentRunner(hosts, gates, lambda _: None, clock=lambda: at(0)).step()  # type: ignore[arg-type]
    assert not is_open(tmp_path / "well")
    assert hosts.lost == []


def test_a_gate_that_cannot_be_opened_is_taken_for_lost(gates: HostGates) -> None:
    hosts = OneStep(OpenGate("broken"))
    AgentRunner(hosts, gates, lambda _: None, clock=lambda: at(0)).step()  # type: ignore[arg-type]
    assert hosts.lost == ["broken"]


def test_at_the_end_every_gate_is_closed_that_can_be(tmp_path: Path, gates: HostGates) -> None:
    assert gates.ranker_pids() == frozenset()
    gates.shutdown()
    assert not is_open(tmp_path / "well")


def test_who_took_over_the_pid_of_a_dead_ranker_is_the_owners(tmp_path: Path) -> None:
    started = {os.getpid(): 5}
    with GateWriter("p", folder=tmp_path / "run", starts=started.get) as writer:
        reader = GateReader("p", folder=tmp_path / "run", starts=started.get)
        assert writer.ranker_pids() == {os.getpid()}
        started[os.getpid()] = 6
        assert writer.ranker_pids() == frozenset()
        del started[os.getpid()]
        assert writer.ranker_pids() == frozenset()
        reader.close()


def test_a_gate_that_is_opened_again_is_told_again_of_the_reclaim_to_come() -> None:
    settings = HostAgentSettings(heartbeat_ns=5 * S, renew_ns=S, drain_limit_ns=30 * S)
    host = HostAgent(HostReporter(cell="c", host="h", epoch_ms=WALL_MS), ["p"], settings, now=at(0))
    usable = Offer(accelerator="h200", units=1.0, cpu_cores=0.0, memory_bytes=0, idle_cause="off_peak")
    lacking = Offer(
        accelerator="h200", units=1.0, cpu_cores=0.0, memory_bytes=0, idle_cause="off_peak", unusable="memory"
    )
    report = DrainReport(2, 1, (), (), ())
    host.offer("p", usable, at(1))
    host.notice("p", at(1), ahead_ns=99 * S, reason="launch")
    host.offer("p", lacking, at(2))
    host.drained("p", report, at(2))
    assert host.offer("p", usable, at(3)).gates == (OpenGate("p"), AnnounceReclaim("p", 100 * S))
    host.lease_lost("p", at(4))
    assert host.drained("p", report, at(5)).gates == (OpenGate("p"), AnnounceReclaim("p", 100 * S))


def test_an_announcement_to_a_gate_that_was_not_opened_is_not_there_at_its_next_opening(tmp_path: Path) -> None:
    gates = HostGates(lease_s=60.0)
    gates.add("h", "p", tmp_path / "run")
    gates.take("h", AnnounceReclaim("p", 7))
    gates.take("h", OpenGate("p"))
    reader = GateReader("p", folder=tmp_path / "run")
    assert reader.notice_ns == 0
    reader.close()
    gates.shutdown()


def test_a_signals_handler_may_interrupt_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    wake = Wake()
    again = [signal.SIGUSR1, signal.SIGTERM]

    def interrupted() -> None:
        if again:
            signal.raise_signal(again.pop())

    monkeypatch.setattr(wake, "set", interrupted)
    with _signals(wake) as signals:
        signal.raise_signal(signal.SIGUSR1)
        assert (signals.is_reclaim, signals.is_stop) == (True, True)
    wake.close()


def test_a_client_that_says_nothing_does_not_keep_its_thread() -> None:
    server = HealthServer(Metrics([]))
    handler = server._server.RequestHandlerClass
    assert getattr(handler, "timeout", None) == 10
    server.close()
