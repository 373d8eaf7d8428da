"""State of one cell's controller, and its canonical bytes.

Windows are kept as the few figures that a tick needs, never whole: a state stays small however large the fleet is.
"""

from typing import Literal

import msgspec
from msgspec import Struct

from schemas.records import CandidateTarget, CellLimits, ControllerSnapshot, PoolSnapshot
from schemas.records.fields import CellName, Count, Label, Name, Partition, Quantity, Text, TimeMs

STATE_VERSION = 1
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
    num_samples: Count
    p99_ms: float | None
    offered: Count
    dropped: Count
    wide_busy_us: Count
    wide_units_done: Count


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

    ``last_*`` are the largest window indices taken in, by kind, and of the last tick. ``extras`` is the last target
    less its base. Of the two ``pending`` tuples at most one holds windows: those of the kind that is ahead.
    """

    cell: CellName
    window_ms: Count = 0
    last_capacity: int = NONE_YET
    last_latency: int = NONE_YET
    last_tick: int = NONE_YET
    num_ticks: Count = 0
    extras: Count = 0
    estimates: Estimates = Estimates()
    hold: Hold | None = None
    note: Label = ""
    pending_capacity: tuple[CapacityFacts, ...] = ()
    pending_latency: tuple[LatencyFacts, ...] = ()
    sent_capacity: Sent | None = None
    sent_latency: Sent | None = None


def encode_state(state: CellState) -> bytes:
    """Canonical bytes: the version, then MessagePack with the fields in their declared order."""
    return bytes([STATE_VERSION]) + msgspec.msgpack.encode(state)


def decode_state(data: bytes) -> CellState:
    """State from its bytes; raises StateError when they are damaged or of another version."""
    if not data or data[0] != STATE_VERSION:
        raise StateError(f"state version {data[:1].hex() or 'missing'}, this release reads {STATE_VERSION:02x}")
    try:
        return msgspec.msgpack.decode(data[1:], type=CellState)
    except msgspec.DecodeError as error:
        raise StateError(f"state cannot be read: {error}") from error
