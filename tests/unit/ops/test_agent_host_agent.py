"""The rules of one host's agent, on a fake clock: what is flipped, what is said, and when."""

import pytest

from ops.agent.host_agent import LEASE_EXPIRED, HostAgent, HostAgentSettings
from ops.agent.host_reporter import HostReporter
from ops.agent.moments import Now
from ops.agent.plans import AnnounceReclaim, CloseGate, OpenGate, Plan, RenewGate
from schemas.framing import decode_as, encode
from schemas.gate import FlipReason
from schemas.gate_drain import DrainReport, RankerDrain
from schemas.records import CapacityEvent, Offer
from schemas.records.fields import UnusableReason

SECOND_NS = 1_000_000_000
EPOCH_MS = 1_800_000_000_000
SETTINGS = HostAgentSettings(heartbeat_ns=SECOND_NS, renew_ns=SECOND_NS // 4, drain_limit_ns=5 * SECOND_NS)


def at(seconds: float) -> Now:
    """Both clocks, seconds after the start; the monotonic one counts from another zero."""
    return Now(wall_ms=EPOCH_MS + round(seconds * 1e3), mono_ns=7 * SECOND_NS + round(seconds * 1e9))


def agent(*, pools: tuple[str, ...] = ("cpu",), settings: HostAgentSettings = SETTINGS) -> HostAgent:
    return HostAgent(HostReporter(cell="c", host="h", epoch_ms=EPOCH_MS), pools, settings, now=at(0.0))


def offer(units: float = 2.0, *, accelerator: str = "cpu", unusable: UnusableReason | None = None) -> Offer:
    return Offer(
        accelerator=accelerator,
        units=units,
        cpu_cores=1.0,
        memory_bytes=1,
        idle_cause="off_peak",
        unusable=unusable,
    )


def said(plan: Plan) -> CapacityEvent:
    (record,) = plan.records
    assert decode_as(encode(record), CapacityEvent) == record
    return record


def closed_at(seconds: float, *drained: RankerDrain, pending: tuple[int, ...] = (), dead: tuple[int, ...] = ()):
    return DrainReport(2, at(seconds).mono_ns, drained, dead, pending)


def test_an_offer_opens_the_gate_and_is_a_full_snapshot() -> None:
    plan = agent().offer("cpu", offer(), at(1.0), reason="night")
    assert plan.gates == (OpenGate("cpu"),)
    record = said(plan)
    assert (record.kind, record.reason, record.seq, record.epoch_ms) == ("offer", "night", 0, EPOCH_MS)
    assert record.event_time_ms == EPOCH_MS + 1_000
    assert [(each.accelerator, each.units, each.offered_since_ms) for each in record.offers] == [
        ("cpu", 2.0, EPOCH_MS + 1_000)
    ]


def test_other_amounts_are_an_update_that_flips_nothing_and_keeps_since_when() -> None:
    host = agent()
    host.offer("cpu", offer(), at(1.0))
    plan = host.offer("cpu", offer(1.0), at(2.0))
    assert plan.gates == ()
    record = said(plan)
    assert (record.kind, record.seq) == ("update", 1)
    assert [(each.units, each.offered_since_ms) for each in record.offers] == [(1.0, EPOCH_MS + 1_000)]


def test_unusable_capacity_is_reported_behind_a_closed_gate() -> None:
    host = agent()
    plan = host.offer("cpu", offer(unusable="model_format"), at(1.0))
    assert plan.gates == ()
    assert said(plan).offers[0].unusable == "model_format"
    assert host.reclaim("cpu", at(2.0), reason="owner").gates == ()


def test_capacity_that_becomes_unusable_closes_the_gate_and_one_that_becomes_usable_opens_it() -> None:
    host = agent()
    host.offer("cpu", offer(), at(1.0))
    assert host.offer("cpu", offer(unusable="memory"), at(2.0)).gates == (CloseGate("cpu", FlipReason.RECLAIMED),)
    assert host.drained("cpu", closed_at(2.0), at(2.1)) == Plan()
    plan = host.offer("cpu", offer(), at(3.0))
    assert plan.gates == (OpenGate("cpu"),)
    assert [timing.reason for timing in said(plan).reclaims] == ["memory"]


def test_a_reclaim_closes_the_gate_and_withdraws_the_offer() -> None:
    host = agent(pools=("cpu", "gpu"))
    host.offer("cpu", offer(), at(1.0))
    host.offer("gpu", offer(accelerator="gpu"), at(1.0))
    plan = host.reclaim("cpu", at(2.0), reason="owner")
    assert plan.gates == (CloseGate("cpu", FlipReason.RECLAIMED),)
    record = said(plan)
    assert (record.kind, record.reason) == ("reclaim", "owner")
    assert [each.accelerator for each in record.offers] == ["gpu"]
    assert host.draining == ["cpu"]


def test_what_is_not_offered_cannot_be_taken_back_or_announced() -> None:
    host = agent()
    assert host.reclaim("cpu", at(1.0), reason="owner") == Plan()
    assert host.notice("cpu", at(1.0), ahead_ns=SECOND_NS, reason="owner") == Plan()


def test_a_notice_is_told_to_rankers_and_kafka_and_kept_by_updates_until_the_reclaim() -> None:
    host = agent()
    host.offer("cpu", offer(), at(1.0))
    plan = host.notice("cpu", at(2.0), ahead_ns=3 * SECOND_NS, reason="peak")
    assert plan.gates == (AnnounceReclaim("cpu", at(5.0).mono_ns),)
    record = said(plan)
    assert (record.kind, record.offers[0].reclaim_at_ms) == ("notice", at(5.0).wall_ms)
    assert said(host.offer("cpu", offer(1.0), at(3.0))).offers[0].reclaim_at_ms == at(5.0).wall_ms
    host.reclaim("cpu", at(5.0), reason="peak")
    host.drained("cpu", closed_at(5.0), at(5.0))
    assert said(host.offer("cpu", offer(), at(6.0))).offers[0].reclaim_at_ms is None


def test_seq_rises_by_one_whatever_is_said() -> None:
    host = agent()
    records = [
        said(host.offer("cpu", offer(), at(0.1))),
        said(host.tick(at(1.0))),
        said(host.notice("cpu", at(1.1), ahead_ns=SECOND_NS, reason="")),
        said(host.reclaim("cpu", at(1.2), reason="")),
        said(host.tick(at(2.0))),
    ]
    assert [record.seq for record in records] == [0, 1, 2, 3, 4]
    assert {record.epoch_ms for record in records} == {EPOCH_MS}


def test_heartbeats_are_full_snapshots_on_a_fixed_beat() -> None:
    host = agent(
        settings=HostAgentSettings(
            heartbeat_ns=SECOND_NS, renew_ns=60 * SECOND_NS, drain_limit_ns=1, phase_ns=300_000_000
        )
    )
    assert host.tick(at(0.2)) == Plan()
    host.offer("cpu", offer(), at(0.25))
    beats = []
    for tenth in range(3, 45):
        plan = host.tick(at(tenth / 10))
        if plan.records:
            beats.append(tenth)
            assert said(plan).kind == "heartbeat"
            assert [each.accelerator for each in said(plan).offers] == ["cpu"]
    assert beats == [3, 13, 23, 33, 43]


def test_after_a_pause_one_heartbeat_is_said_not_all_that_were_missed() -> None:
    host = agent()
    host.tick(at(0.0))
    assert len(host.tick(at(10.5)).records) == 1
    assert host.tick(at(10.6)).records == ()
    assert len(host.tick(at(11.0)).records) == 1


def test_an_open_gates_lease_is_renewed_and_a_closed_ones_is_not() -> None:
    host = agent()
    assert host.tick(at(0.25)).gates == ()
    host.offer("cpu", offer(), at(0.3))
    assert host.tick(at(0.4)).gates == ()
    assert host.tick(at(0.5)).gates == (RenewGate("cpu"),)
    assert host.tick(at(0.6)).gates == ()
    assert host.tick(at(0.75)).gates == (RenewGate("cpu"),)
    host.reclaim("cpu", at(0.8), reason="")
    assert host.tick(at(2.0)).gates == ()


def test_ticks_are_due_when_something_is() -> None:
    host = agent()
    assert host.due_ns == at(0.0).mono_ns
    host.tick(at(0.0))
    assert host.due_ns == at(0.25).mono_ns


def test_a_reclaims_timing_is_the_slowest_rankers_and_goes_out_with_the_next_record() -> None:
    host = agent()
    host.offer("cpu", offer(), at(1.0))
    assert said(host.reclaim("cpu", at(2.0), reason="owner")).reclaims == []
    assert host.drained("cpu", closed_at(2.001, pending=(11,)), at(2.01)) == Plan()
    assert host.draining == ["cpu"]
    report = closed_at(2.001, RankerDrain(11, 3_400_000, 9_000_000), RankerDrain(12, 0, 12_345_678), dead=(13,))
    assert host.drained("cpu", report, at(2.02)) == Plan()
    assert host.draining == []
    (timing,) = said(host.tick(at(3.0))).reclaims
    assert (timing.reaction_us, timing.drained_us, timing.num_rankers) == (3_400, 12_345, 2)
    assert (timing.accelerator, timing.reason, timing.flipped_ms) == ("cpu", "owner", at(2.001).wall_ms)
    assert said(host.tick(at(4.0))).reclaims == []


def test_a_reclaim_without_rankers_took_no_time() -> None:
    host = agent()
    host.offer("cpu", offer(), at(1.0))
    host.reclaim("cpu", at(2.0), reason="owner")
    host.drained("cpu", closed_at(2.0), at(2.01))
    (timing,) = said(host.tick(at(3.0))).reclaims
    assert (timing.reaction_us, timing.drained_us, timing.num_rankers) == (0, 0, 0)


def test_a_ranker_that_never_answers_is_reported_as_such_at_the_limit() -> None:
    host = agent()
    host.offer("cpu", offer(), at(1.0))
    host.reclaim("cpu", at(2.0), reason="owner")
    report = closed_at(2.0, RankerDrain(11, 1_000_000, 2_000_000), pending=(12,))
    assert host.drained("cpu", report, at(6.9)) == Plan()
    assert host.draining == ["cpu"]
    host.drained("cpu", report, at(7.0))
    assert host.draining == []
    (timing,) = said(host.tick(at(8.0))).reclaims
    assert (timing.reaction_us, timing.drained_us, timing.num_rankers) == (None, None, 2)


def test_capacity_given_back_before_its_rankers_have_drained_waits_for_them() -> None:
    host = agent()
    host.offer("cpu", offer(), at(1.0))
    host.reclaim("cpu", at(2.0), reason="owner")
    assert host.offer("cpu", offer(3.0), at(2.1)) == Plan()
    assert host.drained("cpu", closed_at(2.0, pending=(11,)), at(2.2)) == Plan()
    plan = host.drained("cpu", closed_at(2.0, RankerDrain(11, 1_000, 2_000)), at(2.3))
    assert plan.gates == (OpenGate("cpu"),)
    record = said(plan)
    assert (record.kind, record.offers[0].units) == ("offer", 3.0)
    assert [timing.reaction_us for timing in record.reclaims] == [1]


def test_a_second_reclaim_takes_back_the_wish_to_offer() -> None:
    host = agent()
    host.offer("cpu", offer(), at(1.0))
    host.reclaim("cpu", at(2.0), reason="owner")
    host.offer("cpu", offer(), at(2.1))
    assert host.reclaim("cpu", at(2.2), reason="owner") == Plan()
    assert host.drained("cpu", closed_at(2.0), at(2.3)) == Plan()


def test_a_lost_lease_is_a_reclaim_that_ends_when_rankers_have_drained() -> None:
    host = agent()
    host.offer("cpu", offer(), at(1.0))
    plan = host.lease_lost("cpu", at(5.0))
    assert plan.gates == ()
    record = said(plan)
    assert (record.kind, record.reason, record.offers) == ("reclaim", LEASE_EXPIRED, [])
    again = host.drained("cpu", closed_at(4.0, RankerDrain(11, 0, 1_000)), at(5.1))
    assert again.gates == (OpenGate("cpu"),)
    assert [timing.reason for timing in said(again).reclaims] == [LEASE_EXPIRED]


@pytest.mark.parametrize("is_draining", [False, True])
def test_stopping_closes_and_takes_back_everything_once(is_draining: bool) -> None:
    host = agent(pools=("cpu", "gpu"))
    host.offer("cpu", offer(), at(1.0))
    host.offer("gpu", offer(accelerator="gpu"), at(1.0))
    if is_draining:
        host.reclaim("cpu", at(2.0), reason="owner")
        host.offer("cpu", offer(), at(2.1))
    plan = host.stop(at(3.0), reason="agent_stopped")
    closed = [CloseGate(kind, FlipReason.AGENT_STOPPED) for kind in (("gpu",) if is_draining else ("cpu", "gpu"))]
    assert list(plan.gates) == closed
    record = said(plan)
    assert (record.kind, record.reason, record.offers) == ("reclaim", "agent_stopped", [])
    for kind in ("cpu", "gpu"):
        assert host.drained(kind, closed_at(3.0), at(3.1)) == Plan()
    assert len(said(host.last_word(at(3.2))).reclaims) == 2
    assert host.last_word(at(3.3)) == Plan()
