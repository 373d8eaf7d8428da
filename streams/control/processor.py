"""The controller as a pure function: state and window in, state and records out.

A cell ticks for window T when both its capacity and its latency window of T are there. Windows of one kind come in
order from one partition, so whichever kind is behind decides: what it has stepped over will not come any more, and that
window is skipped. Nothing depends on when a record arrives, only on the order of the log.

Seen again. A window of an index already taken in is not applied twice. If it is the last of its kind, what it led to
is returned again: those are the only records that a crash can have kept from the topics, since the records of every
window are acknowledged before the next is applied. So an old target is never sent after a newer one.
"""

from dataclasses import dataclass

import msgspec
from msgspec import Struct

from schemas.records import CandidateTarget, ControllerSnapshot, ControlWindow, PoolSnapshot, WindowRef
from streams.control import estimates, evidence
from streams.control.decide import Decision, Inputs, decide
from streams.control.facts import capacity_facts, latency_facts
from streams.control.gains import DEFAULT_GAINS, Gains
from streams.control.state import (
    NONE_YET,
    CapacityFacts,
    CellState,
    Evidence,
    Hold,
    LatencyFacts,
    Loop,
    Sent,
    encode_state,
)

CONTROLLER_VERSION = "pid-1"
# Windows of one kind that may wait for the other: at ten seconds each more than any target stays valid.
MAX_PENDING = 64
MICRO = 1_000_000
MS_PER_S = 1_000

Applied = tuple[CellState, tuple[Struct, ...]]


@dataclass(frozen=True, kw_only=True)
class ControlSettings:
    """How many windows a target is valid for, how many ticks lie between two snapshots, and how the loop steers."""

    validity_windows: int = 3
    snapshot_ticks: int = 30
    gains: Gains = DEFAULT_GAINS

    def __post_init__(self) -> None:
        if self.validity_windows <= 0 or self.snapshot_ticks <= 0:
            raise ValueError("validity_windows and snapshot_ticks must be positive")


DEFAULT_SETTINGS = ControlSettings()


def apply(state: CellState, window: ControlWindow, *, settings: ControlSettings = DEFAULT_SETTINGS) -> Applied:
    """State of the window's cell after the window, and the records to send, in order.

    ``window`` must have passed ``believe``. Measurement windows are not used by this controller.
    """
    assert window.cell == state.cell
    if window.kind == "command":
        return _commanded(state, window), ()
    if window.kind not in ("capacity", "latency"):
        return state, ()
    window_ms = window.end_ms - window.start_ms
    if state.window_ms != window_ms:
        if window.end_ms <= (max(state.last_capacity, state.last_latency) + 1) * state.window_ms:
            return state, ()
        state = _realigned(state, window_ms)
    if window.kind == "capacity":
        return _capacity(state, window, settings)
    return _latency(state, window, settings)


def _capacity(state: CellState, window: ControlWindow, settings: ControlSettings) -> Applied:
    index = window.window_index
    if index <= state.last_capacity:
        return state, _sent_again(state.sent_capacity, index)
    sent = Sent(window_index=index, pools=_pools(window, settings))
    facts = capacity_facts(window)
    partner = next((latency for latency in state.pending_latency if latency.window_index == index), None)
    state = msgspec.structs.replace(
        state,
        last_capacity=index,
        pending_latency=tuple(latency for latency in state.pending_latency if latency.window_index > index),
    )
    if partner is not None:
        state, sent = _tick(state, facts, partner, sent=sent, settings=settings)
    elif index > state.last_latency:
        pending = (*state.pending_capacity, facts)[-MAX_PENDING:]
        state = msgspec.structs.replace(state, pending_capacity=pending)
    return msgspec.structs.replace(state, sent_capacity=sent), sent.records()


def _latency(state: CellState, window: ControlWindow, settings: ControlSettings) -> Applied:
    index = window.window_index
    if index <= state.last_latency:
        return state, _sent_again(state.sent_latency, index)
    sent = Sent(window_index=index)
    facts = latency_facts(window)
    partner = next((capacity for capacity in state.pending_capacity if capacity.window_index == index), None)
    state = msgspec.structs.replace(
        state,
        last_latency=index,
        pending_capacity=tuple(capacity for capacity in state.pending_capacity if capacity.window_index > index),
    )
    if partner is not None:
        state, sent = _tick(state, partner, facts, sent=sent, settings=settings)
    elif index > state.last_capacity:
        pending = (*state.pending_latency, facts)[-MAX_PENDING:]
        state = msgspec.structs.replace(state, pending_latency=pending)
    return msgspec.structs.replace(state, sent_latency=sent), sent.records()


def _tick(
    state: CellState, capacity: CapacityFacts, latency: LatencyFacts, *, sent: Sent, settings: ControlSettings
) -> tuple[CellState, Sent]:
    """State after the tick, and ``sent`` with the target and, when it is due, the snapshot."""
    index = capacity.window_index
    num_skipped = index - state.last_tick - 1 if state.last_tick != NONE_YET else 0
    # By then the last target has run out and routers are at base: they rise from there.
    loop = state.loop if num_skipped < settings.validity_windows else Loop()
    seen = evidence.gathered(loop.evidence, latency)
    loop = msgspec.structs.replace(loop, evidence=seen)
    hold = state.hold
    if hold is not None and hold.expires_ms is not None and capacity.end_ms >= hold.expires_ms:
        hold = None
    window_s = state.window_ms / MS_PER_S
    smoothed = estimates.updated(state.estimates, latency, window_s=window_s)
    inputs = Inputs(
        limits=capacity.limits,
        usable_units=max(0, capacity.usable_units_micro - capacity.noticed_units_micro) / MICRO,
        units_per_unit_s=estimates.units_per_unit_s(smoothed, curve_units_per_unit_s=capacity.limits.units_per_unit_s),
        planned_rate_per_s=estimates.planned_rate_per_s(smoothed, latency, window_s=window_s),
        num_routers=latency.num_routers,
        num_requests=latency.num_requests,
        num_samples=evidence.num_samples(seen),
        p99_ms=evidence.p99_ms(seen),
        shed_share=evidence.shed_share(seen),
        num_windows=len(seen.windows),
        hold=hold,
    )
    decision = decide(inputs, loop=loop, gains=settings.gains)
    notes = [state.note] if state.note else []
    if num_skipped:
        notes.append(f"{num_skipped} windows before this one were skipped")
    target = _target(
        state, capacity, _manifest(capacity, latency, seen), inputs, decision, notes=notes, settings=settings
    )
    due = state.num_ticks % settings.snapshot_ticks == 0
    state = msgspec.structs.replace(
        state,
        last_tick=index,
        num_ticks=state.num_ticks + 1,
        loop=decision.loop,
        estimates=smoothed,
        hold=hold,
        note="",
    )
    return state, msgspec.structs.replace(sent, target=target, snapshot=_snapshot(state) if due else None)


def _target(
    state: CellState,
    capacity: CapacityFacts,
    manifest: list[WindowRef],
    inputs: Inputs,
    decision: Decision,
    *,
    notes: list[str],
    settings: ControlSettings,
) -> CandidateTarget:
    limits = capacity.limits
    return CandidateTarget(
        cell=state.cell,
        window_index=capacity.window_index,
        window_end_ms=capacity.end_ms,
        valid_until_ms=capacity.end_ms + settings.validity_windows * state.window_ms,
        base_candidates=limits.base_candidates,
        max_candidates=limits.max_candidates,
        candidate_target=limits.base_candidates + decision.extras,
        extra_budget_units_s=decision.budget_units_s,
        coverage=0.0,
        segment_shares=[],
        reason=decision.reason,
        detail="; ".join([decision.detail, *notes])[:4096],
        manifest=manifest,
        latency_limit_ms=limits.latency_limit_ms,
        latency_p99_ms=inputs.p99_ms,
        request_rate_per_s=inputs.planned_rate_per_s,
        controller_version=CONTROLLER_VERSION,
    )


def _manifest(capacity: CapacityFacts, latency: LatencyFacts, seen: Evidence) -> list[WindowRef]:
    """The capacity window, the latency windows whose merged figures were read, and that of the tick in any case."""
    own = WindowRef(kind="latency", source_partition=latency.source_partition, window_index=latency.window_index)
    earlier = [window for window in seen.windows if window.window_index != latency.window_index]
    return [
        WindowRef(kind="capacity", source_partition=capacity.source_partition, window_index=capacity.window_index),
        *earlier,
        own,
    ]


def _pools(window: ControlWindow, settings: ControlSettings) -> tuple[PoolSnapshot, ...]:
    assert window.capacity is not None
    window_ms = window.end_ms - window.start_ms
    return tuple(
        PoolSnapshot(
            cell=window.cell,
            window_index=window.window_index,
            window_end_ms=window.end_ms,
            valid_until_ms=window.end_ms + settings.validity_windows * window_ms,
            **msgspec.structs.asdict(pool),
        )
        for pool in window.capacity.pools
    )


def _snapshot(state: CellState) -> ControllerSnapshot:
    """Snapshot without the kept records: a replay that starts from it has nothing to repeat."""
    bare = msgspec.structs.replace(state, sent_capacity=None, sent_latency=None)
    return ControllerSnapshot(
        cell=state.cell,
        window_index=state.last_tick,
        controller_version=CONTROLLER_VERSION,
        state=encode_state(bare),
    )


def _sent_again(sent: Sent | None, index: int) -> tuple[Struct, ...]:
    return sent.records() if sent is not None and sent.window_index == index else ()


def _commanded(state: CellState, window: ControlWindow) -> CellState:
    """State after an operator's word: the last one counts, so that hearing some of them twice changes nothing."""
    command = window.command
    assert command is not None
    if command.action == "resume":
        return msgspec.structs.replace(state, hold=None)
    hold = Hold(
        action=command.action,
        operator=command.operator,
        reason=command.reason,
        candidate_target=command.candidate_target,
        expires_ms=command.expires_ms,
    )
    return msgspec.structs.replace(state, hold=hold)


def _realigned(state: CellState, window_ms: int) -> CellState:
    """State for windows of another length, whose indices do not compare with those before: from base, afresh."""
    if state.window_ms == 0:
        return msgspec.structs.replace(state, window_ms=window_ms)
    return CellState(
        cell=state.cell,
        window_ms=window_ms,
        num_ticks=state.num_ticks,
        estimates=state.estimates,
        hold=state.hold,
        note=f"windows are now {window_ms} ms, were {state.window_ms} ms",
    )
