"""Labelled views of a world: what a log of shown ads and clicks would hold."""

import numpy as np
from numpy.typing import NDArray

from ops.simulator.world import World
from ranking.models.inputs import CandidateChunk, Users
from ranking.models.training.views import LabelledViews


def draw_impressions(
    world: World,
    rng: np.random.Generator,
    *,
    num_requests: int,
    num_per_request: int = 48,
    num_candidates: int = 512,
) -> LabelledViews:
    """Show a uniform choice of the retrieved ads and note who clicked.

    Uniform over everything that a wide search would retrieve, so that a model learns about ads far down the
    order too, and is calibrated there.
    """
    features: list[NDArray[np.float32]] = []
    histories: list[NDArray[np.int64]] = []
    drawn: list[tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]] = []
    clicked: list[NDArray[np.bool_]] = []
    for _ in range(num_requests):
        request = world.draw_request(rng, num_candidates)
        shown = rng.choice(num_candidates, num_per_request, replace=False)
        ad_ids = request.ad_ids_N[shown]
        features.append(request.user_features_F)
        histories.append(request.history_ids_H)
        drawn.append((ad_ids, request.bids_N[shown], request.retrieval_scores_N[shown]))
        clicked.append(rng.random(num_per_request) < world.click_probability(request.user_id, ad_ids))
    ad_ids_of, bids, retrieval_scores = zip(*drawn, strict=True)
    return LabelledViews(
        users=Users.of_requests(features, histories),
        shown=CandidateChunk(
            ad_ids_N=np.concatenate(ad_ids_of),
            bids_N=np.concatenate(bids),
            retrieval_scores_N=np.concatenate(retrieval_scores),
            request_of_candidate_N=np.repeat(np.arange(num_requests), num_per_request),
        ),
        clicked_N=np.concatenate(clicked),
    )
