"""What `intertidal report` says: these types are its JSON, and docs/report.schema.json is made of them.

A row that nothing is known of is null or empty, and ``not_known`` says why: never zero. Shares are in [0, 1], values in
units of currency. Times are ISO 8601 with zone and come from the windows.
"""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from schemas.records import Effect, Guardrail, SampleRatio

Time = Annotated[datetime, Meta(tz=True)]
# The rows that a report has, known or not.
Row = Literal[
    "gains",
    "gains_by_segment",
    "idle",
    "idle_by_cause",
    "preemptions",
    "preemption_sizes",
    "balance",
    "latency_by_arm",
    "latency_in_reclaims",
    "shedding",
    "budget",
    "sample_ratio",
    "guardrails",
    "fairness",
    "outcomes",
    "range",
]
# Windows just before capacity was taken back, those in which it was, and all others.
Phase = Literal["before", "during", "other"]
Certainty = Literal["gain", "loss", "open"]


class NotKnown(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row that could not be filled, wholly or in part, and why."""

    row: Row
    reason: str


class Figure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of the three figures at the top, ready to be read; ``is_known`` is false where ``value`` is a dash."""

    label: str
    value: str
    detail: str
    is_known: bool


class Headline(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The main result: a sentence and three figures."""

    sentence: str
    certainty: Certainty
    figures: list[Figure]


class Covered(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the report rests on. ``hours`` is the longest time that the capacity windows of one cell cover."""

    namespace: str
    cells: list[str]
    since: Time | None
    until: Time | None
    hours: float
    num_windows: int
    num_repeated_windows: int
    num_unreadable: int
    num_requests: int
    num_results: int
    num_outcomes: int
    num_late_outcomes: int
    num_expired_outcomes: int


class SegmentGains(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was measured in a segment of a cell since its model versions came into force: ``(all)`` is the whole cell.

    ``effects`` are per request, undecayed. ``origin`` says where they come from: the record that the controller
    published last in the range, or the windows of the range themselves.
    """

    cell: str
    segment: str
    origin: Literal["segment.uplift", "control.windows"]
    since: Time
    until: Time
    hours: float
    baseline_version: str
    powerful_version: str
    is_aa: bool
    num_requests: int
    pending_requests: int
    num_late_outcomes: int
    request_share: float
    optional_share: float
    effects: list[Effect]
    sample_ratio: SampleRatio | None
    guardrails: list[Guardrail]


class Use(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Idle capacity under one label, in unit-hours: what was idle, what of it was usable, and what work was done on it.

    ``used`` counts one busy second of a replica as one unit-second. It and ``usable`` are estimates where
    ``is_estimate``: shared out in proportion, as hosts say both only of a whole pool. Null: not known.
    """

    label: str
    idle_unit_h: float
    usable_unit_h: float
    used_unit_h: float | None
    usable_share: float | None
    used_share: float | None
    is_estimate: bool


class Idle(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Idle capacity of all cells; ``unusable`` is by reason, with no figure of use."""

    total: Use
    by_cause: list[Use]
    by_pool: list[Use]
    unusable: dict[str, float]


class SizeClass(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Preemptions of more than ``from_units`` and at most ``to_units`` usable units: of one pool in one window."""

    from_units: float
    to_units: float
    num_preemptions: int


class AgeClass(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Usable units that were taken back at an age of at least ``from_age_s``."""

    from_age_s: int
    units: float


class Preemptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Capacity taken back by its owner, or lost with a host that fell silent; rates are per hour and cell, summed.

    ``num_windows`` counts a pool's windows in which usable units were taken: the finest that is known of sizes, which
    are in units, and of the share of the pool's usable units.
    """

    num_reclaims: int
    num_hosts_silent: int
    per_hour: float
    units_taken: float
    units_per_hour: float
    num_windows: int
    median_units: float | None
    largest_units: float | None
    median_pool_share: float | None
    sizes: list[SizeClass]
    ages: list[AgeClass]


class Balance(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often the CPU beside idle accelerators fitted them, in windows (one of each cell) with idle accelerators.

    ``cpu_short``: more than a twentieth of the idle units lack the CPU that they need. ``cpu_ample``: a quarter more
    CPU than all need is left, which only the terms of RMA tell (``num_with_need`` windows had them). Else balanced.
    """

    num_windows: int
    num_balanced: int
    num_cpu_short: int
    num_cpu_ample: int
    num_with_need: int
    balanced_share: float


class CdfPoint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Share of requests that took at most so long."""

    at_ms: float
    share: float


class Latency(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Latency of the requests of one group, from intake to result, in milliseconds."""

    group: str
    phase: Literal["all", "before", "during", "other"]
    num_requests: int
    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    mean_ms: float
    cdf: list[CdfPoint]


class ArmCounts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What became of the requests of one arm, and of the optional items that they were assigned."""

    arm: str
    num_requests: int
    num_late: int
    num_degraded: int
    num_errors: int
    num_items: int
    num_items_admitted: int
    num_items_shed: int
    num_compared: int
    num_flipped: int


class PhaseCounts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base work by phase: requests, and those whose base answer was late."""

    phase: Phase
    num_windows: int
    num_requests: int
    num_base_late: int
    num_errors: int


class Shedding(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Optional work of one lever, in its units, and what routers expected it to be worth; ``sheds`` are by reason.

    ``num_windows_shedding`` of ``num_windows`` with optional work dropped some of it. A share is of what was offered;
    ``value_lost_share`` is null where no value was expected of anything.
    """

    lever: str
    offered_units: int
    admitted_units: int
    late_units: int
    lost_units: int
    sheds: dict[str, int]
    sheds_value: dict[str, float]
    dropped_share: float | None
    offered_value: float
    lost_value: float
    value_lost_share: float | None
    num_windows: int
    num_windows_shedding: int


class Spend(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a lever's replicas were busy, against what its budget could plan with, in unit-hours.

    Planned: the usable units of the pools that the lever runs on, times the utilisation that the cell's limits allow.
    Levers on the same pools share one plan: ``pools`` names them.
    """

    lever: str
    pools: list[str]
    planned_unit_h: float
    busy_unit_h: float
    spent_share: float | None
    units_done: int
    units_per_busy_s: float | None


class Moment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step of time, all cells together; null where no window said it.

    ``extra_candidates`` are those assigned, ``coverage`` the share of requests sent to the stronger model, both by
    request; ``dropped_share`` is of optional units.
    """

    start: Time
    num_requests: int
    p99_ms: float | None
    idle_units: float | None
    usable_units: float | None
    taken_units: float
    num_reclaims: int
    extra_candidates: float | None
    coverage: float | None
    dropped_share: float | None


class Series(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Steps of ``step_s`` seconds."""

    step_s: float
    moments: list[Moment]


class Report(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that the logs of a range tell. Within one ``version`` nothing is renamed, removed or redefined."""

    version: Literal[1]
    headline: Headline
    covered: Covered
    gains: list[SegmentGains]
    idle: Idle | None
    preemptions: Preemptions | None
    balance: Balance | None
    latency: list[Latency]
    phases: list[PhaseCounts]
    arms: list[ArmCounts]
    shedding: list[Shedding]
    budget: list[Spend]
    series: Series
    not_known: list[NotKnown]
