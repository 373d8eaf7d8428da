"""Whether a model does what the protocol asks: candidates scored by themselves, whatever shares the call. Pure.

A few requests of random users, histories and candidates are scored in one call; then each request alone, its candidates
in another order and cut in two. Both must agree to TOLERANCE, relative to 1 + the score.

Shape legend: N candidates of all requests.
"""

import numpy as np
from numpy.typing import NDArray

from ranking.models.inputs import CandidateChunk, Users
from ranking.models.scorer import Scorer, ScoringError

TOLERANCE = 1e-5
# Requests with no past click and with one, without candidates and with many.
_HISTORY_LENGTHS = (0, 200, 1, 37, 5)
_NUM_CANDIDATES = (64, 33, 0, 1, 7)
_SEED = 1


class NonconformingModelError(Exception):
    """A model that must not serve; one line that says what it does wrong."""


def check_conformance(scorer: Scorer, num_features: int) -> None:
    """Score the same candidates together and apart. Raises NonconformingModelError."""
    users, chunk = _random_batch(np.random.default_rng(_SEED), num_features)
    try:
        together_N = scorer.score_chunk(scorer.prepare(users), chunk)
        apart_N = _apart(scorer, users, chunk)
    except (ScoringError, ValueError, RuntimeError, IndexError) as error:
        # What PyTorch says fills lines.
        raise NonconformingModelError(f"{scorer.version} cannot score: {' '.join(str(error).split())}") from error
    wrong = np.flatnonzero(np.abs(together_N - apart_N) > TOLERANCE * (1.0 + np.abs(apart_N)))
    if len(wrong):
        worst = wrong[np.argmax(np.abs(together_N - apart_N)[wrong])]
        raise NonconformingModelError(
            f"{scorer.version}: {len(wrong)} of {len(together_N)} scores depend on what else is in the call: "
            f"{together_N[worst]:.7g} among others, {apart_N[worst]:.7g} alone"
        )


def _random_batch(rng: np.random.Generator, num_features: int) -> tuple[Users, CandidateChunk]:
    users = Users.of_requests(
        [rng.standard_normal(num_features, dtype=np.float32) for _ in _HISTORY_LENGTHS],
        [rng.integers(-(2**63), 2**63 - 1, size=length) for length in _HISTORY_LENGTHS],
    )
    num = sum(_NUM_CANDIDATES)
    return users, CandidateChunk(
        ad_ids_N=rng.integers(-(2**63), 2**63 - 1, size=num),
        bids_N=rng.lognormal(size=num).astype(np.float32),
        retrieval_scores_N=rng.normal(scale=3.0, size=num).astype(np.float32),
        request_of_candidate_N=rng.permutation(np.repeat(np.arange(len(_NUM_CANDIDATES)), _NUM_CANDIDATES)),
    )


def _apart(scorer: Scorer, users: Users, chunk: CandidateChunk) -> NDArray[np.float32]:
    scores_N = np.empty(len(chunk), dtype=np.float32)
    for request in range(len(users.features_BF)):
        alone = scorer.prepare(
            Users.of_requests(
                [users.features_BF[request]], [users.history_ids_H[users.request_of_history_H == request]]
            )
        )
        own = np.flatnonzero(chunk.request_of_candidate_N == request)[::-1]
        for rows in np.array_split(own, 2):
            scores_N[rows] = scorer.score_chunk(
                alone,
                CandidateChunk(
                    ad_ids_N=chunk.ad_ids_N[rows],
                    bids_N=chunk.bids_N[rows],
                    retrieval_scores_N=chunk.retrieval_scores_N[rows],
                    request_of_candidate_N=np.zeros(len(rows), dtype=np.int64),
                ),
            )
    return scores_N
