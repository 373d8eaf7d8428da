"""Labelled impressions of a world: what a log of shown ads and clicks would hold.

Shape legend: B requests, F user features, H past clicks of all users, N impressions of all requests (a fixed number
each, by request).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ops.simulator.world import World
from ranking.models.inputs import CandidateChunk, Users


@dataclass(frozen=True)
class Impressions:
    """Impressions of B requests, request after request, the same number for each.

    ad_ids_N int64; bids_N and retrieval_scores_N float32; clicked_N bool.
    """

    users: Users
    ad_ids_N: NDArray[np.int64]
    bids_N: NDArray[np.float32]
    retrieval_scores_N: NDArray[np.float32]
    clicked_N: NDArray[np.bool_]

    @property
    def num_requests(self) -> int:
        """Number of requests."""
        return len(self.users.features_BF)

    @property
    def num_per_request(self) -> int:
        """Impressions of each request."""
        return len(self.ad_ids_N) // self.num_requests

    def take(self, requests: NDArray[np.int64]) -> "Impressions":
        """Return the impressions of these requests, in this order."""
        rows = (requests[:, None] * self.num_per_request + np.arange(self.num_per_request)).ravel()
        return Impressions(
            users=_take_users(self.users, requests),
            ad_ids_N=self.ad_ids_N[rows],
            bids_N=self.bids_N[rows],
            retrieval_scores_N=self.retrieval_scores_N[rows],
            clicked_N=self.clicked_N[rows],
        )

    def candidates(self) -> CandidateChunk:
        """Return the impressions as candidates of their requests."""
        return CandidateChunk(
            ad_ids_N=self.ad_ids_N,
            bids_N=self.bids_N,
            retrieval_scores_N=self.retrieval_scores_N,
            request_of_candidate_N=np.repeat(np.arange(self.num_requests), self.num_per_request),
        )


def draw_impressions(
    world: World,
    rng: np.random.Generator,
    *,
    num_requests: int,
    num_per_request: int = 48,
    num_candidates: int = 512,
) -> Impressions:
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
    return Impressions(
        users=Users.of_requests(features, histories),
        ad_ids_N=np.concatenate(ad_ids_of),
        bids_N=np.concatenate(bids),
        retrieval_scores_N=np.concatenate(retrieval_scores),
        clicked_N=np.concatenate(clicked),
    )


def _take_users(users: Users, requests: NDArray[np.int64]) -> Users:
    edges = np.searchsorted(users.request_of_history_H, np.arange(len(users.features_BF) + 1))
    return Users.of_requests(
        list(users.features_BF[requests]),
        [users.history_ids_H[edges[request] : edges[request + 1]] for request in requests],
    )
