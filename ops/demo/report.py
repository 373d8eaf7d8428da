"""The demo's report: figures from the ledger, and the invariants that they keep or break. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ops.demo.judgement import AFTER, BEFORE, DURING, NEVER_MS, not_judged
from ops.demo.ledger import Ledger, OfferChange, SeenResult
from schemas.records import OptionalItem

Phase = Literal["before", "reclaim", "after"]
PHASES: tuple[Phase, ...] = ("before", "reclaim", "after")
LEVERS: tuple[Literal["rma", "sbm"], ...] = ("rma", "sbm")


@dataclass(frozen=True, kw_only=True)
class Run:
    """What was run: when the warm-up ended and the traffic stopped (milliseconds since the epoch), and how.

    ``callers`` is what the callers said of themselves: how late they sent. ``files`` are the real files that traffic
    came from, by kind; empty for a scenario of its own.
    """

    scenario: str
    warm_up_end_ms: int
    traffic_end_ms: int
    requests_per_s: float
    deadline_ms: int
    window_ms: int
    host_ttl_ms: int
    restarts: dict[str, int]
    callers: dict[str, Any]
    files: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Account:
    """Where the units of one lever went; ``offered`` is counted from what was assigned, apart from the others."""

    offered: int
    admitted: int
    shed: dict[str, int]
    late: int
    lost: int

    @property
    def exact(self) -> bool:
        return self.offered == self.admitted + sum(self.shed.values()) + self.late + self.lost

    def to_dict(self) -> dict[str, Any]:
        return {
            "offered": self.offered,
            "admitted": self.admitted,
            "shed": self.shed,
            "late": self.late,
            "lost": self.lost,
        }


def build_report(ledger: Ledger, run: Run) -> dict[str, Any]:
    """Report as JSON data; ``invariants`` lists each rule with whether it held and what was seen."""
    reclaim = first_reclaim(ledger)
    requests = _requests(ledger, run)
    accounts = {lever: account(ledger, lever, ledger.results.values()) for lever in LEVERS}
    by_phase = {
        phase: {lever: account(ledger, lever, _in_phase(ledger, run, reclaim, phase)) for lever in LEVERS}
        for phase in PHASES
    }
    measured_s = max(run.traffic_end_ms - run.warm_up_end_ms, 1) / 1_000
    report: dict[str, Any] = {
        "scenario": {
            "name": run.scenario,
            "requests_per_s": round(_num_measured(ledger, run) / measured_s, 2),
            "requests_per_s_asked": run.requests_per_s,
            "measured_s": round(measured_s, 3),
            "deadline_ms": run.deadline_ms,
            "window_ms": run.window_ms,
        },
        "requests": requests,
        "latency_ms": {phase: _latency(ledger, _in_phase(ledger, run, reclaim, phase)) for phase in PHASES},
        "optional": {lever: accounts[lever].to_dict() for lever in LEVERS},
        "optional_by_phase": {phase: {lever: by_phase[phase][lever].to_dict() for lever in LEVERS} for phase in PHASES},
        "flips": _flips(ledger),
        "reclaims": _reclaims(ledger, run),
        "candidate_target": {
            cell: [[target.window_end_ms, target.candidate_target] for _, target in sorted(targets.items())]
            for cell, targets in sorted(ledger.targets.items())
        },
        "reclaimed_share": reclaimed_share(ledger, run),
        "outcomes": ledger.num_outcomes,
        "dead_letters": dict(sorted(ledger.dead_letters.items())),
        "restarts": run.restarts,
        "callers": run.callers,
        "files": run.files,
    }
    # A scenario of its own is written so that each can be judged; a file is as it is.
    offered: dict[str, int] = {phase: sums["rma"].offered for phase, sums in by_phase.items()}
    unjudged = not_judged(ledger, offered, reclaim) if run.files else {}
    report["invariants"] = [
        {"name": name, "held": held, "seen": seen}
        for name, held, seen in _invariants(requests, accounts, by_phase, reclaim is not None)
        if name not in unjudged
    ]
    report["not_judged"] = unjudged
    return report


def broken_invariants(report: dict[str, Any]) -> list[str]:
    """Names of the invariants that a report shows broken."""
    return [row["name"] for row in report["invariants"] if not row["held"]]


def first_reclaim(ledger: Ledger) -> tuple[int, int] | None:
    """From the first gate flip to that gate's opening again (or for ever), milliseconds; None without a reclaim."""
    flips = [
        (change.time_ms, host)
        for host, changes in ledger.offers.items()
        for change in changes
        if change.kind == "reclaim"
    ]
    if not flips:
        return None
    flipped_ms, host = min(flips)
    opened = [c.time_ms for c in ledger.offers[host] if c.kind == "offer" and c.time_ms > flipped_ms]
    return flipped_ms, min(opened, default=NEVER_MS)


def account(ledger: Ledger, lever: Literal["rma", "sbm"], results: Iterable[SeenResult]) -> Account:
    """Account of one lever over some results; a pending item is closed by what its replica said, or is lost."""
    offered = admitted = late = lost = 0
    shed: Counter[str] = Counter()
    for seen in results:
        if lever == "rma":
            offered += seen.record.dose
        for item in seen.record.optional:
            if item.lever != lever:
                continue
            if lever == "sbm":
                offered += item.units
            match _outcome(ledger, seen.record.request_id, item):
                case ("admitted", _):
                    admitted += item.units
                case ("late", _):
                    late += item.units
                case ("lost", _):
                    lost += item.units
                case (_, reason):
                    shed[reason] += item.units
    return Account(offered, admitted, dict(sorted(shed.items())), late, lost)


def reclaimed_share(ledger: Ledger, run: Run) -> float | None:
    """Busy unit-seconds of optional work over unit-seconds offered; None where nothing was offered.

    A replica runs on one unit, so its busy seconds are unit-seconds. An offer counts from its event to the host's
    next one, at most for the host's time to live, within the time of the traffic.
    """
    offered_ms = 0.0
    for changes in ledger.offers.values():
        ordered = sorted(changes, key=lambda change: change.time_ms)
        for change, end_ms in zip(ordered, _ends(ordered, run), strict=True):
            offered_ms += change.usable_units * max(0, min(end_ms, run.traffic_end_ms) - change.time_ms)
    return round(ledger.optional_busy_us / 1_000 / offered_ms, 4) if offered_ms else None


def _ends(ordered: list[OfferChange], run: Run) -> Iterator[int]:
    for index, change in enumerate(ordered):
        following = ordered[index + 1].time_ms if index + 1 < len(ordered) else 1 << 62
        yield min(following, change.time_ms + run.host_ttl_ms)


def _outcome(ledger: Ledger, request_id: str, item: OptionalItem) -> tuple[str, str]:
    if item.state != "pending":
        return item.state, item.reason or "unnamed"
    said = ledger.answers.get((request_id, item.lever))
    if said is not None and item.chunk in said.scored:
        return "late", ""
    if said is not None and item.chunk in said.shed:
        return "shed", said.shed[item.chunk]
    return "lost", ""


def _flips(ledger: Ledger) -> dict[str, int]:
    """Upgraded requests whose result says whether the stronger model changed what was shown, and those that it did."""
    compared = [seen.record.flipped for seen in ledger.results.values() if seen.record.flipped is not None]
    return {"compared": len(compared), "flipped": sum(compared)}


def _requests(ledger: Ledger, run: Run) -> dict[str, int]:
    """Counts over the whole run; late base answers of the warm-up stand apart from those of the measured time."""
    wanted = {request_id: ledger.results.get(request_id) for request_id in ledger.requests}
    ranked = {key: seen for key, seen in wanted.items() if seen is not None and seen.record.status == "ok"}
    late = [key for key in ranked if is_late(ledger, ranked[key])]
    num_warming = sum(ledger.requests[key].append_ms < run.warm_up_end_ms for key in late)
    return {
        "accepted": len(wanted),
        "results": ledger.num_results,
        "missing": sum(1 for seen in wanted.values() if seen is None),
        "duplicates": ledger.num_results - len(ledger.results),
        "base_late": len(late) - num_warming,
        "base_late_in_warm_up": num_warming,
        "base_missing": sum(1 for seen in ranked.values() if seen.record.degraded),
        "errors": sum(1 for seen in wanted.values() if seen is not None and seen.record.status == "error"),
    }


def is_late(ledger: Ledger, seen: SeenResult) -> bool:
    """Whether a result says itself that it is late, or came later by the broker's clock than its caller waits."""
    request = ledger.requests[seen.record.request_id]
    return seen.record.late or seen.append_ms - request.append_ms > request.budget_ms


def _took_ms(ledger: Ledger, request_id: str) -> int:
    return ledger.results[request_id].append_ms - ledger.requests[request_id].append_ms


def _num_measured(ledger: Ledger, run: Run) -> int:
    return sum(run.warm_up_end_ms <= seen.append_ms < run.traffic_end_ms for seen in ledger.requests.values())


def _in_phase(ledger: Ledger, run: Run, reclaim: tuple[int, int] | None, phase: Phase) -> Iterator[SeenResult]:
    flipped_ms, opened_ms = reclaim if reclaim is not None else (1 << 62, 1 << 62)
    start_ms, end_ms = {
        "before": (run.warm_up_end_ms, flipped_ms),
        "reclaim": (flipped_ms, opened_ms),
        "after": (opened_ms + run.window_ms, 1 << 62),
    }[phase]
    for request_id, seen in ledger.results.items():
        request = ledger.requests.get(request_id)
        if request is not None and start_ms <= request.append_ms < end_ms:
            yield seen


def _latency(ledger: Ledger, results: Iterable[SeenResult]) -> dict[str, float | int | None]:
    taken_ms = [_took_ms(ledger, seen.record.request_id) for seen in results]
    if not taken_ms:
        return {"p50": None, "p99": None, "n": 0}
    p50, p99 = np.percentile(taken_ms, [50, 99])
    return {"p50": round(float(p50), 2), "p99": round(float(p99), 2), "n": len(taken_ms)}


def _reclaims(ledger: Ledger, run: Run) -> dict[str, Any]:
    # At its end the agents close their gates too; that is no reclaim.
    timings = [timing for timing in ledger.reclaims.values() if timing.flipped_ms < run.traffic_end_ms]
    return {
        "count": len(timings),
        "reaction_ms": _spread(timing.reaction_us for timing in timings),
        "drained_ms": _spread(timing.drained_us for timing in timings),
        "not_drained": sum(timing.drained_us is None for timing in timings),
    }


def _spread(values_us: Iterable[int | None]) -> dict[str, float | None]:
    known_ms = [value / 1_000 for value in values_us if value is not None]
    if not known_ms:
        return {"p50": None, "max": None}
    return {"p50": round(float(np.median(known_ms)), 3), "max": round(max(known_ms), 3)}


def _invariants(
    requests: dict[str, int],
    accounts: dict[Literal["rma", "sbm"], Account],
    by_phase: dict[Phase, dict[Literal["rma", "sbm"], Account]],
    reclaimed: bool,
) -> Iterator[tuple[str, bool, str]]:
    yield "requests were taken", requests["accepted"] > 0, f"{requests['accepted']} accepted"
    yield "nothing lost", requests["missing"] == 0, f"{requests['missing']} results missing"
    yield "one result per request", requests["duplicates"] == 0, f"{requests['duplicates']} duplicates"
    inviolate = requests["base_late"] == 0 and requests["base_missing"] == 0
    seen = f"{requests['base_late']} base answers late, {requests['base_missing']} results without one"
    yield "baseline inviolate", inviolate, seen
    for lever, sums in accounts.items():
        closed = sums.admitted + sum(sums.shed.values()) + sums.late + sums.lost
        yield f"accounts exact: {lever}", sums.exact, f"{sums.offered} offered, {closed} closed"
    if not reclaimed:
        return
    before, during, after = (by_phase[phase]["rma"] for phase in PHASES)
    yield BEFORE, before.admitted > 0, f"{before.admitted} admitted"
    yield DURING, sum(during.shed.values()) > 0, f"{sum(during.shed.values())} shed"
    yield AFTER, after.admitted > 0, f"{after.admitted} admitted"
