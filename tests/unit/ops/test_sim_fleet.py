"""Many hosts on a fake clock: gates before Kafka, one slow host holds up no other, restarts in the middle."""

from dataclasses import replace
from pathlib import Path

from ops.agent.gates import HostGates
from ops.agent.host_agent import AGENT_STOPPED, HostAgentSettings
from ops.agent.moments import Now
from ops.agent.plans import CloseGate, GateStep, OpenGate, RenewGate
from ops.agent.runner import AgentRunner
from ops.simulator.agents import host_folder
from ops.simulator.fleet import FleetAgents
from ops.simulator.scenario import load_scenario
from ops.simulator.scenario_model import CapacityChange, Scenario
from schemas.gate_drain import DrainReport
from schemas.gate_reader import GateReader
from schemas.records import CapacityEvent

SECOND_NS = 1_000_000_000
EPOCH_MS = 1_800_000_000_000
SETTINGS = HostAgentSettings(heartbeat_ns=SECOND_NS, renew_ns=SECOND_NS // 4, drain_limit_ns=5 * SECOND_NS)


class Clock:
    """Both clocks, moved by hand."""

    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> Now:
        return Now(wall_ms=EPOCH_MS + round(self.s * 1e3), mono_ns=round(self.s * 1e9))

    def mono_ns(self) -> int:
        return self().mono_ns

    def sleep(self, seconds: float) -> None:
        self.s += seconds


class FakeGates:
    """Notes every step; ``slow`` hosts have a ranker that does not drain, ``stale`` ones a lease that ran out."""

    def __init__(self, log: list[object], clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._closed_ns: dict[str, int] = {}
        self.slow: set[str] = set()
        self.stale: set[str] = set()

    def take(self, host: str, step: GateStep) -> bool:
        self._log.append((host, step))
        if isinstance(step, CloseGate):
            self._closed_ns[host] = self._clock.mono_ns()
        return not (isinstance(step, RenewGate) and host in self.stale)

    def look(self, host: str, pool: str) -> DrainReport:
        return DrainReport(2, self._closed_ns.get(host, 0), (), (), (1,) if host in self.slow else ())


class Stage:
    """A fleet, its fake gates, a clock, and a log of all that was done in order."""

    def __init__(self, scenario: Scenario, *, zero_s: float = 0.0, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.log: list[object] = []
        self.gates = FakeGates(self.log, self.clock)
        self.fleet = FleetAgents(scenario, SETTINGS, zero_ns=round(zero_s * 1e9), now=self.clock())
        self.runner = AgentRunner(self.fleet, self.gates, self.log.append, clock=self.clock)

    def run_to(self, end_s: float) -> None:
        """Step whenever the runner would."""
        while self.clock.s < end_s:
            self.clock.s = min(end_s, self.clock.s + max(self.runner.wait_s(), 0.001))
            self.runner.step()

    def records(self, host: str | None = None) -> list[CapacityEvent]:
        return [each for each in self.log if isinstance(each, CapacityEvent) and host in (None, each.host)]

    def flips(self, kind: type[OpenGate] | type[CloseGate]) -> list[str]:
        return [entry[0] for entry in self.log if isinstance(entry, tuple) and isinstance(entry[1], kind)]


def scenario(*changes: CapacityChange, num_hosts: int = 3) -> Scenario:
    base = load_scenario("quick")
    hosts = tuple(replace(base.hosts[0], name=f"h{index}") for index in range(num_hosts))
    return replace(base, hosts=hosts, capacity_changes=changes)


def reclaim(at_s: float, duration_s: float | None = None, *, hosts: str = "*") -> CapacityChange:
    return CapacityChange(at_s=at_s, hosts=hosts, action="reclaim", reason="owner", duration_s=duration_s, units=None)


def test_every_gate_is_flipped_before_anything_is_sent() -> None:
    stage = Stage(scenario(reclaim(5.0)))
    stage.runner.start()
    stage.run_to(4.9)
    stage.log.clear()
    stage.run_to(5.0)
    kinds = ["record" if isinstance(each, CapacityEvent) else "gate" for each in stage.log]
    assert stage.flips(CloseGate) == ["h0", "h1", "h2"]
    assert [record.kind for record in stage.records()].count("reclaim") == 3
    assert kinds == sorted(kinds)


def test_reclaims_happen_at_their_time_and_are_given_back_at_theirs() -> None:
    stage = Stage(scenario(reclaim(5.0, 2.0, hosts="h1")), zero_s=1.0)
    stage.runner.start()
    stage.run_to(12.0)
    told = [(r.kind, r.event_time_ms - EPOCH_MS) for r in stage.records("h1") if r.kind != "heartbeat"]
    assert told == [("offer", 0), ("reclaim", 6_000), ("offer", 8_000)]
    assert stage.fleet.is_played
    assert [record.kind for record in stage.records("h0") if record.kind != "heartbeat"] == ["offer"]


def test_all_hosts_beat_and_are_spread_over_the_beat() -> None:
    stage = Stage(scenario())
    stage.runner.start()
    stage.run_to(3.2)
    times = {
        host: [r.event_time_ms - EPOCH_MS for r in stage.records(host) if r.kind == "heartbeat"]
        for host in ("h0", "h1", "h2")
    }
    assert times == {"h0": [333, 1_333, 2_333], "h1": [667, 1_667, 2_667], "h2": [1_000, 2_000, 3_000]}
    for host in times:
        assert [record.seq for record in stage.records(host)] == [0, 1, 2, 3]


def test_a_ranker_that_does_not_drain_holds_up_its_own_host_alone() -> None:
    stage = Stage(scenario(reclaim(1.0, 1.0)))
    stage.gates.slow.add("h1")
    stage.runner.start()
    stage.run_to(3.0)
    assert stage.flips(OpenGate) == ["h0", "h1", "h2", "h0", "h2"]
    assert stage.fleet.draining() == [("h1", "cpu")]
    stage.run_to(6.5)
    assert stage.flips(OpenGate)[-1] == "h1"
    timings = [timing for record in stage.records("h1") for timing in record.reclaims]
    assert [(timing.reaction_us, timing.num_rankers) for timing in timings] == [(None, 1)]


def test_timings_of_a_reclaim_are_told_by_each_host() -> None:
    stage = Stage(scenario(reclaim(1.0, 1.0)))
    stage.runner.start()
    stage.run_to(3.0)
    for host in ("h0", "h1", "h2"):
        timings = [timing for record in stage.records(host) for timing in record.reclaims]
        assert [timing.flipped_ms - EPOCH_MS for timing in timings] == [1_000]


def test_a_lease_that_ran_out_is_told_and_the_capacity_offered_again() -> None:
    stage = Stage(scenario(num_hosts=1))
    stage.runner.start()
    stage.gates.stale.add("h0")
    stage.run_to(0.25)
    stage.gates.stale.clear()
    stage.run_to(0.5)
    told = [(record.kind, record.reason) for record in stage.records("h0")]
    assert told == [("offer", ""), ("reclaim", "lease_expired"), ("offer", "")]
    assert stage.flips(OpenGate) == ["h0", "h0"]


def test_an_agent_that_starts_in_the_middle_of_a_reclaim_opens_nothing_until_it_ends() -> None:
    clock = Clock()
    clock.s = 6.0
    stage = Stage(scenario(reclaim(5.0, 4.0, hosts="h1")), clock=clock)
    stage.runner.start()
    assert stage.flips(OpenGate) == ["h0", "h2"]
    stage.run_to(8.9)
    assert all(record.kind == "heartbeat" and record.offers == [] for record in stage.records("h1"))
    stage.run_to(9.1)
    assert stage.flips(OpenGate)[-1] == "h1"


def test_units_of_an_update_are_offered_again_after_a_reclaim() -> None:
    update = CapacityChange(at_s=1.0, hosts="*", action="update", reason="", duration_s=None, units=0.25)
    stage = Stage(scenario(update, reclaim(2.0, 1.0), num_hosts=1))
    stage.runner.start()
    stage.run_to(4.0)
    told = [(r.kind, [each.units for each in r.offers]) for r in stage.records() if r.kind != "heartbeat"]
    assert told == [("offer", [1.0]), ("update", [0.25]), ("reclaim", []), ("offer", [0.25])]


def test_stopping_flips_all_gates_then_tells_then_waits_for_rankers_within_its_time() -> None:
    stage = Stage(scenario())
    stage.gates.slow.add("h2")
    stage.runner.start()
    stage.run_to(0.2)
    stage.log.clear()
    began_s = stage.clock.s
    stage.runner.stop(drain_s=2.0, sleep=stage.clock.sleep)
    assert 2.0 <= stage.clock.s - began_s < 2.1
    assert [type(each) is tuple for each in stage.log[:3]] == [True, True, True]
    assert stage.flips(CloseGate) == ["h0", "h1", "h2"]
    told = [(record.host, record.kind, record.reason, len(record.reclaims)) for record in stage.records()]
    assert told[:3] == [(host, "reclaim", AGENT_STOPPED, 0) for host in ("h0", "h1", "h2")]
    # The slow one's timing is told too, as unknown.
    assert told[3:] == [(host, "heartbeat", "", 1) for host in ("h0", "h1", "h2")]
    assert [record.reclaims[0].drained_us for record in stage.records()[3:]] == [0, 0, None]


def test_an_idle_fleet_waits_and_a_draining_one_looks_often() -> None:
    stage = Stage(scenario(reclaim(0.1), num_hosts=1))
    stage.gates.slow.add("h0")
    stage.runner.start()
    assert stage.runner.wait_s() == 0.1
    stage.run_to(0.1)
    assert stage.runner.wait_s() == 0.02
    assert Stage(scenario(num_hosts=0)).runner.wait_s() == 0.5


class RealStage:
    """One host with a gate on disk and a ranker's end of it."""

    def __init__(self, folder: Path, *changes: CapacityChange) -> None:
        self.clock = Clock()
        self.clock.s = 1.0
        one = scenario(*changes, num_hosts=1)
        self.gates = HostGates(lease_s=2.0, clock_ns=self.clock.mono_ns)
        self.gates.add("h0", "cpu", host_folder(folder, "h0"))
        self.ranker = GateReader("cpu", folder=host_folder(folder, "h0"), clock_ns=self.clock.mono_ns)
        self.told: list[CapacityEvent] = []
        self.fleet = FleetAgents(one, SETTINGS, zero_ns=0, now=self.clock())
        self.runner = AgentRunner(self.fleet, self.gates, self.told.append, clock=self.clock)
        self.runner.start()

    def run_to(self, end_s: float) -> None:
        while self.clock.s < end_s:
            self.clock.s += max(self.runner.wait_s(), 0.001)
            self.runner.step()

    def close(self) -> None:
        self.gates.shutdown()
        self.ranker.close()


def test_a_gate_closes_by_itself_when_its_agent_stops_renewing(tmp_path: Path) -> None:
    stage = RealStage(tmp_path)
    stage.run_to(60.0)
    assert stage.ranker.is_open()
    # The agent hangs from here on.
    stage.clock.s += 1.7
    assert stage.ranker.is_open()
    stage.clock.s += 0.4
    assert not stage.ranker.is_open()
    # It comes back: the loss is told, and only then is the gate opened again.
    stage.told.clear()
    stage.runner.step()
    assert not stage.ranker.is_open()
    assert "reclaim" in [record.kind for record in stage.told]
    now_ns = stage.clock.mono_ns()
    stage.ranker.acknowledge(stage.ranker.generation, last_chunk_end_ns=0, drained_ns=now_ns)
    stage.runner.step()
    assert stage.ranker.is_open()
    stage.close()


def test_real_gates_measure_how_long_a_ranker_took(tmp_path: Path) -> None:
    stage = RealStage(tmp_path, reclaim(5.0))
    stage.run_to(5.0)
    assert not stage.ranker.is_open()
    assert stage.fleet.draining() == [("h0", "cpu")]
    flipped_ns = stage.ranker.closed_ns
    stage.ranker.acknowledge(
        stage.ranker.generation, last_chunk_end_ns=flipped_ns + 4_000_000, drained_ns=flipped_ns + 6_000_000
    )
    stage.run_to(7.0)
    (timing,) = [timing for record in stage.told for timing in record.reclaims]
    assert (timing.reaction_us, timing.drained_us, timing.num_rankers) == (4_000, 6_000, 1)
    assert abs(timing.flipped_ms - EPOCH_MS - 5_000) <= 1
    stage.close()


def test_gates_lie_in_each_hosts_own_folder_and_are_closed_at_the_end(tmp_path: Path) -> None:
    hosts = scenario(num_hosts=2).hosts
    gates = HostGates(lease_s=2.0)
    for host in hosts:
        gates.add(host.name, "cpu", tmp_path / host.name)
    readers = [GateReader("cpu", folder=tmp_path / host.name) for host in hosts]
    gates.take("h1", OpenGate("cpu"))
    assert [reader.is_open() for reader in readers] == [False, True]
    gates.shutdown()
    assert [reader.is_open() for reader in readers] == [False, False]
    for reader in readers:
        reader.close()
