"""Runs a model before the first request: lazy initialisation is paid here, and the cost model learns its first figures.

Shape legend: F user features, N candidates, past ads H.
"""

from collections.abc import Callable

import numpy as np

from ranking.consumer.calls import ChunkScorer, E
from ranking.consumer.costs import CostBook
from ranking.models.inputs import CandidateChunk, Users

NUM_ROUNDS = 12
# Past ads of a made-up user.
NUM_PAST_ADS = 32


def warm_up(
    scorer: ChunkScorer[E], *, costs: CostBook, clock_ns: Callable[[], int], num_features: int, call_size: int
) -> None:
    """Score made-up candidates in calls of several sizes, a few rounds; the first round is not learned from."""
    for round_number in range(NUM_ROUNDS):
        for num_users, num_candidates in (
            (1, max(1, call_size // 16)),
            (4, max(1, call_size // 4)),
            (16, call_size),
        ):
            users = Users.of_requests(
                [np.zeros(num_features, dtype=np.float32)] * num_users,
                [np.arange(NUM_PAST_ADS, dtype=np.int64)] * num_users,
            )
            start_ns = clock_ns()
            encoded = scorer.prepare(users)
            if round_number:
                costs.of(scorer.version).observe_encoding(num_users, clock_ns() - start_ns)
            chunk = CandidateChunk(
                ad_ids_N=np.arange(num_candidates, dtype=np.int64),
                bids_N=np.ones(num_candidates, dtype=np.float32),
                retrieval_scores_N=np.zeros(num_candidates, dtype=np.float32),
                request_of_candidate_N=np.zeros(num_candidates, dtype=np.int64),
            )
            start_ns = clock_ns()
            scorer.score_chunk(encoded, chunk)
            if round_number:
                costs.of(scorer.version).observe(num_candidates, clock_ns() - start_ns)
