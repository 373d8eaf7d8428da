"""Settings of the router: what it promises, how long it waits, when it holds back."""

from dataclasses import dataclass, field, fields

from ranking.router.experiment import Experiment
from schemas.attribution_keys import UNSIGNED, AttributionKeys

# A bid above this is no amount of money: it would let one request outweigh all others, and sums overflow.
MAX_BID = 1e9


@dataclass(frozen=True, kw_only=True)
class RouterPolicy:
    """Times in milliseconds of the broker's clock.

    The budget of a request is its ``deadline_ms - intake_ms``, counted from its append.
    """

    # Chunks: base work is never cut between replicas; extras are dropped chunk by chunk.
    chunk_size: int = 256
    extra_chunk_size: int = 128
    # An upgrade is one chunk of all base candidates, and a replica believes no longer one of optional work: requests
    # with more base candidates are not upgraded.
    max_upgrade_candidates: int = 1_024
    # What an upgrade is taken to gain before a segment's uplift was measured: the same for all, as nothing says whose
    # ranking a stronger model changes. What a segment is worth does not.
    upgrade_value_micro: int = 1_000
    skew_ms: int = 5_000
    # A caller that asks for more time than this made a mistake; it bounds what the router holds in memory.
    max_budget_ms: int = 30_000
    # Answer-by = deadline - margin; margin = 2 x p99 of publishing, between these bounds.
    publish_margin_ms: float = 5.0
    publish_margin_share: float = 0.2
    # Extras are waited for no longer than this share of the budget: what is optional must not use up the time in which
    # a busy host publishes the base answer that it holds.
    patience_share: float = 0.7
    # Optional work must be answered this much before the answer-by time, or its answer cannot count.
    optional_margin_ms: float = 5.0
    # A request whose base answer never comes is given up this long after its deadline.
    degrade_after_ms: float = 5_000.0
    # Accounts of a published request stay open this long after its deadline; what is unanswered then is lost.
    account_limit_ms: float = 1_000.0
    # Overdue = factor x p99 of base answers, between these shares of the budget.
    overdue_factor: float = 1.5
    overdue_low_share: float = 0.15
    overdue_high_share: float = 0.4
    # Retries of base work: a share of requests, and a burst for the moment in which a replica dies.
    retry_share: float = 0.1
    retry_burst: int = 16
    # A silent partition is tried again at most this often.
    probe_interval_ms: float = 1_000.0
    # A replica whose gate was closed when it last answered is tried again after this long, then less and less often.
    gate_probe_interval_ms: float = 500.0
    # Up to the knee a replica's pressure changes nothing; what was taken back returns by this share a second.
    pressure_knee: float = 0.7
    recovery_per_s: float = 0.5
    # The same request id within this time has one result, also across a takeover: its new owner reads the results of
    # that time, but not more of each partition than this.
    duplicate_horizon_ms: float = 60_000.0
    max_remembered_results: int = 4_096
    commit_interval_ms: float = 200.0
    interval_ms: int = 1_000
    # Beyond this many open requests no more are taken in: they wait in the log, not in memory.
    max_open_requests: int = 4_096
    # Who may meet which lever. The same at every router, or one takes over what another would have assigned otherwise.
    experiment: Experiment = field(default_factory=Experiment)
    # What attribution tokens are signed with.
    keys: AttributionKeys = UNSIGNED

    def __post_init__(self) -> None:
        for setting in fields(self):
            if setting.name not in ("experiment", "keys") and getattr(self, setting.name) <= 0:
                raise ValueError(f"{setting.name} must be positive, is {getattr(self, setting.name)}")
        for name in (
            "publish_margin_share",
            "overdue_low_share",
            "overdue_high_share",
            "pressure_knee",
            "retry_share",
            "patience_share",
        ):
            if getattr(self, name) >= 1:
                raise ValueError(f"{name} must be below 1, is {getattr(self, name)}")
        if self.overdue_low_share > self.overdue_high_share:
            raise ValueError("overdue_low_share must not exceed overdue_high_share")
