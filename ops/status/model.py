"""What `intertidal status` knows of a pipeline: these types are its JSON, and docs/status.schema.json is made of them.

Times are ISO 8601 with zone, taken from the broker's append times and the windows; an age or a lag is in seconds and
rounded to milliseconds. What is not known is null, never zero.
"""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

VerdictState = Literal["ok", "waiting", "attention"]
CellState = Literal["declared", "upcoming", "retired"]
PartState = Literal["running", "stalled", "absent", "unused"]
TroubleKind = Literal[
    "no_cell",
    "no_window",
    "window_overdue",
    "no_target",
    "target_expired",
    "two_controllers",
    "no_router",
    "base_late",
    "over_limit",
    "reporter_silent",
    "split_mismatch",
    "guardrail_crossed",
    "part_absent",
    "part_stalled",
    "commit_unreadable",
    "dead_letters_growing",
    "unreadable",
    "nothing_new",
]

Time = Annotated[datetime, Meta(tz=True)]


class Verdict(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole in one line: ``ok``, ``waiting`` for something that has yet to begin, or in need of ``attention``."""

    state: VerdictState
    line: str


class Trouble(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that is stale or wrong, what it is about (a cell, a part, a topic) and why it is thought so."""

    kind: TroubleKind
    subject: str
    detail: str


class LimitsStatus(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits in force in a cell now."""

    base_candidates: int
    max_candidates: int
    latency_limit_ms: float
    shed_allowance: float
    rise_share: float
    utilisation: float


class TargetStatus(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last target of a cell and why it is there; ``valid_for_s`` is negative once it has expired."""

    candidates: int
    previous_candidates: int | None
    base_candidates: int
    max_candidates: int
    extra_budget_units_s: float
    coverage: float
    segment_shares: dict[str, float]
    reason: str
    detail: str
    window_index: int
    window_end: Time
    valid_until: Time
    valid_for_s: float
    is_expired: bool
    latency_limit_ms: float
    latency_p99_ms: float | None
    request_rate_per_s: float
    controller_version: str


class PoolStatus(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One pool at the end of the last capacity window; units by reason and cause, the CPU and memory beside them.

    ``cpu_cores`` and ``memory_bytes`` include what stands beside unusable units. ``num_offers`` and ``num_reclaims``
    count the events of the recent windows.
    """

    accelerator: str
    usable_units: float
    units: float
    unusable_units: dict[str, float]
    idle_causes: dict[str, float]
    providers: dict[str, float]
    noticed_units: float
    cpu_cores: float
    memory_bytes: int
    num_hosts: int
    num_offers: int
    num_reclaims: int
    expected_survival_s: float | None
    bottleneck: str | None


class LatencyStatus(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last closed latency window of a cell as its routers saw it: intake to the last wanted answer."""

    window_end: Time
    p50_ms: float | None
    p99_ms: float | None
    limit_ms: float | None
    is_over_limit: bool
    num_samples: int
    num_requests: int
    num_results: int
    num_base_late: int
    num_errors: int
    num_routers: int
    num_rankers: int


class OptionalStatus(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Accounts of one lever closed in the recent windows, in units of the assigned dose."""

    lever: str
    offered: int
    admitted: int
    late: int
    lost: int
    sheds: dict[str, int]


class RouteStatus(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One route in the last latency window: what its replicas did, and what its routers waited for in vain."""

    route: str
    num_replicas: int
    pressure: float
    num_work: int
    num_answered: int
    num_late: int
    num_lost: int


class ReporterStatus(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One router or replica by its last interval record."""

    source: str
    part: str
    last_seen: Time
    age_s: float
    is_silent: bool
    interval_ms: int
    p50_ms: float | None
    p99_ms: float | None
    num_samples: int
    num_waiting: int
    pressure: float


class MeasuredStatus(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is measured of a cell, of the whole where no segment is named.

    ``split_p_value`` is that of the sample-ratio check, null where too little was seen. ``mismatched`` are segments in
    which it fails, ``guardrails`` sentences about those that are crossed.
    """

    segments: list[str]
    window_end: Time
    baseline_version: str
    powerful_version: str
    num_requests: int
    pending_requests: int
    num_late_outcomes: int
    split_p_value: float | None
    mismatched: list[str]
    guardrails: list[str]
    is_aa: bool


class CellStatus(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One declared cell. ``recent_s`` is how much time the recent windows span that sheds and reclaims are summed over.

    Window ends are null until a window of that kind was closed. ``not_heard`` names a controller of the cell whose
    targets nobody applies, as another has taken over from it.
    """

    cell: str
    state: CellState
    window_ms: int
    recent_s: float
    providers: list[str]
    limits: LimitsStatus | None
    capacity_window_end: Time | None
    latency_window_end: Time | None
    target: TargetStatus | None
    not_heard: str | None
    latency: LatencyStatus | None
    pools: list[PoolStatus]
    optional: list[OptionalStatus]
    num_reclaims: int
    num_hosts_silent: int
    routes: list[RouteStatus]
    reporters: list[ReporterStatus]
    measured: MeasuredStatus | None


class PartitionStatus(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a part is in one partition. ``position`` is the first offset that it has not done.

    ``lag_s`` is from the append time of the record at ``position`` to that of the newest, ``waiting_s`` from the same
    to now. ``watermark`` is the event time up to which ingest closes windows.
    """

    partition: int
    low: int
    end: int
    position: int | None
    lag_records: int
    lag_s: float | None
    waiting_s: float | None
    newest: Time | None
    watermark: Time | None


class PartStatus(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One part on one topic: lag in all, and the longest of its partitions in seconds.

    ``absent``: nobody is in its group although there is something to read; ``unused``: nobody is, and nothing is to
    read; ``stalled``: members are there and records wait for longer than they should. ``reason`` says why it does not
    run, null where it does. ``num_members`` is null where the broker does not say.
    """

    part: str
    group: str
    topic: str
    state: PartState
    reason: str | None
    num_members: int | None
    lag_records: int
    lag_s: float | None
    waiting_s: float | None
    partitions: list[PartitionStatus]


class DeadLetterStatus(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dead letters kept of one topic and when the newest came; only topics that have some are listed.

    ``num_open`` were neither redriven nor discarded; only these can be growing.
    """

    topic: str
    count: int
    num_open: int
    newest: Time | None
    is_growing: bool


class UnreadableStatus(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Records of one topic that this look could not read or believe, with the last of them as an example."""

    topic: str
    count: int
    example: str


class StalestStatus(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The declared cell of which the oldest news is the last: its capacity or latency window, or its target."""

    cell: str
    what: Literal["capacity", "latency", "target"]
    age_s: float


class ReplayStatus(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A replay that was begun and is not done: whether anybody is at work on it, its topics do not tell."""

    run: str
    state: str
    parts: list[str]
    num_records: int
    num_read: int
    detail: str


class Status(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One look at a pipeline. ``stalest`` is null where no declared cell has a window or a target yet."""

    version: Literal[1]
    namespace: str
    time: Time
    newest: Time | None
    verdict: Verdict
    troubles: list[Trouble]
    cells: list[CellStatus]
    stalest: StalestStatus | None
    parts: list[PartStatus]
    dead_letters: list[DeadLetterStatus]
    unreadable: list[UnreadableStatus]
    replays: list[ReplayStatus]
