"""Closed event-time windows: all that a controller ever sees."""

from typing import Literal

from msgspec import Struct

from schemas.records.cells import CellLimits
from schemas.records.fields import CellName, Count, Label, Name, Partition, Route, Share, Text, TimeMs, WindowIndex
from schemas.records.latency import Account, HistogramFields, SegmentTraffic
from schemas.records.measurement import OutcomesWindow, ResultsWindow


class LabelledUnits(Struct, frozen=True, kw_only=True):
    """Units (times 10^6) under one label: an idle cause, an unusable reason, a provider."""

    label: Name
    units_micro: Count


class AgedUnits(Struct, frozen=True, kw_only=True):
    """Usable units (times 10^6) of offers at least ``from_age_s`` old, and younger than the next class.

    ``units_micro`` are idle at the window's end; ``taken_micro`` were taken back, or lost with a host that fell silent,
    within the window at that age.
    """

    from_age_s: Count
    units_micro: Count
    taken_micro: Count


class PoolWindow(Struct, frozen=True, kw_only=True):
    """One pool at a window's end, and what happened to it inside the window. Quantities times 10^6.

    ``units_micro``, ``cpu_cores_micro`` and ``memory_bytes`` include what is unusable: usable units are
    ``units_micro`` less the sum of ``unusable``; of these ``noticed_units_micro`` are announced to be taken back.
    ``ages`` lists age classes in rising order, those with neither units nor losses left out; ``age_unit_ms`` sums unit
    (whole) times age in milliseconds over the usable offers. ``num_hosts_silent`` hosts with ``silent_units_micro``
    usable units ran out of their time to live in the window.
    """

    accelerator: Name
    num_hosts: Count
    units_micro: Count
    cpu_cores_micro: Count
    memory_bytes: Count
    unusable: list[LabelledUnits]
    causes: list[LabelledUnits]
    providers: list[LabelledUnits]
    noticed_units_micro: Count = 0
    num_offers: Count = 0
    num_reclaims: Count = 0
    num_hosts_silent: Count = 0
    silent_units_micro: Count = 0
    age_unit_ms: Count = 0
    ages: list[AgedUnits] = []


class CapacityWindow(Struct, frozen=True, kw_only=True):
    """Idle capacity of a cell at a window's end, with the limits in force and the counts of the window."""

    limits: CellLimits
    pools: list[PoolWindow]
    num_hosts: Count
    num_hosts_silent: Count
    num_events: Count
    num_duplicates: Count
    num_late: Count


class ReporterFigures(Struct, frozen=True, kw_only=True):
    """One reporter of a route beside the others, so that one that lies can be told and left out."""

    source: Name
    num_work: Count
    num_answered: Count
    p99_us: Count
    busy_us: Count
    units_done: Count


class RouterFigures(Struct, frozen=True, kw_only=True):
    """One router's part of a cell's latency."""

    source: Name
    num_requests: Count
    latency: HistogramFields


class RouteWindow(Struct, frozen=True, kw_only=True):
    """One route in one window as all reporters of one part saw it; histograms merged, counts summed."""

    part: Literal["router", "ranker"]
    route: Route
    latency: HistogramFields
    queue_wait: HistogramFields
    num_reporters: Count
    num_work: Count
    num_answered: Count
    num_late: Count
    num_lost: Count
    num_retried: Count
    busy_us: Count
    units_done: Count
    max_pressure_micro: Count
    reporters: list[ReporterFigures] = []


class LatencyWindow(Struct, frozen=True, kw_only=True):
    """What the routers and replicas of a cell measured in one window. No reporter at all is a fact, not a gap.

    ``routers`` and the ``reporters`` of each route list those with the most to say, by name, in order of names.
    """

    latency: HistogramFields
    routes: list[RouteWindow]
    accounts: list[Account]
    num_routers: Count
    num_rankers: Count
    num_requests: Count
    num_results: Count
    num_base_late: Count
    num_errors: Count
    num_intervals: Count
    num_duplicates: Count
    num_late: Count
    upstream: HistogramFields | None = None
    segments: list[SegmentTraffic] = []
    routers: list[RouterFigures] = []


class OperatorCommand(Struct, frozen=True, kw_only=True):
    """An operator's word in the same log as the windows, so that a replay repeats it.

    An override holds the candidate target, the coverage, or both; a freeze holds both where they are.
    """

    action: Literal["freeze", "override", "resume"]
    operator: Name
    reason: Text
    candidate_target: Count | None = None
    coverage: Share | None = None
    expires_ms: TimeMs | None = None


class ControlWindow(Struct, frozen=True, kw_only=True):
    """One closed window of one kind, cell and source partition; a ``command`` has no source (partition 0)."""

    cell: CellName
    kind: Literal["capacity", "latency", "results", "outcomes", "command"]
    source_partition: Partition
    window_index: WindowIndex
    start_ms: TimeMs
    end_ms: TimeMs
    capacity: CapacityWindow | None = None
    latency: LatencyWindow | None = None
    command: OperatorCommand | None = None
    note: Label = ""
    results: ResultsWindow | None = None
    outcomes: OutcomesWindow | None = None
