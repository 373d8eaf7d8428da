"""Labelled views: shown ads, each with the request it belongs to, and whether it was clicked.

Shape legend: B requests, F user features, H past clicks of all users, N views of all requests.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ranking.models.inputs import CandidateChunk, Users


@dataclass(frozen=True)
class LabelledViews:
    """Views of B requests, request after request.

    `shown` holds the ads with ascending requests; clicked_N bool.
    Raises: ValueError where labels and views differ in number, or a request stands behind a later one.
    """

    users: Users
    shown: CandidateChunk
    clicked_N: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if len(self.clicked_N) != len(self.shown):
            raise ValueError(f"{len(self.shown)} views, but {len(self.clicked_N)} labels")
        if np.any(np.diff(self.shown.request_of_candidate_N) < 0):
            raise ValueError("views must stand request after request")

    def __len__(self) -> int:
        return len(self.clicked_N)

    @property
    def num_requests(self) -> int:
        """Number of requests."""
        return len(self.users.features_BF)

    def take(self, requests_B: NDArray[np.int64]) -> "LabelledViews":
        """Return the views of these requests, in this order."""
        shown = self.shown
        rows_N, request_N = _rows_of(shown.request_of_candidate_N, requests_B, self.num_requests)
        past_H, request_H = _rows_of(self.users.request_of_history_H, requests_B, self.num_requests)
        return LabelledViews(
            users=Users(
                features_BF=self.users.features_BF[requests_B],
                history_ids_H=self.users.history_ids_H[past_H],
                request_of_history_H=request_H,
            ),
            shown=CandidateChunk(
                ad_ids_N=shown.ad_ids_N[rows_N],
                bids_N=shown.bids_N[rows_N],
                retrieval_scores_N=shown.retrieval_scores_N[rows_N],
                request_of_candidate_N=request_N,
            ),
            clicked_N=self.clicked_N[rows_N],
        )

    def only(self, kept_N: NDArray[np.bool_]) -> "LabelledViews":
        """Return some of the views, of the same requests: one may be left without any."""
        shown = self.shown
        return LabelledViews(
            users=self.users,
            shown=CandidateChunk(
                ad_ids_N=shown.ad_ids_N[kept_N],
                bids_N=shown.bids_N[kept_N],
                retrieval_scores_N=shown.retrieval_scores_N[kept_N],
                request_of_candidate_N=shown.request_of_candidate_N[kept_N],
            ),
            clicked_N=self.clicked_N[kept_N],
        )

    def mean_by_request(self, values_N: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean of a value of each view by request, float64 [B]: a request's views are alike, requests are
        not, so intervals are over requests."""
        index_N = self.shown.request_of_candidate_N
        num_B = np.bincount(index_N, minlength=self.num_requests)
        return np.bincount(index_N, weights=values_N, minlength=self.num_requests) / np.maximum(num_B, 1)


@dataclass(frozen=True)
class SplitViews:
    """Views to learn from, views that say when to stop, and views that nothing was learned from."""

    training: LabelledViews
    validation: LabelledViews
    held_out: LabelledViews


def split_in_order(views: LabelledViews, *, validation_share: float = 0.1, held_out_share: float = 0.2) -> SplitViews:
    """Split by the order of the requests, the last held out: what a model is judged by comes after what it learned.

    Raises: ValueError where a part would be empty.
    """
    num_held_out = round(held_out_share * views.num_requests)
    num_validation = round(validation_share * views.num_requests)
    first = views.num_requests - num_held_out - num_validation
    if min(first, num_validation, num_held_out) < 1:
        raise ValueError(f"{views.num_requests} requests are too few to train, validate and judge by")
    order_B = np.arange(views.num_requests)
    return SplitViews(
        training=views.take(order_B[:first]),
        validation=views.take(order_B[first : first + num_validation]),
        held_out=views.take(order_B[first + num_validation :]),
    )


def _rows_of(
    request_of_row_N: NDArray[np.int64], requests_B: NDArray[np.int64], num_requests: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of the requests that are taken, and the place of each row's request among them; int64 both."""
    edges = np.searchsorted(request_of_row_N, np.arange(num_requests + 1))
    starts_B, lengths_B = edges[requests_B], edges[requests_B + 1] - edges[requests_B]
    before_B = np.cumsum(lengths_B) - lengths_B
    rows = np.repeat(starts_B - before_B, lengths_B) + np.arange(lengths_B.sum())
    return rows.astype(np.int64), np.repeat(np.arange(len(requests_B)), lengths_B)
