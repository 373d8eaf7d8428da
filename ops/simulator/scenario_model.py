"""What a scenario is: which cells, hosts and callers there are, and what happens to them.

Times on the timeline count from the end of the warm-up, in seconds. Traffic starts ``warm_up_s`` earlier and comes up
over most of it.
"""

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

from ops.simulator.files.report import FileReport
from ops.simulator.files.wanted import NO_FILES, WantedFiles
from ops.simulator.twin_settings import NO_TWIN, TwinSettings
from schemas.records import CellLimits
from schemas.records.fields import IdleCause, UnusableReason
from schemas.settings import MeasurementSettings, TimeSettings

# The world's clicks and 99 % of its conversions come within this time, unscaled.
_ATTRIBUTION_MS = 600_000
_DAY_S = 86_400.0
# Traffic comes up over this much of the warm-up: a fleet is not hit by its full load in its first second.
_RAMP_SHARE = 0.75

ArrivalProcess = Literal["constant", "poisson", "bursty", "file"]
CapacityAction = Literal["offer", "update", "reclaim", "notice"]

# Short windows, so that a person sees the loop move; ingest forgets a silent host after three of them.
DEMO_TIME = TimeSettings(
    window_ms=2_000,
    lateness_ms=500,
    heartbeat_ms=1_000,
    host_ttl_ms=6_000,
    clock_silence_ms=500,
    interval_ms=500,
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell, its limits, and its part of the traffic relative to the other cells'."""

    name: str
    limits: CellLimits
    traffic_share: float


@dataclass(frozen=True, kw_only=True)
class Host:
    """One host that offers ``units`` of one accelerator kind (cores for ``cpu``) while its owner leaves them idle."""

    name: str
    cell: str
    accelerator: str
    units: float
    cpu_cores: float
    memory_bytes: int
    provider: str
    idle_cause: IdleCause
    unusable: UnusableReason | None
    offered_at_start: bool


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """How requests arrive. ``bursty``: Poisson at two rates in turn, ``burst_factor`` apart, with the same mean rate;
    bursts and quiet times last exponentially long. ``file``: at ``times``, float64, little-endian, s, rising."""

    process: ArrivalProcess
    rate_per_s: float
    burst_factor: float
    mean_burst_s: float
    mean_quiet_s: float
    times: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Requests:
    """What each request asks for. ``pairs``: quantiles of the number of candidates at equal steps of probability, of
    which ``num_candidates`` is the largest; without any, every request has ``num_candidates``."""

    num_candidates: int
    num_results: int
    deadline_ms: int
    pairs: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CapacityChange:
    """What the owner of the hosts matching the glob ``hosts`` does at ``at_s``.

    ``reclaim``: takes them back, for ``duration_s`` or until an ``offer``. ``update``: changes ``units``, for
    ``duration_s`` or for good. ``notice``: announces a reclaim ``duration_s`` ahead; the reclaim itself is
    another change.
    """

    at_s: float
    hosts: str
    action: CapacityAction
    reason: str
    duration_s: float | None
    units: float | None


@dataclass(frozen=True, kw_only=True)
class RandomReclaims:
    """Reclaims drawn by the seed: on each matching host a Poisson process, each lasting exponentially long."""

    hosts: str
    per_host_per_minute: float
    mean_duration_s: float
    reason: str


@dataclass(frozen=True, kw_only=True)
class OutcomeSettings:
    """How soon users act: the world's delays times ``delay_scale``."""

    delay_scale: float


@dataclass(frozen=True, kw_only=True)
class ArmShares:
    """Shares of users in the experiment's arms, and of requests whose dose is explored, as a router's file has them.

    A run of a minute has a few users in each arm only where the shares are more even than in production.
    """

    holdout_share: float
    rma_share: float
    sbm_share: float
    explored_share: float

    def to_toml(self) -> str:
        """The file that `intertidal run router --experiment` takes."""
        return (
            f"[arms]\nholdout_share = {self.holdout_share}\nrma_share = {self.rma_share}\n"
            f"sbm_share = {self.sbm_share}\n\n[doses]\nexplored_share = {self.explored_share}\n"
        )


@dataclass(frozen=True, kw_only=True)
class Processes:
    """How many processes of each part a run of the scenario starts; opportunistic rankers serve the wide route."""

    routers: int
    dedicated_rankers: int
    opportunistic_rankers: int
    powerful_rankers: int = 0


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One scenario, checked. Equal scenarios give equal traffic: all chance comes from ``seed``.

    ``wanted_files`` are still to be read; ``file_reports`` tell of those that were.
    """

    name: str
    description: str
    seed: int
    warm_up_s: float
    duration_s: float
    cells: tuple[Cell, ...]
    hosts: tuple[Host, ...]
    arrivals: Arrivals
    requests: Requests
    capacity_changes: tuple[CapacityChange, ...]
    random_reclaims: RandomReclaims | None
    outcomes: OutcomeSettings
    processes: Processes
    time: TimeSettings
    arms: ArmShares | None = None
    twin: TwinSettings = NO_TWIN
    wanted_files: WantedFiles = NO_FILES
    file_reports: tuple[FileReport, ...] = ()

    @property
    def traffic_s(self) -> float:
        """How long requests arrive: the warm-up and the measured time."""
        return self.warm_up_s + self.duration_s

    @property
    def measurement(self) -> MeasurementSettings:
        """How a run counts outcomes: for as long as 99 % of conversions take, in cohorts of one window."""
        return MeasurementSettings(
            attribution_ms=max(self.time.window_ms, round(_ATTRIBUTION_MS * self.outcomes.delay_scale)),
            cohort_ms=self.time.window_ms,
        )

    @property
    def ramp_s(self) -> float:
        """How long traffic takes to come up, from its start."""
        return _RAMP_SHARE * self.warm_up_s

    @property
    def arrivals_s(self) -> float:
        """How much of the arrivals' own time the traffic takes: less, for its first part is stretched by the ramp."""
        return self.traffic_s - self.ramp_s / 2.0

    def hosts_matching(self, glob: str) -> tuple[Host, ...]:
        """Hosts whose name matches the glob, in the file's order."""
        return tuple(host for host in self.hosts if fnmatchcase(host.name, glob))

    def ranker_hosts(self) -> tuple[Host, ...]:
        """The host of each ranker of the wide route: the usable hosts in turn."""
        usable = [host for host in self.hosts if host.unusable is None]
        return tuple(usable[index % len(usable)] for index in range(self.processes.opportunistic_rankers))

    def powerful_hosts(self) -> tuple[Host, ...]:
        """The host of each ranker of the powerful route: in turn, from the last one on, so that they are apart from
        those of the wide route where there are enough."""
        usable = [host for host in self.hosts if host.unusable is None][::-1]
        return tuple(usable[index % len(usable)] for index in range(self.processes.powerful_rankers))

    def stretched(self, duration_s: float) -> "Scenario":
        """The same scenario over another measured time, its timeline stretched alike, that of the twin too.

        Raises ValueError.
        """
        if not 1.0 <= duration_s <= _DAY_S:
            raise ValueError(f"duration_s must be from 1 to {_DAY_S:g}, is {duration_s:g}")
        ratio = duration_s / self.duration_s
        changes = tuple(
            replace(
                change,
                at_s=change.at_s * ratio,
                duration_s=None if change.duration_s is None else change.duration_s * ratio,
            )
            for change in self.capacity_changes
        )
        surges = tuple(
            replace(surge, at_s=surge.at_s * ratio, duration_s=surge.duration_s * ratio) for surge in self.twin.surges
        )
        mixes = tuple(replace(mix, at_s=mix.at_s * ratio) for mix in self.twin.mixes)
        twin = replace(self.twin, surges=surges, mixes=mixes)
        return replace(self, duration_s=duration_s, capacity_changes=changes, twin=twin)
