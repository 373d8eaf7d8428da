"""Problems for the allocator, from a few figures or at random, and its bounds as formulas of their own."""

import math
import random
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise

import numpy as np

from schemas.records import AcceleratorFit, CurvePoint, LeverTerms, ValueCurve
from schemas.records.fields import Lever
from streams.control.allocator.allocation import Allocation
from streams.control.allocator.problem import AllocatorSettings, LeverOption, PoolSupply, Problem

GIB_BYTES = 1 << 30
LEVERS: tuple[Lever, ...] = ("rma", "sbm", "precompute")
# Nothing is held back: a unit does exactly its measured work.
PLAIN = AllocatorSettings(utilisation=1.0, reserve_share=0.0, confidence=0.0, hysteresis_share=0.0, lost_start_cost=0.0)


def curve(points: Sequence[tuple[float, float]], *, segment: str = "all", error_s: float = 0.0) -> ValueCurve:
    """Curve through (work, value) points."""
    return ValueCurve(
        segment=segment,
        points=[CurvePoint(work_units_s=work, value_s=value, error_s=error_s) for work, value in points],
    )


def pool(
    accelerator: str,
    units: float,
    *,
    cpu: float = 1e6,
    memory: float = 1e6,
    survives: Mapping[Lever, float] | None = None,
) -> PoolSupply:
    return PoolSupply(
        accelerator=accelerator, usable_units=units, cpu_cores=cpu, memory_gib=memory, survives=survives or {}
    )


def fit(accelerator: str, speed: float, *, cpu: float = 0.0, memory_gib: float = 0.0) -> AcceleratorFit:
    return AcceleratorFit(
        accelerator=accelerator,
        units_per_unit_s=speed,
        cpu_cores_per_unit=cpu,
        memory_bytes_per_unit=round(memory_gib * GIB_BYTES),
    )


def option(lever: Lever, fits: list[AcceleratorFit], curves: Sequence[ValueCurve], **terms) -> LeverOption:
    """A lever; ``max_work_units_s`` and ``enabled`` go to the option, all else to its terms."""
    of_option = {name: terms.pop(name) for name in ("max_work_units_s", "enabled") if name in terms}
    return LeverOption(terms=LeverTerms(lever=lever, fits=fits, **terms), curves=tuple(curves), **of_option)


def random_curve(dice: random.Random, reach: float, *, num_points: int, segment: str = "all") -> ValueCurve:
    """Concave curve that ends anywhere up to ``reach``."""
    works = sorted(dice.uniform(0.05, 1.0) * reach for _ in range(num_points))
    slopes = sorted((dice.uniform(0.1, 5.0) for _ in range(num_points)), reverse=True)
    value, before, points = 0.0, 0.0, []
    for work, slope in zip(works, slopes, strict=True):
        value += slope * (work - before)
        before = work
        points.append((work, value))
    return curve(points, segment=segment)


def random_problem(
    dice: random.Random,
    *,
    num_pools: int,
    num_levers: int,
    num_segments: int = 1,
    num_points: int = 2,
    floors: bool = True,
    settings: AllocatorSettings = PLAIN,
) -> Problem:
    """Any mix of scarce resources, bundles that do not run everywhere, caps, floors and short-lived pools."""
    names = [f"kind-{number}" for number in range(num_pools)]
    units = [dice.uniform(1.0, 50.0) for _ in names]
    pools = tuple(
        pool(
            name,
            have,
            cpu=have * dice.choice([0.5, 2.0, 20.0]),
            memory=have * dice.choice([4.0, 64.0]),
            survives={"sbm": dice.uniform(0.3, 1.0)},
        )
        for name, have in zip(names, units, strict=True)
    )
    options = []
    for lever in LEVERS[:num_levers]:
        fits = [
            fit(name, dice.uniform(10.0, 100.0), cpu=dice.choice([0.0, 1.0, 4.0]), memory_gib=dice.choice([0.0, 16.0]))
            for name in names
            if dice.random() < 0.85
        ]
        reach = math.fsum(units) * 60.0 / num_segments
        curves = [
            random_curve(dice, reach, num_points=num_points, segment=f"segment-{number}")
            for number in range(num_segments)
        ]
        options.append(
            option(
                lever,
                fits,
                curves,
                max_share=dice.uniform(0.3, 1.0),
                floor_share=dice.uniform(0.0, 0.2) if floors else 0.0,
            )
        )
    return Problem(pools=pools, levers=tuple(options), settings=settings)


def _pieces(lever: LeverOption) -> list[tuple[float, float]]:
    """(work, value) of each straight piece of each curve."""
    found = []
    for one in lever.value_curves:
        corners = [(0.0, 0.0), *((point.work_units_s, point.value_s) for point in one.points)]
        found += [(two[0] - before[0], two[1] - before[1]) for before, two in pairwise(corners)]
    return found


class Bounds:
    """The half-spaces a_H x <= b_H of a problem over its places x_N, and its exact optimum by enumeration.

    Written from the formulas in ``docs/controller.md``, not from the allocator's code.
    """

    def __init__(self, problem: Problem) -> None:
        settings = problem.settings
        self.problem = problem
        self.places: list[tuple[PoolSupply, LeverOption, AcceleratorFit]] = []
        for supply in problem.pools:
            for lever in problem.levers:
                for found in lever.terms.fits:
                    if found.accelerator == supply.accelerator and lever.enabled and self._lives(supply, lever) > 0.0:
                        self.places.append((supply, lever, found))
        self.work_N = np.array(
            [
                found.units_per_unit_s
                * settings.utilisation
                * (1.0 - settings.reserve_share)
                * self._lives(supply, lever)
                for supply, lever, found in self.places
            ]
        )
        rows: list[tuple[list[float], float]] = []
        for supply in problem.pools:
            for have, need in (
                (supply.usable_units, lambda found: 1.0),
                (supply.cpu_cores, lambda found: found.cpu_cores_per_unit),
                (supply.memory_gib, lambda found: found.memory_bytes_per_unit / GIB_BYTES),
            ):
                rows.append(([need(found) if mine is supply else 0.0 for mine, _, found in self.places], have))
        usable = math.fsum(supply.usable_units for supply in problem.pools)
        floors = max(1.0, math.fsum(lever.terms.floor_share for lever in problem.levers if lever.enabled))
        for lever in problem.levers:
            own = [1.0 if mine is lever else 0.0 for _, mine, _ in self.places]
            rows.append((own, lever.terms.max_share * usable))
            runnable = [
                self._lives(supply, mine)
                * min(
                    supply.usable_units,
                    supply.cpu_cores / found.cpu_cores_per_unit if found.cpu_cores_per_unit else math.inf,
                    supply.memory_gib * GIB_BYTES / found.memory_bytes_per_unit
                    if found.memory_bytes_per_unit
                    else math.inf,
                )
                for supply, mine, found in self.places
                if mine is lever
            ]
            rows.append(([-share for share in own], -lever.terms.floor_share / floors * math.fsum(runnable)))
        rows += [([-float(at == other) for other in range(len(self.places))], 0.0) for at in range(len(self.places))]
        self.a_HN = np.array([row for row, _ in rows]).reshape(len(rows), len(self.places))
        self.b_H = np.array([bound for _, bound in rows])

    def _lives(self, supply: PoolSupply, lever: LeverOption) -> float:
        survives = supply.survives.get(lever.terms.lever, 1.0)
        return max(0.0, survives - self.problem.settings.lost_start_cost * (1.0 - survives))

    def units(self, split: Allocation) -> np.ndarray:
        """A split as x_N."""
        return np.array(
            [
                next(
                    (
                        grant.units
                        for grants in split.pools
                        if grants.accelerator == supply.accelerator
                        for grant in grants.grants
                        if grant.lever == lever.terms.lever
                    ),
                    0.0,
                )
                for supply, lever, _ in self.places
            ]
        )

    def value(self, units_N: np.ndarray) -> float:
        """Exact value: each lever's work on the steepest pieces first."""
        total = 0.0
        for lever in self.problem.levers:
            left = float(
                sum(
                    u * w for u, w, (_, mine, _) in zip(units_N, self.work_N, self.places, strict=True) if mine is lever
                )
            )
            steps = [(gain / width, width) for width, gain in _pieces(lever)]
            for slope, width in sorted(steps, reverse=True):
                total += slope * min(max(left, 0.0), width)
                left -= width
        return total

    def most_broken(self, units_N: np.ndarray) -> float:
        """By how much of its size the worst bound is broken; at most 0: none is."""
        if not self.places:
            return 0.0
        sizes_H = np.maximum(np.abs(self.b_H), np.abs(self.a_HN).max(axis=1) * 1e-9) + 1e-300
        return float(((self.a_HN @ units_N - self.b_H) / sizes_H).max())

    def best_value(self) -> float:
        """The optimum: value is concave and piecewise linear, so one lies where N bounds or breakpoints meet."""
        planes_a, planes_b = list(self.a_HN), list(self.b_H)
        for lever in self.problem.levers:
            own_N = np.array(
                [w if mine is lever else 0.0 for w, (_, mine, _) in zip(self.work_N, self.places, strict=True)]
            )
            widths = sorted(_pieces(lever), key=lambda piece: -piece[1] / piece[0])
            reached = 0.0
            for width, _ in widths:
                reached += width
                planes_a.append(own_N)
                planes_b.append(reached)
        a_PN, b_P = np.array(planes_a), np.array(planes_b)
        num = len(self.places)
        chosen = np.array(list(combinations(range(len(b_P)), num)))
        a_CNN, b_CN = a_PN[chosen], b_P[chosen]
        scale_CN = np.abs(a_CNN).max(axis=2)
        usable_C = scale_CN.min(axis=1) > 0.0
        a_CNN, b_CN, scale_CN = a_CNN[usable_C], b_CN[usable_C], scale_CN[usable_C]
        a_CNN, b_CN = a_CNN / scale_CN[:, :, None], b_CN / scale_CN
        regular_C = np.abs(np.linalg.det(a_CNN)) > 1e-9
        corners_CN = np.linalg.solve(a_CNN[regular_C], b_CN[regular_C][:, :, None])[:, :, 0]
        slack_CH = corners_CN @ self.a_HN.T - self.b_H
        sizes_H = 1.0 + np.abs(self.b_H)
        feasible_C = (slack_CH <= 1e-9 * sizes_H).all(axis=1)
        return max(self.value(corner_N) for corner_N in np.unique(corners_CN[feasible_C].round(9), axis=0))
