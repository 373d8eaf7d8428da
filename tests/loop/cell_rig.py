"""Closes both loops of a cell: two routes, pools by accelerator, and the real controller fed with their windows."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas.records import (
    AcceleratorFit,
    AgedUnits,
    CandidateTarget,
    CapacityWindow,
    CellLimits,
    ControlWindow,
    CurvePoint,
    LabelledUnits,
    LatencyWindow,
    LeverTerms,
    PoolSnapshot,
    PoolWindow,
    ValueCurve,
)
from schemas.records.fields import Lever
from streams.control.processor import apply
from streams.control.settings import DEFAULT_SETTINGS, ControlSettings
from streams.control.state import CellState, decode_state, encode_state
from tests.loop.two_routes import TwoRoutes
from tests.unit.streams.control_makers import command_window

CELL = "us-east"
WINDOW_MS = 10_000
GIB = 1 << 30


def curve(value_at_top: float, work_at_top: float) -> list[ValueCurve]:
    """A concave curve: half of the value by a fifth of the work."""
    points = [(0.2, 0.5), (0.5, 0.8), (1.0, 1.0)]
    return [
        ValueCurve(
            segment="sports",
            points=[CurvePoint(work_units_s=w * work_at_top, value_s=v * value_at_top) for w, v in points],
        )
    ]


def terms(lever: Lever, *fits: AcceleratorFit, curves: list[ValueCurve], **changes: float) -> LeverTerms:
    return LeverTerms(lever=lever, fits=list(fits), curves=curves, **changes)


def fit(
    accelerator: str, units_per_unit_s: float, *, cpu_cores: float = 0.0, memory_gib: float = 0.0
) -> AcceleratorFit:
    return AcceleratorFit(
        accelerator=accelerator,
        units_per_unit_s=units_per_unit_s,
        cpu_cores_per_unit=cpu_cores,
        memory_bytes_per_unit=round(memory_gib * GIB),
    )


RMA = terms("rma", fit("a100", 50_000.0, cpu_cores=4.0), curves=curve(100.0, 60_000.0), max_share=0.9)
SBM = terms("sbm", fit("a100", 40_000.0, cpu_cores=0.5), curves=curve(100.0, 30_000.0), max_share=0.9)
LIMITS = CellLimits(
    base_candidates=100,
    max_candidates=600,
    latency_limit_ms=150.0,
    units_per_upgrade=400.0,
    max_coverage=0.5,
    levers=[RMA, SBM],
)
SPAN = LIMITS.max_candidates - LIMITS.base_candidates


@dataclass(kw_only=True)
class Pool:
    """What is idle of one accelerator kind."""

    accelerator: str = "a100"
    units: float = 2.0
    cpu_cores: float = 1_000.0
    memory_gib: float = 10_000.0
    missing_cpu: float = 0.0
    ages: list[AgedUnits] = field(default_factory=list)

    def window(self) -> PoolWindow:
        unusable = round(self.missing_cpu * 1e6)
        return PoolWindow(
            accelerator=self.accelerator,
            num_hosts=1,
            units_micro=round(self.units * 1e6),
            cpu_cores_micro=round(self.cpu_cores * 1e6),
            memory_bytes=round(self.memory_gib * GIB),
            unusable=[LabelledUnits(label="missing_cpu", units_micro=unusable)] if unusable else [],
            causes=[],
            providers=[],
            ages=self.ages,
        )


@dataclass(kw_only=True)
class CellRig:
    """One cell in closed loop. Its state goes through its bytes at every tick, as between two events of the agent."""

    plant: TwoRoutes = field(default_factory=TwoRoutes)
    limits: CellLimits = LIMITS
    settings: ControlSettings = DEFAULT_SETTINGS
    pools: list[Pool] = field(default_factory=lambda: [Pool()])
    index: int = 1_000
    state: CellState = field(default_factory=lambda: CellState(cell=CELL))
    targets: list[CandidateTarget] = field(default_factory=list)
    snapshots: dict[str, PoolSnapshot] = field(default_factory=dict)

    @property
    def target(self) -> CandidateTarget:
        return self.targets[-1]

    @property
    def extras(self) -> int:
        return self.target.candidate_target - self.limits.base_candidates

    def units(self, lever: Lever, accelerator: str = "a100") -> float:
        """What a lever has of a pool."""
        return sum(grant.units_micro / 1e6 for grant in self.snapshots[accelerator].levers if grant.lever == lever)

    def bottleneck(self, lever: Lever, accelerator: str = "a100") -> str:
        """What keeps a lever from more of a pool."""
        (found,) = [grant.bottleneck for grant in self.snapshots[accelerator].levers if grant.lever == lever]
        return found

    def capacity(self) -> ControlWindow:
        """Capacity window of the tick to come."""
        pools = [pool.window() for pool in self.pools]
        return self._window(
            capacity=CapacityWindow(
                limits=self.limits,
                pools=pools,
                num_hosts=len(pools),
                num_hosts_silent=0,
                num_events=len(pools),
                num_duplicates=0,
                num_late=0,
            )
        )

    def latency(self) -> ControlWindow:
        """Latency window of the tick to come, from the plant."""
        target = self.targets[-1] if self.targets else None
        return self._window(latency=self.plant.respond(target, self.snapshots, window_s=WINDOW_MS / 1_000))

    def command(self, action: str, *, candidate_target: int | None = None, coverage: float | None = None) -> None:
        """An operator's word before the next tick."""
        self.feed(
            [
                command_window(
                    self.index, action, candidate_target=candidate_target, coverage=coverage, window_ms=WINDOW_MS
                )
            ]
        )

    def tick(self) -> CandidateTarget:
        """One window of both kinds; the target that follows."""
        self.feed([self.capacity(), self.latency()])
        return self.target

    def run(self, num_ticks: int) -> list[CandidateTarget]:
        """Targets of so many ticks."""
        return [self.tick() for _ in range(num_ticks)]

    def feed(self, windows: Iterable[ControlWindow]) -> list[CandidateTarget]:
        """Any windows; the targets that they led to. Goes on to the next index when there was one."""
        made = []
        for window in windows:
            state, records = apply(self.state, window, settings=self.settings)
            self.state = decode_state(encode_state(state))
            made += [record for record in records if isinstance(record, CandidateTarget)]
            self.snapshots |= {record.accelerator: record for record in records if isinstance(record, PoolSnapshot)}
        self.targets += made
        self.index += 1 if made else 0
        return made

    def _window(self, *, capacity: CapacityWindow | None = None, latency: LatencyWindow | None = None) -> ControlWindow:
        return ControlWindow(
            cell=CELL,
            kind="capacity" if capacity is not None else "latency",
            source_partition=3,
            window_index=self.index,
            start_ms=self.index * WINDOW_MS,
            end_ms=(self.index + 1) * WINDOW_MS,
            capacity=capacity,
            latency=latency,
        )
