"""State of one cell's controller, and its canonical bytes.

Windows are kept as the few figures that a tick needs, never whole: a state stays small however large the fleet is.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from schemas.records import CandidateTarget, ControllerSnapshot, PoolSnapshot
from schemas.records.fields import CellName, Count, Label, Quantity
from streams.control.coverage.loop import CoverageLoop
from streams.control.estimates import Estimates, Speed
from streams.control.facts import CapacityFacts, LatencyFacts
from streams.control.hold import Hold
from streams.control.ledger.pool_ledger import PoolLedger
from streams.control.loop import Loop
from streams.control.split import Split
from streams.control.suspects import Suspects
from streams.control.uplift.state import MeasurementState, SegmentSums

STATE_VERSION = 3
# An index before every window: nothing seen yet.
NONE_YET = -1
REPLACED = "the controller was replaced by a newer one"


class StateError(ValueError):
    """Bytes that are no state of this version."""


class Sent(Struct, frozen=True, kw_only=True):
    """The records that the last window of one kind led to: sent again when that window is seen again."""

    window_index: int
    pools: tuple[PoolSnapshot, ...] = ()
    target: CandidateTarget | None = None
    snapshot: ControllerSnapshot | None = None


class CellState(Struct, frozen=True, kw_only=True):
    """Everything that one cell's controller knows. Values only: an older state is never changed.

    ``last_*`` are the largest window indices taken in, by kind, and of the last tick. Of the two ``pending`` tuples at
    most one holds windows: those of the kind that is ahead. ``ledgers`` are of pools, in order of accelerators.
    ``measured`` is what results and outcomes say; the sums of its segments are stored beside the state.
    """

    cell: CellName
    window_ms: Count = 0
    last_capacity: int = NONE_YET
    last_latency: int = NONE_YET
    last_tick: int = NONE_YET
    num_ticks: Count = 0
    loop: Loop = Loop()
    estimates: Estimates = Estimates()
    hold: Hold | None = None
    coverage: CoverageLoop = CoverageLoop()
    split: Split = Split()
    ledgers: tuple[PoolLedger, ...] = ()
    suspects: Suspects = Suspects()
    note: Label = ""
    pending_capacity: tuple[CapacityFacts, ...] = ()
    pending_latency: tuple[LatencyFacts, ...] = ()
    sent_capacity: Sent | None = None
    sent_latency: Sent | None = None
    measured: MeasurementState = MeasurementState()


class _OldEstimates(Struct, frozen=True, kw_only=True):
    """Estimates of versions 1 and 2, which knew one pool."""

    units_done: Quantity = 0.0
    busy_s: Quantity = 0.0
    request_rate_per_s: Quantity = 0.0

    def taken_over(self) -> Estimates:
        return Estimates(
            wide=Speed(units_done=self.units_done, busy_s=self.busy_s), request_rate_per_s=self.request_rate_per_s
        )


class _Version1(Struct, frozen=True, kw_only=True):
    """What is taken over from a state of version 1: all but latency windows that still waited, kept as a p99 alone."""

    cell: CellName
    window_ms: Count = 0
    last_capacity: int = NONE_YET
    last_latency: int = NONE_YET
    last_tick: int = NONE_YET
    num_ticks: Count = 0
    estimates: _OldEstimates = _OldEstimates()
    hold: Hold | None = None
    pending_capacity: tuple[CapacityFacts, ...] = ()
    sent_capacity: Sent | None = None
    sent_latency: Sent | None = None

    def taken_over(self) -> CellState:
        """State of this version: at the target that was sent last, or from base where that is not at hand."""
        targets = [sent.target for sent in (self.sent_capacity, self.sent_latency) if sent is not None]
        target = next((sent for sent in targets if sent is not None and sent.window_index == self.last_tick), None)
        loop = Loop(target=float(target.candidate_target)) if target is not None else Loop()
        return _replaced(self, loop=loop, estimates=self.estimates.taken_over())


class _Version2(Struct, frozen=True, kw_only=True):
    """A state of version 2, of which all is taken over: it knew neither upstream nor more than one lever."""

    cell: CellName
    window_ms: Count = 0
    last_capacity: int = NONE_YET
    last_latency: int = NONE_YET
    last_tick: int = NONE_YET
    num_ticks: Count = 0
    loop: Loop = Loop()
    estimates: _OldEstimates = _OldEstimates()
    hold: Hold | None = None
    pending_capacity: tuple[CapacityFacts, ...] = ()
    pending_latency: tuple[LatencyFacts, ...] = ()
    sent_capacity: Sent | None = None
    sent_latency: Sent | None = None

    def taken_over(self) -> CellState:
        """State of this version, where the loop stood."""
        return _replaced(self, estimates=self.estimates.taken_over())


def encode_state(state: CellState) -> bytes:
    """Canonical bytes, without the sums of segments: the version, then MessagePack with the fields in their order."""
    bare = state.measured.bare()
    if bare is not state.measured:
        state = msgspec.structs.replace(state, measured=bare)
    return bytes([STATE_VERSION]) + msgspec.msgpack.encode(state)


def with_segments(state: CellState, segments: Mapping[str, SegmentSums]) -> CellState:
    """State of its bytes with the sums of the segments that stood beside it."""
    return msgspec.structs.replace(state, measured=state.measured.beside(segments)) if segments else state


def decode_state(data: bytes) -> CellState:
    """State from its bytes, those of earlier versions included; raises StateError for damaged and unknown ones."""
    version = data[:1].hex() or "missing"
    try:
        if version == f"{STATE_VERSION:02x}":
            return msgspec.msgpack.decode(data[1:], type=CellState)
        if version == "02":
            return msgspec.msgpack.decode(data[1:], type=_Version2).taken_over()
        if version == "01":
            return msgspec.msgpack.decode(data[1:], type=_Version1).taken_over()
    except msgspec.DecodeError as error:
        raise StateError(f"state cannot be read: {error}") from error
    raise StateError(f"state version {version}, this release reads 01, 02 and {STATE_VERSION:02x}")


def _replaced(older: _Version1 | _Version2, **changes: Loop | Estimates) -> CellState:
    kept: dict[str, Any] = {field: getattr(older, field) for field in older.__struct_fields__}
    return CellState(note=REPLACED, **{**kept, **changes})
