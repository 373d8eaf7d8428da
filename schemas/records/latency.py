"""What routers and ranking replicas measured in one interval."""

from typing import Literal

from msgspec import Struct

from schemas.records.fields import (
    CellName,
    Count,
    Label,
    Lever,
    Name,
    Packed,
    Quantity,
    Route,
    Share,
    TimeMs,
)


class HistogramFields(Struct, frozen=True, kw_only=True):
    """Base-2 exponential histogram of milliseconds (OpenTelemetry data model), counts packed as little-endian int64.

    Bucket ``i`` of ``counts`` holds values in (base^(offset+i), base^(offset+i+1)] with base = 2^(2^-scale).
    ``sum_micro`` is the sum of values times 10^6.
    """

    scale: int
    offset: int
    counts: Packed
    zero_count: Count
    count: Count
    sum_micro: Count


class RouteInterval(Struct, frozen=True, kw_only=True):
    """One route in one interval as one reporter saw it.

    A router's ``latency`` is from sending work to its answer, a lost answer counted at the limit; a replica's is from
    the work's append to its answer. ``busy_us`` is time spent scoring, ``units_done`` candidates scored.
    """

    route: Route
    latency: HistogramFields
    queue_wait: HistogramFields
    num_work: Count
    num_answered: Count
    num_late: Count = 0
    num_lost: Count = 0
    num_retried: Count = 0
    busy_us: Count = 0
    units_done: Count = 0
    pressure: Share = 0.0
    model_version: Label = ""


class ShedUnits(Struct, frozen=True, kw_only=True):
    """Optional work dropped for one reason: work units and their value in micro-units of currency."""

    reason: Name
    units: Count
    value_micro: Count


class Account(Struct, frozen=True, kw_only=True):
    """Accounts of optional items of one lever closed in one interval, in units of the assigned dose.

    ``offered`` = ``admitted`` + sum of ``sheds`` + ``late`` + ``lost``, exactly; likewise their values.
    """

    lever: Lever
    offered: Count
    admitted: Count
    late: Count
    lost: Count
    sheds: list[ShedUnits]
    offered_value_micro: Count = 0
    admitted_value_micro: Count = 0
    late_value_micro: Count = 0
    lost_value_micro: Count = 0


class SegmentTraffic(Struct, frozen=True, kw_only=True):
    """Requests of one segment, and what was assigned to them.

    ``num_allowed`` are those whose arm allows SBM. ``probability_micro`` sums the probabilities (times 10^6) with which
    they were assigned to the powerful model, ``num_routed`` counts those that were sent there.
    """

    segment: Name
    num_requests: Count
    num_allowed: Count = 0
    probability_micro: Count = 0
    num_routed: Count = 0


class LatencyInterval(Struct, frozen=True, kw_only=True):
    """Metrics of one router or replica for one interval that ended at ``event_time_ms``.

    A router fills the request counts and ``latency``: intake to the last wanted answer, late ones at their true
    time, lost ones at the limit. ``upstream`` holds what callers spent before their requests came, ``segments`` who
    asked. Counts of a replica live in its routes.
    """

    cell: CellName
    source: Name
    part: Literal["router", "ranker"]
    epoch_ms: TimeMs
    seq: Count
    event_time_ms: TimeMs
    interval_ms: Count
    latency: HistogramFields
    routes: list[RouteInterval]
    accounts: list[Account]
    num_requests: Count = 0
    num_results: Count = 0
    num_base_late: Count = 0
    num_errors: Count = 0
    num_waiting: Count = 0
    cpu_share: Quantity = 0.0
    platform: Label = ""
    advertiser_segment: Label = ""
    provider: Label = ""
    upstream: HistogramFields | None = None
    segments: list[SegmentTraffic] = []
