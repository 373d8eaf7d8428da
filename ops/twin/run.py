"""A whole simulation by tick: every cell of a scenario, over processes, with the same result however many there are."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np

from ops.parent_death import dies_with_me, obey_supervisor
from ops.simulator.scenario_model import Scenario
from ops.twin.baselines import CONTROLLERS, run_of
from ops.twin.controllers import Production
from ops.twin.curves import with_curves
from ops.twin.metrics import CellRun, Run, Totals, summed, thinned, totals_of
from ops.twin.play import CellPlay, cell_play, num_cells
from ops.twin.value import ValueQuestion, ValueTable, value_table

__all__ = ["CONTROLLERS", "Plan", "simulate", "simulate_all"]

# Of all cells together: what a reader of the JSON can still take in, and a plot still show.
_MAX_TICKS: Final = 20_000
_Progress = Callable[[int], None]


@dataclass(frozen=True)
class Plan:
    """A scenario under each of some controllers of ``CONTROLLERS``, on so many processes."""

    scenario: Scenario
    controllers: tuple[str, ...] = (Production.name,)
    num_processes: int = 1


class _Played(msgspec.Struct, frozen=True):
    """One cell's run, thinned, and its totals, which are exact."""

    run: CellRun
    totals: Totals


def simulate(scenario: Scenario, controller: str = Production.name) -> Run:
    """Simulate every cell of a scenario in this process."""
    return simulate_all(Plan(scenario, (controller,)))[0]


def simulate_all(plan: Plan, *, progress: _Progress = lambda _num_done: None) -> list[Run]:
    """A run for each controller of a plan; ``progress`` hears of each cell that is done."""
    scenario = plan.scenario
    tables = tuple(value_table(_question(scenario, number)) for number in range(len(scenario.cells)))
    num = num_cells(scenario)
    most = max(1, _MAX_TICKS // num)
    played: list[_Played] = []
    for each in _all_played(plan, tables, most=most):
        played.append(each)
        progress(1)
    return [
        Run(
            scenario=scenario.name,
            detail="tick",
            seed=scenario.seed,
            controller=controller,
            window_ms=scenario.time.window_ms,
            duration_s=scenario.duration_s,
            totals=summed([each.totals for each in played[place * num : (place + 1) * num]]),
            cells=[each.run for each in played[place * num : (place + 1) * num]],
        )
        for place, controller in enumerate(plan.controllers)
    ]


def _all_played(plan: Plan, tables: tuple[ValueTable, ...], *, most: int) -> Iterator[_Played]:
    """Every cell under the first controller, then under the next."""
    tasks = [(controller, number) for controller in plan.controllers for number in range(num_cells(plan.scenario))]
    if plan.num_processes == 1 or len(tasks) == 1:
        for controller, number in tasks:
            yield _played(plan.scenario, tables, controller, number, most=most)
        return
    # Spawned: a fork of a process with threads of its own may hang. The results come in the order of the tasks.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        min(plan.num_processes, len(tasks)),
        mp_context=context,
        initializer=_start,
        initargs=(plan.scenario, tables, most, dies_with_me()),
    ) as pool:
        yield from pool.map(_work, tasks)


def _played(scenario: Scenario, tables: tuple[ValueTable, ...], controller: str, number: int, *, most: int) -> _Played:
    table = tables[number % len(tables)]
    play = _with_curves(cell_play(scenario, number), table)
    run = run_of(controller, play, table)
    return _Played(CellRun(cell=run.cell, ticks=thinned(run.ticks, most=most)), totals_of([run]))


def _with_curves(play: CellPlay, table: ValueTable) -> CellPlay:
    twin = play.scenario.twin
    if not twin.curves_from_world:
        return play
    shares_S = np.array([dict(twin.mixes[0].shares)[name] for name in table.segments]) if twin.mixes else table.shares_S
    rates_S = float(play.schedule.rates_K.mean()) * shares_S
    return replace(play, limits=with_curves(play.limits, table, rates_S=rates_S, factor=twin.curve_error))


def cell_with_truth(scenario: Scenario, number: int) -> tuple[CellPlay, ValueTable]:
    """One cell as ``simulate`` plays it, and what ranking truly earns there."""
    table = value_table(_question(scenario, number % len(scenario.cells)))
    return _with_curves(cell_play(scenario, number), table), table


def _question(scenario: Scenario, number: int) -> ValueQuestion:
    limits = scenario.cells[number].limits
    return ValueQuestion(
        base_candidates=limits.base_candidates,
        max_candidates=limits.max_candidates,
        num_results=scenario.requests.num_results,
        powerful_noise_share=scenario.twin.powerful_noise_share,
        seed=scenario.seed,
    )


_shared: list[tuple[Scenario, tuple[ValueTable, ...], int]] = []


def _start(scenario: Scenario, tables: tuple[ValueTable, ...], most: int, environ: dict[str, str]) -> None:
    """What every cell of this process needs, handed over once. It dies with whoever started it."""
    os.environ.update(environ)
    obey_supervisor()
    _shared.append((scenario, tables, most))


def _work(task: tuple[str, int]) -> _Played:
    scenario, tables, most = _shared[0]
    return _played(scenario, tables, *task, most=most)
