"""What ranking earns, from the world's truth: expected value per request by segment, width and model.

Many requests of the world are drawn once, ranked at each of a few widths by both models, and judged by the truth; in
between the curve is linear. The baseline model is the best scorer that knows a user by the features alone, the
stronger one knows the user better (``World.believed_probability``). An upgraded request has its base candidates ranked
by the stronger model and extras merged in by the baseline model, as the router does it.

Shape legend: S segments, R requests, W widths, N candidates.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ops.simulator.world import DrawnRequest, World, WorldConfig

# Separates these draws from all others of a scenario.
_VALUE_STREAM = 11
_NUM_REQUESTS = 1_200
_NUM_WIDTHS = 9
_WORLD = WorldConfig()


@dataclass(frozen=True, kw_only=True)
class ValueTable:
    """Expected value per request, currency: ``baseline_SW`` and ``upgraded_SW`` at ``widths_W`` candidates.

    ``segments`` are in the order of the rows, ``shares_S`` those of the world's users.
    """

    segments: tuple[str, ...]
    shares_S: NDArray[np.float64]
    widths_W: NDArray[np.float64]
    baseline_SW: NDArray[np.float64]
    upgraded_SW: NDArray[np.float64]

    def at(self, num_candidates: float, *, upgraded: bool) -> NDArray[np.float64]:
        """Value per request of each segment at a number of candidates, linear between widths: float64 [S]."""
        table_SW = self.upgraded_SW if upgraded else self.baseline_SW
        widths_W = self.widths_W
        right = min(max(int(np.searchsorted(widths_W, num_candidates)), 1), len(widths_W) - 1)
        low, high = float(widths_W[right - 1]), float(widths_W[right])
        weight = min(max((num_candidates - low) / (high - low), 0.0), 1.0)
        value_S: NDArray[np.float64] = table_SW[:, right - 1] * (1.0 - weight) + table_SW[:, right] * weight
        return value_S


@dataclass(frozen=True, kw_only=True)
class ValueQuestion:
    """What a table is made for; equal questions have equal tables."""

    base_candidates: int
    max_candidates: int
    num_results: int
    powerful_noise_share: float
    seed: int
    config: WorldConfig = _WORLD


@lru_cache(maxsize=32)
def value_table(question: ValueQuestion) -> ValueTable:
    """Ranks the drawn requests at all widths; a second or two. ``base_candidates`` is the first width."""
    world = World(question.config)
    rng = np.random.default_rng([question.seed, _VALUE_STREAM])
    widths = _widths(question.base_candidates, question.max_candidates)
    names = tuple(segment.name for segment in question.config.segments)
    sums = np.zeros((2, len(names), len(widths)))
    nums_S = np.zeros(len(names))
    for _ in range(_NUM_REQUESTS):
        request = world.draw_request(rng, widths[-1])
        row = names.index(request.advertiser_segment)
        nums_S[row] += 1
        sums[:, row] += _worth(world, request, widths, question)
    # A segment that nobody was drawn of earns nothing that anybody could know.
    means = sums / np.maximum(nums_S, 1.0)[None, :, None]
    # A wider search never loses in expectation; what seems so is chance of the draw.
    baseline_SW, upgraded_SW = np.maximum.accumulate(means, axis=2)
    return ValueTable(
        segments=names,
        shares_S=np.array([segment.share for segment in question.config.segments]),
        widths_W=np.array(widths, dtype=np.float64),
        baseline_SW=baseline_SW,
        upgraded_SW=np.maximum(upgraded_SW, baseline_SW),
    )


class WindowValue:
    """What a window's requests earn, currency: base work, extras beside it, upgrades instead of it."""

    def __init__(
        self,
        table: ValueTable,
        *,
        base_candidates: int,
        nums_S: NDArray[np.int64],
        upgraded_S: NDArray[np.floating[Any]],
    ) -> None:
        self._table = table
        self._base = float(base_candidates)
        self._plain_S = nums_S - upgraded_S
        self._upgraded_S = upgraded_S
        base_S = table.at(self._base, upgraded=False)
        self.base = float(nums_S @ base_S)
        self._without = float(self._plain_S @ base_S + upgraded_S @ table.at(self._base, upgraded=True))
        self.of_upgrades = self._without - self.base

    def of_extras(self, extras: float) -> float:
        """What that many extras per request add, the upgrades being as they are."""
        width = self._base + extras
        return (
            float(
                self._plain_S @ self._table.at(width, upgraded=False)
                + self._upgraded_S @ self._table.at(width, upgraded=True)
            )
            - self._without
        )


def concave_points(work: Sequence[float], values: Sequence[float]) -> list[tuple[float, float]]:
    """The upper concave hull, from (0, 0), of points in rising order of positive work; (0, 0) itself left out.

    Monotone chain (Andrew 1979): a point that lies on or below the line between its neighbours is dropped.
    """
    hull = [(0.0, 0.0)]
    for point in zip(work, values, strict=True):
        while len(hull) >= 2 and _turn(hull[-2], hull[-1], point) >= 0.0:
            hull.pop()
        hull.append(point)
    return hull[1:]


def _turn(first: tuple[float, float], middle: tuple[float, float], last: tuple[float, float]) -> float:
    """Above zero for a turn to the left: the middle point lies below the line."""
    return (middle[0] - first[0]) * (last[1] - first[1]) - (middle[1] - first[1]) * (last[0] - first[0])


def _widths(base: int, most: int) -> list[int]:
    """Base, then equal steps of the logarithm: most is gained early."""
    if most == base:
        return [base, base + 1]
    return sorted({round(width) for width in np.geomspace(base, most, _NUM_WIDTHS).tolist()})


def _worth(world: World, request: DrawnRequest, widths: list[int], question: ValueQuestion) -> NDArray[np.float64]:
    """True value of what is shown at each width, by the baseline model and with the upgrade: float64 [2, W]."""
    ids_N, bids_N = request.ad_ids_N, request.bids_N.astype(np.float64)
    true_N = world.click_probability(request.user_id, ids_N) * bids_N
    weak_N = world.believed_probability(request.user_id, ids_N, noise_share=1.0) * bids_N
    strong_N = weak_N.copy()
    base = widths[0]
    strong_N[:base] = (
        world.believed_probability(request.user_id, ids_N[:base], noise_share=question.powerful_noise_share)
        * bids_N[:base]
    )
    worth = np.empty((2, len(widths)))
    for column, width in enumerate(widths):
        for row, scores_N in enumerate((weak_N, strong_N)):
            num_shown = min(question.num_results, width)
            shown = np.argpartition(-scores_N[:width], num_shown - 1)[:num_shown]
            worth[row, column] = true_N[shown].sum()
    return worth
