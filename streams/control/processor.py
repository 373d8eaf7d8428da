"""The controller as a pure function: state and window in, state and records out.

A cell ticks for window T when both its capacity and its latency window of T are there. Windows of one kind come in
order from one partition, so whichever kind is behind decides: what it has stepped over will not come any more, and that
window is skipped. Nothing depends on when a record arrives, only on the order of the log.

Seen again. A window of an index already taken in is not applied twice. If it is the last of its kind, what it led to
is returned again: those are the only records that a crash can have kept from the topics, since the records of every
window are acknowledged before the next is applied. So an old target is never sent after a newer one.
"""

from typing import TypeVar

import msgspec
from msgspec import Struct

from schemas.records import ControllerSnapshot, ControlWindow
from streams.control.facts import CapacityFacts, LatencyFacts, capacity_facts, latency_facts
from streams.control.hold import commanded
from streams.control.pools import ledgers_after, pool_facts, pool_snapshots
from streams.control.reporters import judged
from streams.control.settings import CONTROLLER_VERSION, DEFAULT_SETTINGS, ControlSettings
from streams.control.state import CellState, Sent, encode_state
from streams.control.tick import ticked
from streams.control.uplift.state import encode_sums
from streams.control.uplift.taking_in import take_in

# Windows of one kind that may wait for the other: at ten seconds each more than any target stays valid.
MAX_PENDING = 64
# And together at most so many bytes: a state is one record of the changelog, which a broker may refuse beyond 1 MiB.
MAX_PENDING_BYTES = 512 << 10

# Sums of segments are large: one in so many snapshots has them beside it.
MEASURED_SNAPSHOTS = 12

Applied = tuple[CellState, tuple[Struct, ...]]
F = TypeVar("F", CapacityFacts, LatencyFacts)


def apply(state: CellState, window: ControlWindow, *, settings: ControlSettings = DEFAULT_SETTINGS) -> Applied:
    """State of the window's cell after the window, and the records to send, in order.

    ``window`` must have passed ``believe``. A measurement window is only taken in: the next tick says what it tells.
    """
    assert window.cell == state.cell
    if window.kind == "command":
        assert window.command is not None
        return msgspec.structs.replace(state, hold=commanded(window.command)), ()
    if window.kind in ("results", "outcomes"):
        return msgspec.structs.replace(state, measured=take_in(state.measured, window)), ()
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
        return state, _sent_again(state, state.sent_capacity, index, settings)
    assert window.capacity is not None
    ledgers = ledgers_after(state.ledgers, window)
    snapshots = pool_snapshots(window, ledgers, settings=settings)
    sent = Sent(window_index=index, pools=snapshots)
    facts = capacity_facts(window, pools=pool_facts(snapshots, ledgers, window.capacity.limits.levers))
    partner = next((latency for latency in state.pending_latency if latency.window_index == index), None)
    state = msgspec.structs.replace(
        state,
        last_capacity=index,
        ledgers=ledgers,
        pending_latency=tuple(latency for latency in state.pending_latency if latency.window_index > index),
    )
    if partner is not None:
        state, sent = _tick(state, facts, partner, sent=sent, settings=settings)
    elif index > state.last_latency:
        state = msgspec.structs.replace(state, pending_capacity=_waiting(state.pending_capacity, facts))
    state = msgspec.structs.replace(state, sent_capacity=sent)
    return state, _records(state, sent, settings)


def _latency(state: CellState, window: ControlWindow, settings: ControlSettings) -> Applied:
    index = window.window_index
    if index <= state.last_latency:
        return state, _sent_again(state, state.sent_latency, index, settings)
    sent = Sent(window_index=index)
    assert window.latency is not None
    judgement = judged(window.latency, state.suspects)
    facts = latency_facts(window, judgement)
    partner = next((capacity for capacity in state.pending_capacity if capacity.window_index == index), None)
    state = msgspec.structs.replace(
        state,
        last_latency=index,
        suspects=judgement.suspects,
        pending_capacity=tuple(capacity for capacity in state.pending_capacity if capacity.window_index > index),
    )
    if partner is not None:
        state, sent = _tick(state, partner, facts, sent=sent, settings=settings)
    elif index > state.last_capacity:
        state = msgspec.structs.replace(state, pending_latency=_waiting(state.pending_latency, facts))
    state = msgspec.structs.replace(state, sent_latency=sent)
    return state, _records(state, sent, settings)


def _waiting(held: tuple[F, ...], newest: F) -> tuple[F, ...]:
    """The windows of one kind that wait, the newest among them: as many of the last ones as the bounds allow."""
    kept: tuple[F, ...] = held[-MAX_PENDING + 1 :] + (newest,)  # noqa: RUF005  # unpacked, its type is lost
    sizes_bytes = [len(msgspec.msgpack.encode(facts)) for facts in kept]
    while len(kept) > 1 and sum(sizes_bytes) > MAX_PENDING_BYTES:
        kept, sizes_bytes = kept[1:], sizes_bytes[1:]
    return kept


def _tick(
    state: CellState, capacity: CapacityFacts, latency: LatencyFacts, *, sent: Sent, settings: ControlSettings
) -> tuple[CellState, Sent]:
    """State after the tick, and ``sent`` with the target and, when it is due, the snapshot."""
    due = state.num_ticks % settings.snapshot_ticks == 0
    made = ticked(state, capacity, latency, settings=settings)
    return made.state, msgspec.structs.replace(
        sent,
        pools=(*sent.pools, *made.pools),
        target=made.target,
        snapshot=_snapshot(made.state) if due else None,
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


def _sent_again(state: CellState, sent: Sent | None, index: int, settings: ControlSettings) -> tuple[Struct, ...]:
    return _records(state, sent, settings) if sent is not None and sent.window_index == index else ()


def _records(state: CellState, sent: Sent, settings: ControlSettings) -> tuple[Struct, ...]:
    """What a window led to, in the order in which it is sent: what was measured before the target made from it."""
    if sent.target is None:
        return sent.pools
    uplift = [
        sums.said
        for _, sums in sorted(state.measured.segments.items())
        if sums.said is not None and sums.said.window_index == sent.window_index
    ]
    snapshots = (*_segment_snapshots(state, sent, settings), sent.snapshot) if sent.snapshot is not None else ()
    return (*sent.pools, *uplift, sent.target, *snapshots)


def _segment_snapshots(state: CellState, sent: Sent, settings: ControlSettings) -> list[ControllerSnapshot]:
    """Sums of all segments, where they are due, before the snapshot of the cell that needs them.

    They are not kept until the broker has them: a window taken in since says that it had, for it came after them.
    """
    measured = state.measured
    is_due = (state.num_ticks - 1) % (settings.snapshot_ticks * MEASURED_SNAPSHOTS) == 0
    if not is_due or measured.taken or sent.window_index != state.last_tick:
        return []
    return [
        ControllerSnapshot(
            cell=state.cell,
            window_index=state.last_tick,
            controller_version=CONTROLLER_VERSION,
            state=encode_sums(sums),
            segment=name,
        )
        for name, sums in sorted(measured.segments.items())
    ]


def _realigned(state: CellState, window_ms: int) -> CellState:
    """State for windows of another length, whose indices do not compare with those before: from base, afresh."""
    if state.window_ms == 0:
        return msgspec.structs.replace(state, window_ms=window_ms)
    return CellState(
        cell=state.cell,
        window_ms=window_ms,
        num_ticks=state.num_ticks,
        estimates=state.estimates,
        ledgers=state.ledgers,
        suspects=state.suspects,
        hold=state.hold,
        measured=state.measured,
        note=f"windows are now {window_ms} ms, were {state.window_ms} ms",
    )
