"""One host on a fake clock: what sources saw and the owner claims becomes gates, then records, in this order."""

from pathlib import Path

from msgspec.structs import replace

from ops.agent.clock_watch import ClockWatch
from ops.agent.gates import HostGates
from ops.agent.holds import Hold
from ops.agent.host_agent import HostAgent, HostAgentSettings
from ops.agent.host_reporter import HostReporter
from ops.agent.moments import Now
from ops.agent.plans import AnnounceReclaim, CloseGate, GateStep, OpenGate, RenewGate
from ops.agent.policy import Needs, PolicySettings
from ops.agent.readings import Reading
from ops.agent.runner import AgentRunner
from ops.agent.watched_hosts import RESERVED, ClaimSettings, WatchedHost, WatchedHosts
from schemas.gate_drain import DrainReport
from schemas.gate_reader import GateReader
from schemas.records import CapacityEvent

S = 1_000_000_000
EPOCH_MS = 1_800_000_000_000
SETTINGS = HostAgentSettings(heartbeat_ns=5 * S, renew_ns=S // 2, drain_limit_ns=30 * S)
POLICY = PolicySettings(idle_for_s=0.0, stale_after_s=100.0)
CLAIMS = ClaimSettings(announce_ms=600_000, early_ms=5_000)


def device(index: int = 0, owner: float = 0.0) -> Reading:
    return Reading(pool=f"h200-{index}", accelerator="h200", units=1.0, owner_units=owner)


def cpu(owner: float, pressure: float = 0.0) -> Reading:
    return Reading(
        pool="cpu", accelerator="cpu", units=16.0, owner_units=owner, divisible=True, pressure=pressure, memory_bytes=64
    )


class Stage:
    """Hosts, a log of everything that is done in its order, and a clock that is moved by hand."""

    def __init__(self, policy: PolicySettings = POLICY, *, hosts: tuple[str, ...] = ("h",)) -> None:
        self.s = 0.0
        self.wall_skew_ms = 0
        self.log: list[object] = []
        self.pending: set[str] = set()
        self.hosts = WatchedHosts(
            {
                name: WatchedHost(
                    HostAgent(HostReporter(cell="c", host=name, epoch_ms=EPOCH_MS), [], SETTINGS, now=self.now()),
                    lambda pool, kind: policy,
                    CLAIMS,
                )
                for name in hosts
            }
        )
        self.runner = AgentRunner(self.hosts, self, self.log.append, clock=self.now)

    def now(self) -> Now:
        return Now(wall_ms=EPOCH_MS + round(self.s * 1e3) + self.wall_skew_ms, mono_ns=round(self.s * 1e9))

    def take(self, host: str, step: GateStep) -> bool:
        self.log.append(step)
        return True

    def look(self, host: str, pool: str) -> DrainReport:
        return DrainReport(2, round(self.s * 1e9), (), (), (1,) if pool in self.pending else ())

    def see(self, *readings: Reading, at_s: float | None = None) -> list[object]:
        """What is done about readings."""
        self.s = self.s if at_s is None else at_s
        self.hosts.see(readings, self.now())
        return self.step()

    def claim(self, *holds: Hold) -> list[object]:
        self.hosts.claim(holds, self.now())
        return self.step()

    def step(self, at_s: float | None = None) -> list[object]:
        self.s = self.s if at_s is None else at_s
        self.log.clear()
        self.runner.step()
        return [
            each
            for each in self.log
            if not isinstance(each, RenewGate) and not (isinstance(each, CapacityEvent) and each.kind == "heartbeat")
        ]


def kinds(done: list[object]) -> list[str]:
    return [each.kind if isinstance(each, CapacityEvent) else type(each).__name__ for each in done]


def hold(starts_s: float, ends_s: float | None = None, *, pools: tuple[str, ...] = (), reason: str = "launch") -> Hold:
    ends_ms = None if ends_s is None else EPOCH_MS + round(ends_s * 1e3)
    return Hold(key=reason, reason=reason, starts_ms=EPOCH_MS + round(starts_s * 1e3), ends_ms=ends_ms, pools=pools)


def record(done: list[object]) -> CapacityEvent:
    (found,) = [each for each in done if isinstance(each, CapacityEvent)]
    return found


def test_of_one_moment_every_gate_is_flipped_before_anything_is_said() -> None:
    stage = Stage(hosts=("h1", "h2"))
    assert kinds(stage.see(device(1), device(2))) == ["OpenGate"] * 4 + ["offer"] * 4
    # What is taken back is flipped before what is given.
    done = stage.see(device(0), device(1), device(2, owner=1.0), at_s=1.0)
    assert kinds(done) == ["CloseGate", "OpenGate", "CloseGate", "OpenGate", "reclaim", "offer", "reclaim", "offer"]
    assert kinds(stage.claim(hold(0.0))) == ["CloseGate"] * 4 + ["reclaim"] * 4


def test_each_device_has_its_own_gate_and_the_record_tells_all_that_is_left() -> None:
    stage = Stage()
    stage.see(device(0), device(1))
    done = stage.see(device(0, owner=0.9), device(1), at_s=1.0)
    assert done[0] == CloseGate("h200-0", done[0].reason)  # type: ignore[attr-defined]
    said = record(done)
    assert (said.reason, [offer.accelerator for offer in said.offers]) == ("owner_busy", ["h200"])
    assert kinds(stage.see(device(0, owner=0.9), device(1), at_s=2.0)) == []


def test_a_hold_takes_back_at_once_and_its_end_gives_back() -> None:
    stage = Stage()
    stage.see(device(0), device(1))
    stage.s = 1.0
    done = stage.claim(hold(1.0, 61.0, pools=("h200-1",), reason="signal"))
    assert kinds(done) == ["CloseGate", "reclaim"]
    assert record(done).reason == "signal"
    assert kinds(stage.step(60.9)) == []
    assert kinds(stage.step(62.0)) == ["OpenGate", "offer"]


def test_a_hold_to_come_is_announced_obeyed_early_and_too_short_a_time_is_told() -> None:
    stage = Stage(replace_needs(lasts_s=60.0))
    stage.see(device())
    stage.s = 1.0
    assert stage.claim(hold(1_000.0, 1_100.0)) == []
    done = stage.step(400.0)
    assert kinds(done) == ["AnnounceReclaim", "notice"]
    assert done[0] == AnnounceReclaim("h200-0", 1_000 * S)
    assert record(done).offers[0].reclaim_at_ms == EPOCH_MS + 1_000_000
    assert kinds(stage.see(device(), at_s=939.0)) == []
    done = stage.see(device(), at_s=941.0)
    assert kinds(done) == ["CloseGate", "update"]
    assert record(done).offers[0].unusable == "too_short"
    assert kinds(stage.see(device(), at_s=994.0)) == []
    assert kinds(stage.step(995.0)) == ["reclaim"]
    assert kinds(stage.step(1_099.0)) == []
    assert kinds(stage.see(device(), at_s=1_100.0)) == ["OpenGate", "offer"]


def replace_needs(**needs: float) -> PolicySettings:
    return PolicySettings(idle_for_s=0.0, stale_after_s=1_000.0, needs=Needs(**needs))  # type: ignore[arg-type]


def test_a_hold_that_is_called_off_is_told_so() -> None:
    stage = Stage()
    stage.see(device())
    stage.claim(hold(100.0, 200.0))
    done = stage.claim()
    assert kinds(done) == ["AnnounceReclaim", "update"]
    assert done[0] == AnnounceReclaim("h200-0", 0)
    assert record(done).offers[0].reclaim_at_ms is None


def test_a_source_that_falls_silent_takes_its_pools_along() -> None:
    stage = Stage(PolicySettings(idle_for_s=0.0, stale_after_s=10.0))
    stage.see(device(0), device(1))
    assert kinds(stage.see(device(1), at_s=9.0)) == []
    done = stage.step(11.0)
    assert kinds(done) == ["CloseGate", "reclaim"]
    assert record(done).reason == "source_silent"


def test_pressure_of_the_host_takes_back_its_accelerators_too() -> None:
    stage = Stage()
    stage.see(device(), cpu(0.1))
    done = stage.see(device(), cpu(0.1, pressure=0.5), at_s=1.0)
    assert kinds(done) == ["CloseGate", "CloseGate", "reclaim", "reclaim"]
    # Each source is read at its own time.
    assert kinds(stage.see(device(), at_s=2.0)) == []
    assert kinds(stage.see(cpu(0.1), at_s=3.0)) == ["OpenGate", "offer"]
    assert kinds(stage.see(device(), at_s=3.5)) == ["OpenGate", "offer"]
    stage.see(cpu(0.1, pressure=0.5), at_s=4.0)
    assert kinds(stage.see(device(), at_s=4.5)) == ["CloseGate", "reclaim"]


def test_of_each_kind_a_reserve_stays_idle_and_what_is_offered_stays_offered() -> None:
    stage = Stage(PolicySettings(idle_for_s=0.0, stale_after_s=100.0, reserve_units=1.0))
    done = stage.see(device(0), device(1), device(2))
    assert [each.pool for each in done if isinstance(each, OpenGate)] == ["h200-1", "h200-2"]
    # The owner takes one that was offered: the reserve is still there. Then the reserve itself: one is given up.
    done = stage.see(device(0), device(1, owner=1.0), device(2), at_s=1.0)
    assert [each.pool for each in done if isinstance(each, CloseGate)] == ["h200-1"]
    done = stage.see(device(0, owner=1.0), device(1, owner=1.0), device(2), at_s=2.0)
    assert [each.pool for each in done if isinstance(each, CloseGate)] == ["h200-2"]
    assert record(done).reason == RESERVED


def test_a_reserve_is_moved_to_what_is_idle_anew_rather_than_taken_from_what_is_offered() -> None:
    stage = Stage(PolicySettings(idle_for_s=0.0, stale_after_s=100.0, reserve_units=1.0))
    stage.see(device(0), device(1))
    assert kinds(stage.see(device(0, owner=1.0), device(1), device(2), at_s=1.0)) == []


def test_cores_that_wander_are_no_news_and_units_are() -> None:
    stage = Stage(PolicySettings(idle_for_s=2.0, stale_after_s=100.0, idle_below=0.5, busy_above=0.8))
    for second, owner in enumerate((2.0, 2.2)):
        stage.see(cpu(owner), at_s=float(second))
    done = stage.see(cpu(2.1), at_s=2.0)
    assert [offer.units for offer in record(done).offers] == [13.0]
    assert kinds(stage.see(replace(cpu(2.1), memory_bytes=62), at_s=2.2)) == []
    assert kinds(stage.see(replace(cpu(2.1), memory_bytes=32), at_s=2.4)) == ["update"]
    done = stage.see(cpu(5.5), at_s=2.6)
    assert (kinds(done), record(done).offers[0].units) == (["update"], 10.0)


def test_a_clock_set_back_behind_the_start_begins_a_new_epoch_and_a_jump_ahead_does_not() -> None:
    stage = Stage()
    # The first beat is due at once, behind the offer.
    assert record(stage.see(device())).seq == 0
    stage.wall_skew_ms = 3_600_000
    ahead = record(stage.see(device(owner=1.0), at_s=1.0))
    assert (ahead.epoch_ms, ahead.seq) == (EPOCH_MS, 2)
    stage.wall_skew_ms = -3_600_000
    behind = record(stage.see(device(), at_s=2.0))
    assert (behind.epoch_ms, behind.seq) == (EPOCH_MS + 2_000 - 3_600_000, 0)
    stage.wall_skew_ms -= 1_000
    again = record(stage.see(device(owner=1.0), at_s=3.0))
    assert (again.epoch_ms, again.seq) == (behind.epoch_ms, 1)


def test_beats_and_leases_go_by_the_monotonic_clock_whatever_the_wall_clock_does() -> None:
    stage = Stage()
    stage.see(device())
    beats = []
    for step in range(1, 101):
        stage.s = step / 2
        stage.wall_skew_ms = (-1) ** step * 86_400_000
        stage.see(device())
        beats += [step for each in stage.log if isinstance(each, CapacityEvent) and each.kind == "heartbeat"]
        assert any(isinstance(each, RenewGate) for each in stage.log)
    assert beats == list(range(10, 101, 10))


def test_jumps_of_the_wall_clock_are_noticed_and_drift_is_not() -> None:
    watch = ClockWatch(Now(1_000_000, 0))
    assert watch.jumped_ms(Now(1_010_500, 10 * S)) == 0
    assert watch.jumped_ms(Now(1_021_000, 20 * S)) == 0
    assert watch.jumped_ms(Now(4_621_000, 20 * S)) == 3_600_000
    assert watch.jumped_ms(Now(1_021_000, 20 * S)) == -3_600_000


def test_a_reclaim_waits_for_real_rankers_before_the_pool_is_given_again(tmp_path: Path) -> None:
    stage = Stage()
    gates = HostGates(lease_s=2.0, clock_ns=lambda: stage.now().mono_ns)
    gates.add("h", "h200-0", tmp_path)
    runner = AgentRunner(stage.hosts, gates, stage.log.append, clock=stage.now)
    ranker = GateReader("h200-0", folder=tmp_path, clock_ns=lambda: stage.now().mono_ns)
    stage.s = 1.0
    stage.hosts.see([device()], stage.now())
    runner.step()
    assert ranker.is_open()
    assert gates.ranker_pids() != frozenset()
    for owner in (1.0, 0.0):
        stage.s += 0.1
        stage.hosts.see([device(owner=owner)], stage.now())
        runner.step()
    assert not ranker.is_open()
    now_ns = stage.now().mono_ns
    ranker.acknowledge(ranker.generation, last_chunk_end_ns=now_ns, drained_ns=now_ns)
    stage.s += 0.1
    runner.step()
    assert ranker.is_open()
    gates.shutdown()
    assert not ranker.is_open()
    ranker.close()


def test_idle_cores_are_given_out_once_and_what_is_left_is_offered_as_cores() -> None:
    stage = Stage(PolicySettings(idle_for_s=0.0, stale_after_s=100.0, cpu_cores=6.0))
    done = stage.see(device(0), device(1), device(2), cpu(0.5))
    assert beside(done) == [("h200", 6.0), ("h200", 6.0), ("h200", 3.0)]
    # The owner takes a device: its cores go to the next, and the rest is offered as cores.
    done = stage.see(device(0), device(1, owner=1.0), device(2), cpu(0.5), at_s=1.0)
    assert sorted(beside(done)) == [("cpu", 3.0), ("h200", 6.0), ("h200", 6.0)]


def beside(done: list[object]) -> list[tuple[str, float]]:
    """Kinds and cores of what is offered in the end."""
    return [(offer.accelerator, offer.cpu_cores) for offer in record(done[-1:]).offers]
