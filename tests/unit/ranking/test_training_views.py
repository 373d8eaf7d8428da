"""Views of requests: whichever are taken, each keeps its user, its history and its label."""

import numpy as np
import pytest

from ranking.models.inputs import CandidateChunk, Users
from ranking.models.training.views import LabelledViews, split_in_order


def _views(num_per_request: list[int], num_past: list[int]) -> LabelledViews:
    """A request r has feature r, past ads 100 r, 100 r + 1, ..., and views of ads 10 r, 10 r + 1, ..."""
    num = sum(num_per_request)
    index_N = np.repeat(np.arange(len(num_per_request)), num_per_request)
    ads_N = np.concatenate([10 * r + np.arange(n) for r, n in enumerate(num_per_request)]).astype(np.int64)
    return LabelledViews(
        users=Users.of_requests(
            [np.array([r], dtype=np.float32) for r in range(len(num_past))],
            [100 * r + np.arange(n, dtype=np.int64) for r, n in enumerate(num_past)],
        ),
        shown=CandidateChunk(
            ad_ids_N=ads_N,
            bids_N=np.arange(num, dtype=np.float32),
            retrieval_scores_N=-np.arange(num, dtype=np.float32),
            request_of_candidate_N=index_N,
        ),
        clicked_N=ads_N % 3 == 0,
    )


def test_requests_are_taken_with_all_that_is_theirs_in_the_order_asked_for() -> None:
    views = _views([3, 1, 2, 4], [2, 0, 5, 1])
    taken = views.take(np.array([2, 0, 3, 2]))
    assert taken.users.features_BF[:, 0].tolist() == [2, 0, 3, 2]
    assert taken.users.history_ids_H.tolist() == [200, 201, 202, 203, 204, 0, 1, 300, 200, 201, 202, 203, 204]
    assert taken.users.request_of_history_H.tolist() == [0] * 5 + [1] * 2 + [2] + [3] * 5
    assert taken.shown.ad_ids_N.tolist() == [20, 21, 0, 1, 2, 30, 31, 32, 33, 20, 21]
    assert taken.shown.bids_N.tolist() == [4, 5, 0, 1, 2, 6, 7, 8, 9, 4, 5]
    assert np.array_equal(taken.shown.retrieval_scores_N, -taken.shown.bids_N)
    assert taken.shown.request_of_candidate_N.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3]
    assert np.array_equal(taken.clicked_N, taken.shown.ad_ids_N % 3 == 0)


def test_some_of_the_views_keep_their_requests() -> None:
    views = _views([3, 1, 2], [1, 1, 1])
    kept = views.only(np.array([True, False, True, False, False, True]))
    assert kept.num_requests == 3
    assert kept.shown.ad_ids_N.tolist() == [0, 2, 21]
    assert kept.shown.request_of_candidate_N.tolist() == [0, 0, 2]
    # A request without a view left can still be taken.
    assert kept.take(np.array([1, 2])).shown.ad_ids_N.tolist() == [21]


def test_a_mean_by_request_is_over_its_views_alone() -> None:
    views = _views([3, 1, 2], [0, 0, 0])
    assert views.mean_by_request(np.array([1.0, 2.0, 3.0, 7.0, 1.0, 2.0])).tolist() == [2.0, 7.0, 1.5]


def test_a_split_holds_out_the_last_requests() -> None:
    split = split_in_order(_views([1] * 20, [1] * 20))
    assert split.training.users.features_BF[:, 0].tolist() == list(range(14))
    assert split.validation.users.features_BF[:, 0].tolist() == [14, 15]
    assert split.held_out.users.features_BF[:, 0].tolist() == [16, 17, 18, 19]


def test_too_few_requests_cannot_be_split() -> None:
    with pytest.raises(ValueError, match="too few"):
        split_in_order(_views([1] * 3, [1] * 3))


def test_views_out_of_order_and_without_labels_are_refused() -> None:
    views = _views([1, 1], [0, 0])
    with pytest.raises(ValueError, match="labels"):
        LabelledViews(views.users, views.shown, views.clicked_N[:1])
    turned = CandidateChunk(views.shown.ad_ids_N, views.shown.bids_N, views.shown.retrieval_scores_N, np.array([1, 0]))
    with pytest.raises(ValueError, match="request after request"):
        LabelledViews(views.users, turned, views.clicked_N)
