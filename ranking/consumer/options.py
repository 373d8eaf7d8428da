"""How one replica is run."""

from dataclasses import dataclass, field
from pathlib import Path

from ranking.consumer.cgroup import DEFAULT_CPU_WEIGHT, MAX_CPU_WEIGHT
from ranking.consumer.planner import PlanSettings
from ranking.consumer.priority import DEFAULT_NICE, LOWEST_NICE
from schemas.records.fields import Route
from schemas.settings import TimeSettings
from schemas.topics import WORK_BY_ROUTE, Namespace


@dataclass(frozen=True, kw_only=True)
class RankerOptions:
    """How one replica runs. Raises ValueError on what does not go together.

    ``pool`` names the gate that optional work waits for; None for capacity that is never taken back. ``margin_ms`` of
    optional work's time is kept for the answer's way. ``notice_s`` bounds the wait for acknowledgements after SIGTERM.
    Optional work appended more than ``backlog_ms`` before its partition is assigned is skipped unread: its routers have
    long closed it as lost. ``trace_path`` takes a line for each optional call.

    Replicas without base work give way to everything else: ``nice`` is their CPU priority, 19 the lowest,
    ``cpu_weight`` that of their control group where it is theirs alone, ``memory_share`` what they take of an
    accelerator's memory at most. Base work that the model cannot score on its device is scored by ``fallback_bundle``
    on the host's processor; None for the bundle itself where the device is another one.
    """

    namespace: Namespace
    time: TimeSettings
    ranker_id: str
    cell: str
    routes: tuple[Route, ...]
    bundle: Path
    pool: str | None = None
    device: str = "cpu"
    static_member: bool = False
    health_port: int = 0
    num_threads: int = 1
    plan: PlanSettings = field(default_factory=PlanSettings)
    margin_ms: float = 3.0
    nice: int = DEFAULT_NICE
    cpu_weight: int = DEFAULT_CPU_WEIGHT
    memory_share: float = 0.9
    fallback_bundle: Path | None = None
    notice_s: float = 5.0
    backlog_ms: int = 10_000
    trace_path: Path | None = None

    def __post_init__(self) -> None:
        if not self.routes or len(set(self.routes)) != len(self.routes):
            raise ValueError(f"routes must be one or more, each once: {self.routes}")
        if unknown := set(self.routes) - WORK_BY_ROUTE.keys():
            raise ValueError(f"unknown route {', '.join(sorted(unknown))}")
        if len(self.routes) > 1 and set(self.routes) != {"baseline", "wide"}:
            raise ValueError(f"only baseline and wide go together in one replica, not {', '.join(self.routes)}")
        if self.static_member and "baseline" not in self.routes:
            raise ValueError("static membership is for replicas with base work: others must leave when they go")
        if not 0 <= self.nice <= LOWEST_NICE:
            raise ValueError(f"nice {self.nice} is not in 0 to {LOWEST_NICE}")
        if not 1 <= self.cpu_weight <= MAX_CPU_WEIGHT:
            raise ValueError(f"cpu_weight {self.cpu_weight} is not in 1 to {MAX_CPU_WEIGHT}")
        if not 0.0 < self.memory_share <= 1.0:
            raise ValueError(f"memory_share {self.memory_share} is not above 0 and at most 1")
        if self.fallback_bundle is not None and self.is_opportunistic:
            raise ValueError("a fallback bundle is for replicas with base work: optional work is shed instead")
        if self.margin_ms < 0.0 or self.notice_s <= 0.0 or self.backlog_ms <= 0:
            raise ValueError("margin_ms must not be negative; notice_s, backlog_ms must be positive")

    @property
    def is_opportunistic(self) -> bool:
        """Whether it does optional work alone, and so gives way to everything else on its host."""
        return "baseline" not in self.routes
