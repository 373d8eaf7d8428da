"""How good a model's rankings are against the truth of the world.

Shape legend: N candidates, R requests, W widths.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ops.simulator.world import World
from ranking.models.inputs import CandidateChunk, Users
from ranking.models.scorer import Scorer
from ranking.models.topk import top_k


@dataclass(frozen=True)
class WidthValues:
    """True value of the ads shown, per request, currency, under each width of the search.

    model_RW: the model's best of the first `widths[w]` candidates; retrieval_R: the head of the retrieval
    order; predicted_RW: what the model believed that its choice was worth; segments: the requests' advertiser
    segments.
    """

    widths: tuple[int, ...]
    model_RW: NDArray[np.float64]
    predicted_RW: NDArray[np.float64]
    retrieval_R: NDArray[np.float64]
    segments: tuple[str, ...]


def width_values(
    world: World,
    scorer: Scorer,
    rng: np.random.Generator,
    *,
    widths: tuple[int, ...],
    num_requests: int,
    num_shown: int = 8,
) -> WidthValues:
    """Rank the same requests at several widths, and ask the world what the choices are worth."""
    model_RW = np.empty((num_requests, len(widths)))
    predicted_RW = np.empty((num_requests, len(widths)))
    retrieval_R = np.empty(num_requests)
    segments = []
    for row in range(num_requests):
        request = world.draw_request(rng, max(widths))
        encoded = scorer.prepare(Users.of_requests([request.user_features_F], [request.history_ids_H]))
        scores_N = scorer.score_chunk(
            encoded,
            CandidateChunk(
                ad_ids_N=request.ad_ids_N,
                bids_N=request.bids_N,
                retrieval_scores_N=request.retrieval_scores_N,
                request_of_candidate_N=np.zeros(len(request.ad_ids_N), dtype=np.int64),
            ),
        )
        true_N = world.click_probability(request.user_id, request.ad_ids_N) * request.bids_N
        for column, width in enumerate(widths):
            shown = top_k(scores_N[:width], request.ad_ids_N[:width], num_shown)
            model_RW[row, column] = true_N[shown].sum()
            predicted_RW[row, column] = scores_N[shown].sum()
        retrieval_R[row] = true_N[:num_shown].sum()
        segments.append(request.advertiser_segment)
    return WidthValues(widths, model_RW, predicted_RW, retrieval_R, tuple(segments))
