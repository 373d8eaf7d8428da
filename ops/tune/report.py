"""What ``intertidal tune`` found, as one record: figures of every operating point, gains, and how far they carry."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import msgspec
from msgspec import Struct

from ops.simulator.scenario_model import Cell, Scenario
from ops.tune.choose import Place, both_margins, holds, least, recommended, worst
from ops.tune.experiment import Bound, Experiment, OperatingPoint
from ops.tune.identify import Process, fitted, misfit
from ops.tune.margins import Margins
from ops.twin.run import cell_with_truth
from streams.control.gains import DEFAULT_GAINS, Gains

POSITIONS: Final = (0.25, 0.5, 0.75, 0.95)
# A wave of a few candidates needs them.
_MIN_SPAN: Final = 40
# Those that steer; the others are no matter of margins.
TUNED: Final = ("integral", "rise_integral", "proportional", "derivative")


class Loop(Struct, frozen=True, kw_only=True):
    """Margins of a loop: ``gain`` as a factor (None: no gain is too much), the least of both directions."""

    gain: float | None
    phase_deg: float
    sensitivity: float
    is_stable: bool
    holds: bool


class Unbudgeted(Struct, frozen=True, kw_only=True):
    """Beyond the budget: load, process gain, and margins with the default gains."""

    load: float
    gain: float
    default: Loop


class Found(Struct, frozen=True, kw_only=True):
    """The process at one operating point, and the margins there with two sets of gains.

    ``gain`` is error per share of the span; times in ticks. ``misfit`` is the largest distance of the measured step
    response (``response``, 1, 2, ... ticks after the step, per share of the span) from the process's, as a share of
    ``gain``. ``bound`` says what binds here: p99 at the cell's own limit, or the budget. Where it is the budget,
    ``unbudgeted`` has the same position at the load at which p99 would meet its setpoint without one.
    """

    scenario: str
    cell: str
    position: float
    rise_share: float
    rate_per_s: float
    p99_ms: float
    load: float
    bound: Bound
    gain: float
    dead_ticks: float
    lag_ticks: float
    misfit: float
    response: list[float]
    default: Loop
    recommended: Loop | None = None
    unbudgeted: Unbudgeted | None = None


class Skipped(Struct, frozen=True, kw_only=True):
    """What could not be identified, and why."""

    scenario: str
    cell: str
    position: float | None
    why: str


class Verdict(Struct, frozen=True, kw_only=True):
    """Gains by name, and the least of all their margins."""

    gains: dict[str, float]
    worst: Loop


class Report(Struct, frozen=True, kw_only=True):
    """``difference`` is recommended less default, by gain; zeros where they agree."""

    points: list[Found]
    skipped: list[Skipped]
    default: Verdict
    recommended: Verdict
    difference: dict[str, float]


class NothingFoundError(ValueError):
    """No operating point could be identified; the message says why."""


def tuned(scenarios: Sequence[Scenario], *, progress: Callable[[int], None] = lambda _num_done: None) -> Report:
    """Identify every cell of some scenarios, choose, and compare; raises NothingFoundError.

    ``progress`` hears of each position that is done.
    """
    points: list[Found] = []
    skipped: list[Skipped] = []
    for scenario in scenarios:
        for number in range(len(scenario.cells)):
            _identify(scenario, number, points=points, skipped=skipped, progress=progress)
    if not points:
        raise NothingFoundError("; ".join(sorted({each.why for each in skipped})))
    return judged(points, skipped)


def judged(points: Sequence[Found], skipped: Sequence[Skipped] = ()) -> Report:
    """The report of identified points."""
    places = [place_of(point) for point in points]
    chosen = recommended(places)
    return Report(
        points=[
            _with_recommended(point, least(both_margins(place, chosen)))
            for point, place in zip(points, places, strict=True)
        ],
        skipped=list(skipped),
        default=verdict(places, DEFAULT_GAINS),
        recommended=verdict(places, chosen),
        difference={name: round(getattr(chosen, name) - getattr(DEFAULT_GAINS, name), 6) for name in TUNED},
    )


def verdict(places: Sequence[Place], gains: Gains) -> Verdict:
    """How far gains carry at some places."""
    return Verdict(gains={name: getattr(gains, name) for name in TUNED}, worst=_loop(worst(places, gains)))


def place_of(point: Found) -> Place:
    """What of a point its margins hang on."""
    return Place(process=process_of(point), position=point.position, rise_share=point.rise_share)


def process_of(point: Found) -> Process:
    """The process that was identified there."""
    return Process(gain=point.gain, dead_ticks=point.dead_ticks, lag_ticks=point.lag_ticks)


def _identify(
    scenario: Scenario,
    number: int,
    *,
    points: list[Found],
    skipped: list[Skipped],
    progress: Callable[[int], None],
) -> None:
    cell = scenario.cells[number]

    def skip(why: str, position: float | None = None) -> None:
        skipped.append(Skipped(scenario=scenario.name, cell=cell.name, position=position, why=why))

    span = cell.limits.max_candidates - cell.limits.base_candidates
    if span < _MIN_SPAN:
        skip(f"a span of fewer than {_MIN_SPAN} candidates is too coarse to step")
        progress(len(POSITIONS))
        return
    play, table = cell_with_truth(scenario, number)
    experiment = Experiment(play, table)
    for position in POSITIONS:
        point = experiment.point_at(position)
        if point is None:
            skip("neither p99 nor the budget binds, at up to 16 times the rate", position)
        else:
            points.append(_found(scenario, experiment, point, cell=cell))
        progress(1)


def _found(scenario: Scenario, experiment: Experiment, point: OperatingPoint, *, cell: Cell) -> Found:
    response_J = experiment.answer(point).response_J
    process = fitted(response_J)
    place = Place(process=process, position=point.position, rise_share=cell.limits.rise_share)
    return Found(
        scenario=scenario.name,
        cell=cell.name,
        position=point.position,
        rise_share=cell.limits.rise_share,
        rate_per_s=point.rate_per_s,
        p99_ms=point.p99_ms,
        load=point.load,
        bound=point.bound,
        gain=process.gain,
        dead_ticks=process.dead_ticks,
        lag_ticks=process.lag_ticks,
        misfit=misfit(process, response_J),
        response=response_J.tolist(),
        default=_loop(least(both_margins(place, DEFAULT_GAINS))),
        unbudgeted=_unbudgeted(experiment, place) if point.bound == "budget" else None,
    )


def _unbudgeted(experiment: Experiment, place: Place) -> Unbudgeted | None:
    point = experiment.point_at(place.position, under_budget=False)
    if point is None:
        return None
    process = fitted(experiment.answer(point).response_J)
    return Unbudgeted(
        load=point.load,
        gain=process.gain,
        default=_loop(least(both_margins(replace(place, process=process), DEFAULT_GAINS))),
    )


def _with_recommended(point: Found, margins: Margins) -> Found:
    return msgspec.structs.replace(point, recommended=_loop(margins))


def _loop(margins: Margins) -> Loop:
    return Loop(
        gain=margins.gain if math.isfinite(margins.gain) else None,
        phase_deg=margins.phase_deg,
        sensitivity=margins.sensitivity,
        is_stable=margins.is_stable,
        holds=holds(margins),
    )
