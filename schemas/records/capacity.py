"""What fleet agents say: which idle capacity a host offers now."""

from typing import Literal

from msgspec import Struct

from schemas.records.fields import CellName, Count, IdleCause, Label, Name, Quantity, TimeMs, UnusableReason


class Offer(Struct, frozen=True, kw_only=True):
    """Idle capacity of one accelerator kind on one host.

    ``accelerator`` is the kind's name, or ``cpu`` where there is none beside the cores. ``units`` are accelerator
    units (cores for ``cpu``); ``unusable`` names why they are idle but of no use now, empty when they are usable.
    ``reclaim_at_ms`` is an announced time at which the owner takes them back.
    """

    accelerator: Name
    units: Quantity
    cpu_cores: Quantity
    memory_bytes: Count
    idle_cause: IdleCause
    unusable: UnusableReason | None = None
    provider: Label = ""
    offered_since_ms: TimeMs = 0
    reclaim_at_ms: TimeMs | None = None


class ReclaimTiming(Struct, frozen=True, kw_only=True):
    """How one reclaim went on its host, by the host's monotonic clock.

    ``reaction_us`` runs from the gate's flip to the end of the last optional chunk (0 where none was running),
    ``drained_us`` to the moment the last of ``num_rankers`` had given its device memory back; null when it had not.
    """

    accelerator: Name
    reason: Label
    flipped_ms: TimeMs
    reaction_us: Count | None
    drained_us: Count | None
    num_rankers: Count


class CapacityEvent(Struct, frozen=True, kw_only=True):
    """State of one host's idle capacity after one event; every event is a full snapshot of its host.

    ``epoch_ms`` is the agent's start time and ``seq`` rises by one with each record within it. ``reason`` says why
    capacity was taken back or announced to be. ``reclaims`` reports reclaims completed since the last record.
    """

    cell: CellName
    host: Name
    epoch_ms: TimeMs
    seq: Count
    event_time_ms: TimeMs
    kind: Literal["offer", "update", "reclaim", "heartbeat", "notice"]
    offers: list[Offer]
    reason: Label = ""
    reclaims: list[ReclaimTiming] = []
