"""A world's requests as callers send them: which one comes n-th is decided by the seed, not by when it is sent."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from ops.simulator.arrivals import arrival_times, ramped
from ops.simulator.scenario_model import Scenario
from ops.simulator.world import DrawnRequest, World
from schemas.records import RankingRequest

# Separates the draws of callers from those of reclaims and outcomes, which start from the same seed.
_ARRIVAL_STREAM = 2
_REQUEST_STREAM = 3

_USER_PREFIX = "u"
_US_PER_MS = 1_000.0
# A standard normal stays below this in 99 of 100 cases.
_NORMAL_P99 = 2.326348


@dataclass(frozen=True)
class DueRequest:
    """One request and when it arrives, s after traffic starts."""

    at_s: float
    request: RankingRequest


class RequestStream:
    """All requests of a scenario in the order of their arrival.

    Request n is drawn from a generator of its own, so that whoever starts late sends the same one. ``start_ms``
    becomes part of the ids: two runs of a scenario on one broker do not repeat each other's.
    """

    def __init__(self, scenario: Scenario, world: World, *, start_ms: int) -> None:
        self._scenario = scenario
        self._world = world
        self._start_ms = start_ms
        shares = np.array([cell.traffic_share for cell in scenario.cells])
        self._share_edges = np.cumsum(shares / shares.sum())[:-1]
        self._pairs = np.array(scenario.requests.pairs)
        self._pair_steps = np.linspace(0.0, 1.0, len(self._pairs))

    def due(self, *, from_s: float = 0.0) -> Iterator[DueRequest]:
        """The requests that arrive from ``from_s`` on."""
        for index, at_s in enumerate(self._arrivals()):
            if at_s >= from_s:
                yield DueRequest(at_s, self._request(index, at_s))

    def num_before(self, at_s: float) -> int:
        """How many requests arrive before ``at_s``."""
        return sum(1 for arrival_s in self._arrivals() if arrival_s < at_s)

    def _arrivals(self) -> Iterator[float]:
        scenario = self._scenario
        rng = np.random.default_rng([scenario.seed, _ARRIVAL_STREAM])
        times_s = arrival_times(scenario.arrivals, rng, duration_s=scenario.arrivals_s)
        return ramped(times_s, ramp_s=scenario.ramp_s)

    def _request(self, index: int, at_s: float) -> RankingRequest:
        scenario = self._scenario
        rng = np.random.default_rng([scenario.seed, _REQUEST_STREAM, index])
        cell = scenario.cells[int(np.searchsorted(self._share_edges, rng.random(), side="right"))]
        num_candidates = self._num_candidates(rng)
        drawn = self._world.draw_request(rng, num_candidates)
        # The moment of arrival, not of sending: a caller that falls behind must not hide it.
        intake_ms = self._start_ms + round(at_s * 1_000.0)
        request = ranking_request(
            drawn,
            request_id=f"{scenario.name}-{self._start_ms}-{index}",
            cell=cell.name,
            intake_ms=intake_ms,
            deadline_ms=intake_ms + scenario.requests.deadline_ms,
            # A request that offers fewer than the base has all of them ranked as such.
            num_base_candidates=min(cell.limits.base_candidates, num_candidates),
            num_results=min(scenario.requests.num_results, num_candidates),
        )
        return msgspec.structs.replace(request, upstream_us=self._upstream_us(rng))

    def _upstream_us(self, rng: np.random.Generator) -> int:
        """What the caller says it spent upstream, log-normal; 0 where the scenario does not tell."""
        upstream = self._scenario.twin.upstream
        if upstream.median_ms <= 0.0:
            return 0
        deviation = math.log(upstream.p99_ms / upstream.median_ms) / _NORMAL_P99
        return round(_US_PER_MS * upstream.median_ms * math.exp(deviation * rng.standard_normal()))

    def _num_candidates(self, rng: np.random.Generator) -> int:
        """As asked for, or drawn by the inverse of the distribution, which is linear between its quantiles."""
        if not len(self._pairs):
            return self._scenario.requests.num_candidates
        return max(1, round(float(np.interp(rng.random(), self._pair_steps, self._pairs))))


def ranking_request(
    drawn: DrawnRequest,
    *,
    request_id: str,
    cell: str,
    intake_ms: int,
    deadline_ms: int,
    num_base_candidates: int,
    num_results: int,
) -> RankingRequest:
    """A drawn request as a record."""
    return RankingRequest(
        request_id=request_id,
        user_id=user_name(drawn.user_id),
        cell=cell,
        intake_ms=intake_ms,
        deadline_ms=deadline_ms,
        num_base_candidates=num_base_candidates,
        num_results=num_results,
        ad_ids=drawn.ad_ids_N.astype("<i8").tobytes(),
        bids=drawn.bids_N.astype("<f4").tobytes(),
        retrieval_scores=drawn.retrieval_scores_N.astype("<f4").tobytes(),
        user_features=drawn.user_features_F.astype("<f4").tobytes(),
        history_ids=drawn.history_ids_H.astype("<i8").tobytes(),
        platform=drawn.platform,
        advertiser_segment=drawn.advertiser_segment,
    )


def user_name(user: int) -> str:
    """A user of the world as records name it."""
    return f"{_USER_PREFIX}{user}"


def user_number(name: str) -> int | None:
    """The world's user behind a name; None for a name that is none of this world's."""
    digits = name.removeprefix(_USER_PREFIX)
    return int(digits) if name.startswith(_USER_PREFIX) and digits.isascii() and digits.isdigit() else None
