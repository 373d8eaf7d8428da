"""Allocation of a fleet's cells: 200 cells of 8 pools, 3 levers, and 8 segments with 8 points of their curves each.

A cold start solves one program per cell. A later split solves two where the best one would take units from a lever:
here that is all but every cell, as the values of all segments tremble by a tenth and the supplies by a twentieth.
"""

import random
import time

from benchmarks.measurement import Measurement
from benchmarks.plan import Plan
from ops.telemetry.progress import progress
from schemas.records import AcceleratorFit, CurvePoint, LeverTerms, ValueCurve
from schemas.records.fields import Lever
from streams.control.allocator.allocate import allocate
from streams.control.allocator.allocation import Allocation
from streams.control.allocator.problem import LeverOption, PoolSupply, Problem

NAME = "allocation"

NUM_CELLS, NUM_CELLS_TINY = 200, 2
NUM_SEGMENTS = 8
NUM_POINTS = 8
ACCELERATORS = ("nvidia-h200", "nvidia-h100", "nvidia-a100", "nvidia-l40s", "nvidia-l4", "amd-mi300x", "tpu-v5e", "cpu")
# Cores and GiB that a unit of a lever needs beside it; the largest model runs on the three largest accelerators only.
LEVERS: tuple[tuple[Lever, float, int, int], ...] = (
    ("rma", 8.0, 16, len(ACCELERATORS)),
    ("sbm", 1.0, 48, 3),
    ("precompute", 4.0, 24, len(ACCELERATORS)),
)
GIB_BYTES = 1 << 30


def measure(plan: Plan) -> list[Measurement]:
    """CPU seconds for all cells, of each turn: from a cold start, and from the split of that start."""
    num_cells = plan.choose(NUM_CELLS, NUM_CELLS, NUM_CELLS_TINY)
    cold_s: list[float] = []
    later_s: list[float] = []
    with progress("allocation", total=plan.num_turns) as advance:
        for turn in range(plan.num_turns):
            dice = random.Random(turn)
            fleet = [_problem(dice) for _ in range(num_cells)]
            changed = [_trembled(problem, dice) for problem in fleet]
            taken_s, splits = _allocated(fleet, [None] * num_cells)
            cold_s.append(taken_s)
            taken_s, _ = _allocated(changed, splits)
            later_s.append(taken_s)
            advance(1)
    what = f"allocation, {num_cells} cells x {len(ACCELERATORS)} pools x {len(LEVERS)} levers x {NUM_SEGMENTS} segments"
    return [
        Measurement(name=f"{what}, cold start", unit="CPU s", values=cold_s, goal="under 1"),
        Measurement(name=f"{what}, later", unit="CPU s", values=later_s),
    ]


def _allocated(fleet: list[Problem], last: list[Allocation] | list[None]) -> tuple[float, list[Allocation]]:
    start_ns = time.process_time_ns()
    splits = [allocate(problem, last=split) for problem, split in zip(fleet, last, strict=True)]
    taken_s = (time.process_time_ns() - start_ns) / 1e9
    assert all(split.mode == "program" for split in splits)
    return taken_s, splits


def _problem(dice: random.Random) -> Problem:
    pools = tuple(_pool(accelerator, dice) for accelerator in ACCELERATORS)
    return Problem(pools=pools, levers=tuple(_option(*lever, dice=dice) for lever in LEVERS))


def _pool(accelerator: str, dice: random.Random) -> PoolSupply:
    units = dice.uniform(10.0, 100.0)
    return PoolSupply(
        accelerator=accelerator,
        usable_units=units,
        cpu_cores=units * dice.uniform(0.5, 12.0),
        memory_gib=units * dice.uniform(16.0, 64.0),
        survives={"sbm": dice.uniform(0.1, 1.0), "precompute": dice.uniform(0.5, 1.0)},
    )


def _option(
    lever: Lever, cpu_cores: float, memory_gib: int, num_accelerators: int, *, dice: random.Random
) -> LeverOption:
    fits = [
        AcceleratorFit(
            accelerator=accelerator,
            units_per_unit_s=dice.uniform(5_000.0, 80_000.0),
            cpu_cores_per_unit=cpu_cores,
            memory_bytes_per_unit=memory_gib * GIB_BYTES,
        )
        for accelerator in ACCELERATORS[:num_accelerators]
    ]
    terms = LeverTerms(lever=lever, fits=fits, max_share=0.8, floor_share=0.02)
    return LeverOption(terms=terms, curves=tuple(_curve(f"segment-{number}", dice) for number in range(NUM_SEGMENTS)))


def _curve(segment: str, dice: random.Random) -> ValueCurve:
    """A curve that has earned all but a sixtieth of what it can at its last point."""
    worth_s, step = dice.uniform(1.0, 10.0), dice.uniform(20_000.0, 100_000.0)
    points = [
        CurvePoint(
            work_units_s=step * (number + 1),
            value_s=worth_s * (1.0 - 0.6 ** (number + 1)),
            error_s=worth_s * 0.02,
        )
        for number in range(NUM_POINTS)
    ]
    return ValueCurve(segment=segment, points=points)


def _trembled(problem: Problem, dice: random.Random) -> Problem:
    pools = tuple(
        PoolSupply(
            accelerator=pool.accelerator,
            usable_units=pool.usable_units * dice.uniform(0.95, 1.05),
            cpu_cores=pool.cpu_cores * dice.uniform(0.95, 1.05),
            memory_gib=pool.memory_gib * dice.uniform(0.95, 1.05),
            survives=pool.survives,
        )
        for pool in problem.pools
    )
    levers = tuple(
        LeverOption(terms=option.terms, curves=tuple(_scaled(curve, dice.uniform(0.9, 1.1)) for curve in option.curves))
        for option in problem.levers
    )
    return Problem(pools=pools, levers=levers)


def _scaled(curve: ValueCurve, factor: float) -> ValueCurve:
    points = [
        CurvePoint(work_units_s=point.work_units_s, value_s=factor * point.value_s, error_s=factor * point.error_s)
        for point in curve.points
    ]
    return ValueCurve(segment=curve.segment, points=points)
