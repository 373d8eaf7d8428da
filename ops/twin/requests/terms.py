"""A scenario's cells with what their levers earn by the world's truth, as the tick level gives it to them."""

from dataclasses import replace

import numpy as np

from ops.simulator.scenario_model import Scenario
from ops.twin.curves import with_curves
from ops.twin.play import cell_play
from ops.twin.value import ValueQuestion, value_table
from schemas.records import CellLimits


def with_terms(scenario: Scenario) -> Scenario:
    """The scenario whose levers without curves of their own have those of the truth, where it asks for that."""
    if not scenario.twin.curves_from_world:
        return scenario
    cells = tuple(
        replace(cell, limits=_limits(scenario, number)) if cell.limits.levers else cell
        for number, cell in enumerate(scenario.cells)
    )
    return replace(scenario, cells=cells)


def _limits(scenario: Scenario, number: int) -> CellLimits:
    limits, twin = scenario.cells[number].limits, scenario.twin
    table = value_table(
        ValueQuestion(
            base_candidates=limits.base_candidates,
            max_candidates=limits.max_candidates,
            num_results=scenario.requests.num_results,
            powerful_noise_share=twin.powerful_noise_share,
            seed=scenario.seed,
        )
    )
    shares_S = np.array([dict(twin.mixes[0].shares)[name] for name in table.segments]) if twin.mixes else table.shares_S
    rates_S = float(cell_play(scenario, number).schedule.rates_K.mean()) * shares_S
    return with_curves(limits, table, rates_S=rates_S, factor=twin.curve_error)
