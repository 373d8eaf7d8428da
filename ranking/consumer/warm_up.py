"""Runs a model before the first request: lazy initialisation is paid here, and the cost model learns its first figures.

Shape legend: F user features, N candidates.
"""

from collections.abc import Callable

import numpy as np

from ranking.consumer.calls import ChunkScorer, E
from ranking.consumer.costs import CostBook
from ranking.models.inputs import CandidateChunk, Users

NUM_ROUNDS = 12


def warm_up(
    scorer: ChunkScorer[E], *, costs: CostBook, clock_ns: Callable[[], int], num_features: int, call_size: int
) -> None:
    """Score made-up candidates in calls of several sizes, a few rounds; the first round is not learned from."""
    for round_number in range(NUM_ROUNDS):
        for num_candidates in (max(1, call_size // 16), max(1, call_size // 4), call_size):
            encoded = scorer.prepare(
                Users.of_requests([np.zeros(num_features, dtype=np.float32)], [np.zeros(0, dtype=np.int64)])
            )
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
