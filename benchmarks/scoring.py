"""Request-oriented scoring, beside the same module with the user's side repeated for every candidate.

Both score all candidates of one request in one batch with the baseline bundle, on one thread, to the same scores. The
reference is the usual layout of a ranking batch, a row per (user, candidate) pair, so its user's side runs once per
row; its repeated features are made beforehand and cost it nothing here. The scores themselves are compared first.

Shape legend: F user features, N candidates; BF are the features of one row per user that is encoded.
"""

import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.measurement import Measurement
from ops.telemetry.progress import progress
from ranking.models.inputs import CandidateChunk, Users
from ranking.models.load import load_baseline
from ranking.models.scorer import Scorer

NUM_CANDIDATES = (256, 512, 2_048)
NUM_TURNS = 5
# Candidates scored by each side in each turn, whatever the size of the request.
CANDIDATES_PER_TURN, CANDIDATES_PER_TURN_QUICK = 1 << 19, 1 << 16
NUM_WARM_UP_CALLS = 10
SEED = 1

Score = Callable[[], NDArray[np.float32]]


def measure(*, quick: bool) -> list[Measurement]:
    """Candidates per CPU second of both, for requests of several sizes."""
    model = load_baseline()
    scorer = Scorer(model, num_threads=1)
    per_turn = CANDIDATES_PER_TURN_QUICK if quick else CANDIDATES_PER_TURN
    with progress("scoring", total=len(NUM_CANDIDATES) * NUM_TURNS) as advance:
        return [
            _compare(scorer, model.config.num_features, num_candidates, per_turn // num_candidates, advance)
            for num_candidates in NUM_CANDIDATES
        ]


def _compare(
    scorer: Scorer, num_features: int, num_candidates: int, num_calls: int, advance: Callable[[int], None]
) -> Measurement:
    random = np.random.default_rng(SEED)
    features_1F = random.standard_normal((1, num_features), dtype=np.float32)
    columns_N = (
        random.integers(0, 1 << 40, num_candidates),
        random.uniform(0.1, 5.0, num_candidates).astype(np.float32),
        random.standard_normal(num_candidates, dtype=np.float32),
    )
    once = partial(
        _score, scorer, _users(features_1F), CandidateChunk(*columns_N, np.zeros(num_candidates, dtype=np.int64))
    )
    repeated = partial(
        _score,
        scorer,
        _users(np.repeat(features_1F, num_candidates, axis=0)),
        CandidateChunk(*columns_N, np.arange(num_candidates)),
    )
    np.testing.assert_allclose(once(), repeated(), rtol=1e-4)
    for score in (once, repeated):
        _rate(score, NUM_WARM_UP_CALLS)
    rates: list[float] = []
    repeated_rates: list[float] = []
    for _ in range(NUM_TURNS):
        rates.append(num_candidates * _rate(once, num_calls))
        repeated_rates.append(num_candidates * _rate(repeated, num_calls))
        advance(1)
    return Measurement(
        name=f"scoring, {num_candidates:,} candidates, 1 thread",
        unit="candidates/CPU s",
        values=rates,
        reference="user repeated per candidate",
        reference_values=repeated_rates,
    )


def _users(features_BF: NDArray[np.float32]) -> Users:
    # The baseline model reads no past clicks.
    none_H = np.zeros(0, dtype=np.int64)
    return Users(features_BF, none_H, none_H)


def _score(scorer: Scorer, users: Users, chunk: CandidateChunk) -> NDArray[np.float32]:
    return scorer.score_chunk(scorer.prepare(users), chunk)


def _rate(score: Score, num_calls: int) -> float:
    """Calls per CPU second."""
    start_ns = time.process_time_ns()
    for _ in range(num_calls):
        score()
    return num_calls / (time.process_time_ns() - start_ns) * 1e9
