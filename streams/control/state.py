"""State of one cell's controller, and its canonical bytes.

Windows are kept as the few figures that a tick needs, never whole: a state stays small however large the fleet is.
"""

from typing import Literal

import msgspec
from msgspec import Struct

from schemas.records import CandidateTarget, CellLimits, ControllerSnapshot, HistogramFields, PoolSnapshot, WindowRef
from schemas.records.fields import CellName, Count, Label, Name, Partition, Quantity, Text, TimeMs
from streams.control.error import Cause
from streams.control.gains import Gains
from streams.control.pid import Memory

STATE_VERSION = 2
# An index before every window: nothing seen yet.
NONE_YET = -1


class StateError(ValueError):
    """Bytes that are no state of this version."""


class CapacityFacts(Struct, frozen=True, kw_only=True):
    """What a tick takes from a capacity window; units times 10^6, those announced to be taken back included."""

    window_index: int
    source_partition: Partition
    end_ms: TimeMs
    limits: CellLimits
    usable_units_micro: Count
    noticed_units_micro: Count


class LatencyFacts(Struct, frozen=True, kw_only=True):
    """What a tick takes from a latency window.

    ``offered`` and ``dropped`` are extra candidates: dropped ones were shed, late or lost. ``wide_busy_us`` and
    ``wide_units_done`` are the replicas' own account of the wide route.
    """

    window_index: int
    source_partition: Partition
    num_routers: Count
    num_requests: Count
    latency: HistogramFields
    offered: Count
    dropped: Count
    wide_busy_us: Count
    wide_units_done: Count


class Evidence(Struct, frozen=True, kw_only=True):
    """What the latency windows since the loop last moved say, merged; ``windows`` are those that say anything."""

    windows: tuple[WindowRef, ...] = ()
    latency: HistogramFields | None = None
    offered: Count = 0
    dropped: Count = 0


class Loop(Struct, frozen=True, kw_only=True):
    """The candidate loop between two ticks.

    ``target`` is the last target before rounding, so that steps of less than a candidate add up; at or below base there
    are no extras, as with the 0 from which it starts. It is the target and not the extras that is kept: requests bring
    their own base, so a new base of the cell alone does not change how much work they are. ``cause`` is what the error
    in ``memory`` was of. Nothing rises for ``hold_ticks`` more, as too much was shed. ``limits``, ``gains`` and
    ``held`` (by an operator) tell what ruled the last move, None where there was none: a change of them moves next to
    nothing.
    """

    target: float = 0.0
    memory: Memory | None = None
    cause: Cause | None = None
    hold_ticks: Count = 0
    limits: CellLimits | None = None
    gains: Gains | None = None
    held: bool = False
    evidence: Evidence = Evidence()


class Estimates(Struct, frozen=True, kw_only=True):
    """Smoothed measurements: evidence of the wide pool's speed as faded sums, and the request rate."""

    units_done: Quantity = 0.0
    busy_s: Quantity = 0.0
    request_rate_per_s: Quantity = 0.0


class Hold(Struct, frozen=True, kw_only=True):
    """An operator's word in force: keep the target as it is, or at ``candidate_target``; until ``expires_ms``."""

    action: Literal["freeze", "override"]
    operator: Name
    reason: Text
    candidate_target: Count | None
    expires_ms: TimeMs | None


class Sent(Struct, frozen=True, kw_only=True):
    """The records that the last window of one kind led to: sent again when that window is seen again."""

    window_index: int
    pools: tuple[PoolSnapshot, ...] = ()
    target: CandidateTarget | None = None
    snapshot: ControllerSnapshot | None = None

    def records(self) -> tuple[Struct, ...]:
        """The records in the order in which they are sent."""
        return (*self.pools, *(record for record in (self.target, self.snapshot) if record is not None))


class CellState(Struct, frozen=True, kw_only=True):
    """Everything that one cell's controller knows. Values only: an older state is never changed.

    ``last_*`` are the largest window indices taken in, by kind, and of the last tick. Of the two ``pending`` tuples at
    most one holds windows: those of the kind that is ahead.
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
    note: Label = ""
    pending_capacity: tuple[CapacityFacts, ...] = ()
    pending_latency: tuple[LatencyFacts, ...] = ()
    sent_capacity: Sent | None = None
    sent_latency: Sent | None = None


class _Version1(Struct, frozen=True, kw_only=True):
    """What is taken over from a state of version 1: all but latency windows that still waited, kept as a p99 alone."""

    cell: CellName
    window_ms: Count = 0
    last_capacity: int = NONE_YET
    last_latency: int = NONE_YET
    last_tick: int = NONE_YET
    num_ticks: Count = 0
    estimates: Estimates = Estimates()
    hold: Hold | None = None
    pending_capacity: tuple[CapacityFacts, ...] = ()
    sent_capacity: Sent | None = None
    sent_latency: Sent | None = None

    def taken_over(self) -> CellState:
        """State of this version: at the target that was sent last, or from base where that is not at hand."""
        targets = [sent.target for sent in (self.sent_capacity, self.sent_latency) if sent is not None]
        target = next((sent for sent in targets if sent is not None and sent.window_index == self.last_tick), None)
        return CellState(
            loop=Loop(target=float(target.candidate_target)) if target is not None else Loop(),
            note="the controller was replaced by a newer one",
            **{field: getattr(self, field) for field in self.__struct_fields__},
        )


def encode_state(state: CellState) -> bytes:
    """Canonical bytes: the version, then MessagePack with the fields in their declared order."""
    return bytes([STATE_VERSION]) + msgspec.msgpack.encode(state)


def decode_state(data: bytes) -> CellState:
    """State from its bytes, those of version 1 included; raises StateError for damaged ones and other versions."""
    version = data[:1].hex() or "missing"
    try:
        if version == f"{STATE_VERSION:02x}":
            return msgspec.msgpack.decode(data[1:], type=CellState)
        if version == "01":
            return msgspec.msgpack.decode(data[1:], type=_Version1).taken_over()
    except msgspec.DecodeError as error:
        raise StateError(f"state cannot be read: {error}") from error
    raise StateError(f"state version {version}, this release reads 01 and {STATE_VERSION:02x}")
