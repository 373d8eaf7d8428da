"""The report counts what the topics say, and calls a broken invariant broken."""

from collections.abc import Sequence
from typing import Any, Literal

from msgspec.structs import replace

from ops.demo.ledger import Ledger
from ops.demo.report import Run, broken_invariants, build_report
from schemas.records import (
    CapacityEvent,
    ChunkShed,
    HistogramFields,
    LatencyInterval,
    Offer,
    OptionalItem,
    RankingAnswer,
    RankingRequest,
    RankingResult,
    ReclaimTiming,
    RouteInterval,
)

RUN = Run(
    scenario="t",
    warm_up_end_ms=1_000,
    traffic_end_ms=11_000,
    requests_per_s=1.0,
    deadline_ms=500,
    window_ms=1_000,
    host_ttl_ms=60_000,
    restarts={},
    callers={},
)
EMPTY = HistogramFields(scale=0, offset=0, counts=b"", zero_count=0, count=0, sum_micro=0)


def request(request_id: str) -> RankingRequest:
    return RankingRequest(
        request_id=request_id,
        user_id="u",
        cell="c",
        intake_ms=100,
        deadline_ms=600,
        num_base_candidates=1,
        num_results=1,
        ad_ids=bytes(8),
        bids=bytes(4),
        retrieval_scores=bytes(4),
        user_features=b"",
    )


def item(
    chunk: int, state: Literal["admitted", "shed", "pending"], *, units: int = 10, reason: str = ""
) -> OptionalItem:
    return OptionalItem(
        lever="rma",
        route="wide",
        chunk=chunk,
        units=units,
        cost_units=units,
        value_micro=1,
        propensity=1.0,
        state=state,
        reason=reason,
    )


def result(request_id: str, items: Sequence[OptionalItem] = (), *, dose: int | None = None) -> RankingResult:
    return RankingResult(
        request_id=request_id,
        user_id="u",
        cell="c",
        status="ok",
        error="",
        late=False,
        degraded=False,
        takeover=False,
        intake_ms=100,
        deadline_ms=600,
        completed_ms=200,
        base_latency_us=1,
        latency_us=1,
        num_base_attempts=1,
        num_base_candidates=1,
        num_candidates_offered=1,
        num_candidates_ranked=1,
        ad_ids=bytes(8),
        scores=bytes(4),
        routes=["baseline"],
        model_versions=["m"],
        arm="rma",
        dose=sum(i.units for i in items) if dose is None else dose,
        target_window_index=None,
        optional=list(items),
        router="r",
        attribution_token="",
    )


def answer(request_id: str, *, scored: Sequence[int] = (), shed: Sequence[tuple[int, str]] = ()) -> RankingAnswer:
    return RankingAnswer(
        request_id=request_id,
        attempt=0,
        route="wide",
        cell="c",
        lever="rma",
        ranker="w",
        ranker_epoch_ms=0,
        work_partition=0,
        model_version="m",
        scored_chunks=list(scored),
        scores=b"",
        sheds=[ChunkShed(chunk=chunk, reason=reason, num_candidates=10, value_micro=1) for chunk, reason in shed],
        queue_wait_us=0,
        busy_us=0,
        pressure=0.0,
    )


def capacity(time_ms: int, kind: Literal["offer", "reclaim"], units: float, **fields: Any) -> CapacityEvent:
    offers = [Offer(accelerator="cpu", units=units, cpu_cores=1.0, memory_bytes=1, idle_cause="off_peak")]
    return CapacityEvent(
        cell="c", host="h", epoch_ms=0, seq=time_ms, event_time_ms=time_ms, kind=kind, offers=offers, **fields
    )


def served(
    ledger: Ledger, request_id: str, *, at_ms: int, took_ms: int = 20, items: Sequence[OptionalItem] = ()
) -> None:
    ledger.add(request(request_id), append_ms=at_ms)
    ledger.add(result(request_id, items), append_ms=at_ms + took_ms)


def full_cycle() -> Ledger:
    """One request before a reclaim, one in it, one after it."""
    ledger = Ledger()
    ledger.add(capacity(500, "offer", 2.0), append_ms=500)
    ledger.add(capacity(4_000, "reclaim", 0.0), append_ms=4_000)
    ledger.add(capacity(6_000, "offer", 2.0), append_ms=6_000)
    served(
        ledger,
        "a",
        at_ms=2_000,
        items=[item(0, "admitted"), item(1, "pending"), item(2, "pending"), item(3, "pending")],
    )
    ledger.add(answer("a", scored=[1], shed=[(2, "deadline")]), append_ms=2_500)
    served(ledger, "b", at_ms=4_500, items=[item(0, "shed", reason="gate_closed")])
    served(ledger, "c", at_ms=8_000, took_ms=40, items=[item(0, "admitted")])
    return ledger


def test_a_run_as_it_should_be_breaks_nothing() -> None:
    report = build_report(full_cycle(), RUN)
    assert broken_invariants(report) == []
    assert report["requests"] == {
        "accepted": 3,
        "results": 3,
        "missing": 0,
        "duplicates": 0,
        "base_late": 0,
        "base_late_in_warm_up": 0,
        "base_missing": 0,
        "errors": 0,
    }
    assert {phase: seen["n"] for phase, seen in report["latency_ms"].items()} == {"before": 1, "reclaim": 1, "after": 1}
    assert report["latency_ms"]["after"] == {"p50": 40.0, "p99": 40.0, "n": 1}


def test_pending_items_close_by_what_the_replica_said() -> None:
    rma = build_report(full_cycle(), RUN)["optional"]["rma"]
    assert rma == {"offered": 60, "admitted": 20, "shed": {"deadline": 10, "gate_closed": 10}, "late": 10, "lost": 10}


def test_a_missing_result_a_duplicate_and_a_late_base_answer_are_told() -> None:
    ledger = full_cycle()
    ledger.add(request("lost"), append_ms=2_000)
    ledger.add(result("a"), append_ms=2_600)
    served(ledger, "late", at_ms=2_000, took_ms=501)
    served(ledger, "warming", at_ms=999, took_ms=501)
    ledger.add(request("degraded"), append_ms=2_000)
    ledger.add(replace(result("degraded"), degraded=True), append_ms=2_100)
    report = build_report(ledger, RUN)
    assert report["requests"]["missing"] == 1
    assert report["requests"]["duplicates"] == 1
    assert report["requests"]["base_late"] == 1
    assert report["requests"]["base_late_in_warm_up"] == 1
    assert report["requests"]["base_missing"] == 1
    assert set(broken_invariants(report)) == {"nothing lost", "one result per request", "baseline inviolate"}


def test_a_dose_that_its_items_do_not_add_up_to_breaks_the_account() -> None:
    ledger = full_cycle()
    ledger.add(request("x"), append_ms=2_000)
    ledger.add(result("x", [item(0, "admitted")], dose=11), append_ms=2_010)
    assert "accounts exact: rma" in broken_invariants(build_report(ledger, RUN))


def test_optional_work_that_does_not_come_back_is_told() -> None:
    ledger = Ledger()
    ledger.add(capacity(4_000, "reclaim", 0.0), append_ms=4_000)
    served(ledger, "a", at_ms=2_000, items=[item(0, "admitted")])
    served(ledger, "b", at_ms=4_500, items=[item(0, "shed", reason="gate_closed")])
    assert broken_invariants(build_report(ledger, RUN)) == ["optional work after the reclaim"]


def test_reclaimed_share_is_busy_time_over_time_offered() -> None:
    ledger = full_cycle()
    # Two units from 500 to 4,000 and from 6,000 to 11,000: 17,000 unit-milliseconds.
    route = RouteInterval(route="wide", latency=EMPTY, queue_wait=EMPTY, num_work=0, num_answered=0, busy_us=1_700_000)
    interval = LatencyInterval(
        cell="c",
        source="w",
        part="ranker",
        epoch_ms=0,
        seq=1,
        event_time_ms=0,
        interval_ms=1,
        latency=EMPTY,
        routes=[route, replace(route, route="baseline")],
        accounts=[],
    )
    ledger.add(interval, append_ms=3_000)
    ledger.add(interval, append_ms=3_001)
    assert build_report(ledger, RUN)["reclaimed_share"] == 0.1


def test_an_offer_that_is_not_renewed_ends_with_the_hosts_time_to_live() -> None:
    ledger = Ledger()
    ledger.add(capacity(1_000, "offer", 1.0), append_ms=1_000)
    ledger.optional_busy_us = 1_000_000
    run = Run(**{**RUN.__dict__, "host_ttl_ms": 4_000})
    assert build_report(ledger, run)["reclaimed_share"] == 0.25


def test_reclaims_are_counted_once_with_their_times() -> None:
    ledger = full_cycle()
    timing = ReclaimTiming(
        accelerator="cpu", reason="owner", flipped_ms=4_000, reaction_us=1_500, drained_us=2_500, num_rankers=1
    )
    for seq in (4_200, 4_300):
        ledger.add(capacity(seq, "reclaim", 0.0, reclaims=[timing]), append_ms=seq)
    undrained = replace(timing, flipped_ms=9_000, reaction_us=None, drained_us=None)
    ledger.add(capacity(9_100, "reclaim", 0.0, reclaims=[undrained]), append_ms=9_100)
    assert build_report(ledger, RUN)["reclaims"] == {
        "count": 2,
        "reaction_ms": {"p50": 1.5, "max": 1.5},
        "drained_ms": {"p50": 2.5, "max": 2.5},
        "not_drained": 1,
    }


def test_dead_letters_are_counted_by_their_topic() -> None:
    ledger = full_cycle()
    ledger.add_dead_letter("fleet.capacity")
    assert build_report(ledger, RUN)["dead_letters"] == {"fleet.capacity": 1}


def test_a_run_without_requests_is_no_success() -> None:
    assert "requests were taken" in broken_invariants(build_report(Ledger(), RUN))
