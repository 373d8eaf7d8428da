"""A real fleet and real arrivals in a scenario of the twin: as many units as the trace says, over its own time.

The demo squeezes a trace into a minute and a few hosts; the twin plays it as it is. One GPU that the fleet leaves idle
is one host of one unit. Nothing in a trace of instances says which machine an idle GPU sits in, so which of them
goes when the fleet wants one back is drawn by the seed, each alike.

Shape legend: I instances, E times at which something changes.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from ops.simulator.files.arrivals_file import read_arrivals
from ops.simulator.files.errors import TrafficFileError
from ops.simulator.files.fleet_file import read_fleet
from ops.simulator.files.fleet_hosts import REASON
from ops.simulator.files.idle import InUse, in_use
from ops.simulator.files.report import FileReport, dirty_rows
from ops.simulator.scenario_model import CapacityChange, Host, Scenario
from schemas.records import CellLimits

_CHOICE_STREAM: Final = 16
_SOURCE_STREAM: Final = 17
_SHAPE_STEP_S: Final = 1.0
_MAX_IDLE: Final = 20_000
_MEMORY_BYTES: Final = 120 << 30


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """What is played: from so many seconds after the trace's start, for so long; None: to its end."""

    from_s: float = 0.0
    seconds: float | None = None


def with_fleet(scenario: Scenario, path: Path, stretch: Stretch) -> Scenario:
    """The scenario with the GPUs that a fleet leaves idle as its only hosts, all in its first cell.

    They count as the accelerator that the cell's levers run on first. Raises TrafficFileError.
    """
    fleet = read_fleet(path)
    if not fleet.gpus_I.any():
        raise TrafficFileError(str(path), "gpu_request", "no instance asks for a GPU")
    if stretch.from_s >= fleet.length_s:
        raise TrafficFileError(
            str(path), "scheduled_time", f"starts at {stretch.from_s:g} s, the trace ends at {fleet.length_s:g} s"
        )
    duration_s = min(stretch.seconds or fleet.length_s, fleet.length_s - stretch.from_s)
    use = in_use(fleet, fleet.gpus_I)
    cell = scenario.cells[0]
    has_gpu_I = fleet.gpus_I > 0.0
    cores = float(np.median(fleet.cores_I[has_gpu_I] / fleet.gpus_I[has_gpu_I]))
    template = Host(
        name="",
        cell=cell.name,
        accelerator=_accelerator(cell.limits),
        units=1.0,
        cpu_cores=cores,
        memory_bytes=_MEMORY_BYTES,
        provider="own",
        idle_cause="off_peak",
        unusable=None,
        offered_at_start=False,
    )
    idle = _Idle(template, np.random.default_rng([scenario.seed, _CHOICE_STREAM]))
    hosts, changes = idle.played(use, stretch.from_s, duration_s)
    if not hosts:
        raise TrafficFileError(str(path), "gpu_request", "no GPU is ever idle in this stretch")
    num_reclaims = sum(change.action == "reclaim" for change in changes)
    report = FileReport(
        kind="capacity",
        name=path.name,
        num_rows=fleet.num_rows,
        num_used=fleet.num_used,
        dirty=dirty_rows(fleet.dirt),
        factors={"from_s": stretch.from_s, "speed": 1.0, "hosts": len(hosts)},
        chosen=("hosts",),
        story=(
            f"{duration_s / 86_400.0:.4g} days from {stretch.from_s:.0f} s on;"
            f" up to {len(hosts)} of {use.peak:.0f} GPUs"
            f" idle at once, {num_reclaims} taken back"
        ),
    )
    return replace(
        scenario,
        cells=(cell,),
        duration_s=duration_s,
        hosts=tuple(hosts),
        capacity_changes=tuple(changes),
        random_reclaims=None,
        file_reports=(*scenario.file_reports, report),
    )


def with_arrivals(scenario: Scenario, path: Path, *, num_sources: int = 1) -> Scenario:
    """The scenario with the rate of a file's arrivals, second by second, over and over, at the scenario's own mean.

    Of ``num_sources`` the first is as the file has it, the others start elsewhere in it, drawn by the seed: a fleet is
    asked by many, and less unevenly than by any one of them. Raises TrafficFileError.
    """
    trace = read_arrivals(path)
    num_steps = max(1, int(trace.length_s / _SHAPE_STEP_S))
    # What comes after the last whole second would be a second of its own with hardly anything in it.
    places = np.minimum((trace.times_s / _SHAPE_STEP_S).astype(np.int64), num_steps - 1)
    counts = np.bincount(places, minlength=num_steps).astype(np.float64)
    rng = np.random.default_rng([scenario.seed, _SOURCE_STREAM])
    starts = [0, *rng.integers(num_steps, size=num_sources - 1).tolist()]
    shape = np.mean([np.roll(counts, start) for start in starts], axis=0) / counts.mean()
    report = FileReport(
        kind="arrivals",
        name=path.name,
        num_rows=trace.num_rows,
        num_used=len(trace.times_s),
        dirty=dirty_rows(trace.dirt),
        factors={
            "rate": scenario.arrivals.rate_per_s / float(counts.mean() / _SHAPE_STEP_S),
            "sources": float(num_sources),
        },
        chosen=("rate",),
        story=(
            f"{trace.length_s:.0f} s over and over, {num_sources} at once, at a mean of"
            f" {scenario.arrivals.rate_per_s:g}/s; the busiest second has {shape.max():.1f} times that,"
            f" {int((shape == 0.0).sum())} of {num_steps} s have none"
        ),
    )
    twin = replace(scenario.twin, shape=shape.astype("<f8").tobytes(), shape_step_s=_SHAPE_STEP_S)
    return replace(scenario, twin=twin, file_reports=(*scenario.file_reports, report))


class _Idle:
    """Idle GPUs as hosts: the free places of the hosts that there have been are filled before there is another."""

    def __init__(self, template: Host, rng: np.random.Generator) -> None:
        self._template = template
        self._rng = rng
        self._here: list[int] = []
        self._free: list[int] = []
        self._num = 0
        self._changes: list[CapacityChange] = []

    def played(self, use: InUse, from_s: float, duration_s: float) -> tuple[list[Host], list[CapacityChange]]:
        """Hosts and what happens to them; whole GPUs only, and only those of the first moment from the start on."""
        times_s_E = use.times_s_E - from_s
        idle_E = np.floor(use.peak - use.amounts_E + 1e-9).astype(np.int64)
        first = max(0, int(np.searchsorted(times_s_E, 0.0, side="right")) - 1)
        at_start = min(int(idle_E[first]), _MAX_IDLE)
        self._offer(at_start, None)
        now = at_start
        for at_s, idle in zip(times_s_E[first + 1 :].tolist(), idle_E[first + 1 :].tolist(), strict=True):
            if at_s >= duration_s:
                break
            wanted = min(idle, _MAX_IDLE)
            if wanted > now:
                self._offer(wanted - now, at_s)
            elif wanted < now:
                self._reclaim(now - wanted, at_s)
            now = wanted
        names = [self._name(number) for number in range(self._num)]
        hosts = [
            replace(self._template, name=name, offered_at_start=number < at_start) for number, name in enumerate(names)
        ]
        return hosts, self._changes

    def _offer(self, num: int, at_s: float | None) -> None:
        for _ in range(num):
            if self._free:
                number = self._free.pop()
            else:
                number = self._num
                self._num += 1
            self._here.append(number)
            if at_s is not None:
                self._change(number, at_s, "offer")

    def _reclaim(self, num: int, at_s: float) -> None:
        for _ in range(num):
            place = int(self._rng.integers(len(self._here)))
            self._here[place], self._here[-1] = self._here[-1], self._here[place]
            number = self._here.pop()
            self._free.append(number)
            self._change(number, at_s, "reclaim")

    def _change(self, number: int, at_s: float, action: str) -> None:
        self._changes.append(
            CapacityChange(
                at_s=at_s,
                hosts=self._name(number),
                action="offer" if action == "offer" else "reclaim",
                reason=REASON,
                duration_s=None,
                units=None,
            )
        )

    @staticmethod
    def _name(number: int) -> str:
        return f"fleet-gpu-{number + 1}"


def _accelerator(limits: CellLimits) -> str:
    return limits.levers[0].fits[0].accelerator if limits.levers else "gpu"
