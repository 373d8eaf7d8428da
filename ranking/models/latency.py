"""How long one request takes by its number of candidates, and what that is in work units.

A work unit is one candidate scored by the baseline model in full calls: the time of a request of FULL_CALL candidates,
its user encoded, divided by FULL_CALL. Both models are measured by turns, so that a neighbour slows both alike, and the
median of the turns counts.
"""

import statistics
from collections.abc import Callable

import numpy as np

from ranking.models.cost import LatencyCurve, ModelCost, fitted_cost
from ranking.models.inputs import CandidateChunk, Users
from ranking.models.scorer import Scorer

SIZES = (1, 32, 128, 256, 512, 1_024, 2_048)
FULL_CALL = 256
_NUM_WARM_UP = 3
_SEED = 1


def measure_latency(
    scorer: Scorer,
    baseline: Scorer,
    *,
    num_features: tuple[int, int],
    history_length: int,
    clock_ns: Callable[[], int],
    num_turns: int = 21,
) -> tuple[LatencyCurve, ModelCost]:
    """The latency curve of one model and its cost beside the baseline model's; `num_features` are those of both."""
    rng = np.random.default_rng(_SEED)
    of_model = {size: _request(rng, num_features[0], history_length, size) for size in SIZES}
    of_baseline = _request(rng, num_features[1], history_length, FULL_CALL)
    times_us: dict[int, list[float]] = {size: [] for size in SIZES}
    full_call_us: list[float] = []
    for turn in range(_NUM_WARM_UP + num_turns):
        took_us = {size: _timed_us(scorer, *of_model[size], clock_ns) for size in SIZES}
        baseline_us = _timed_us(baseline, *of_baseline, clock_ns)
        if turn >= _NUM_WARM_UP:
            full_call_us.append(baseline_us)
            for size, time_us in took_us.items():
                times_us[size].append(time_us)
    curve = {size: round(statistics.median(turns), 1) for size, turns in times_us.items()}
    cost = fitted_cost(curve, unit_us=statistics.median(full_call_us) / FULL_CALL)
    return LatencyCurve(history_length=history_length, microseconds=curve), cost


def _timed_us(scorer: Scorer, users: Users, chunk: CandidateChunk, clock_ns: Callable[[], int]) -> float:
    start_ns = clock_ns()
    scorer.score_chunk(scorer.prepare(users), chunk)
    return (clock_ns() - start_ns) / 1e3


def _request(
    rng: np.random.Generator, num_features: int, history_length: int, num_candidates: int
) -> tuple[Users, CandidateChunk]:
    users = Users.of_requests(
        [rng.standard_normal(num_features, dtype=np.float32)], [rng.integers(2**40, size=history_length)]
    )
    return users, CandidateChunk(
        ad_ids_N=rng.integers(2**40, size=num_candidates),
        bids_N=rng.lognormal(size=num_candidates).astype(np.float32),
        retrieval_scores_N=rng.normal(size=num_candidates).astype(np.float32),
        request_of_candidate_N=np.zeros(num_candidates, dtype=np.int64),
    )
