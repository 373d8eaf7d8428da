"""Labelled views from logs: what was seen and old enough is a label, and nothing else is."""

from typing import Literal

import numpy as np
import pytest

from ranking.models.training.logs import NoViewsError, TooManyRequestsError, ViewJoin
from schemas.records import RankingOutcome, RankingRequest, RankingResult

_WINDOW_MS = 1_000
_ADS = [7, 5, 9, 11]


def _request(name: str = "q1", *, intake_ms: int = 10_000, features: tuple[float, ...] = (1.0, 2.0)) -> RankingRequest:
    return RankingRequest(
        request_id=name,
        user_id="u1",
        cell="east",
        intake_ms=intake_ms,
        deadline_ms=intake_ms + 500,
        num_base_candidates=4,
        num_results=3,
        ad_ids=np.array(_ADS, dtype="<i8").tobytes(),
        bids=np.array([1.0, 2.0, 3.0, 4.0], dtype="<f4").tobytes(),
        retrieval_scores=np.array([0.4, 0.3, 0.2, 0.1], dtype="<f4").tobytes(),
        user_features=np.array(features, dtype="<f4").tobytes(),
        history_ids=np.array([3, 4], dtype="<i8").tobytes(),
    )


def _result(name: str = "q1", ads: tuple[int, ...] = (9, 7, 5)) -> RankingResult:
    return RankingResult(
        request_id=name,
        user_id="u1",
        cell="east",
        status="ok",
        error="",
        late=False,
        degraded=False,
        takeover=False,
        intake_ms=10_000,
        deadline_ms=10_500,
        completed_ms=10_050,
        base_latency_us=10,
        latency_us=10,
        num_base_attempts=1,
        num_base_candidates=4,
        num_candidates_offered=4,
        num_candidates_ranked=4,
        ad_ids=np.array(ads, dtype="<i8").tobytes(),
        scores=np.zeros(len(ads), dtype="<f4").tobytes(),
        routes=["baseline"],
        model_versions=["m"],
        arm="",
        dose=0,
        target_window_index=None,
        optional=[],
        router="r",
        attribution_token="t",
    )


def _outcome(
    ad_id: int,
    kind: Literal["view", "click", "conversion"] = "view",
    *,
    name: str = "q1",
    exposed_ms: int = 10_100,
    after_ms: int = 10,
) -> RankingOutcome:
    return RankingOutcome(
        outcome_id=f"{name}/{ad_id}/{kind}",
        attribution_token="t",
        request_id=name,
        user_id="u1",
        cell="east",
        ad_id=ad_id,
        kind=kind,
        value=0.0,
        exposure_time_ms=exposed_ms,
        event_time_ms=exposed_ms + after_ms,
    )


def _later() -> RankingOutcome:
    """Something of another request, long after: the window of everything else has passed."""
    return _outcome(1, name="later", exposed_ms=99_000)


def test_a_viewed_ad_is_a_label_with_what_was_known_of_it_at_intake() -> None:
    join = ViewJoin(window_ms=_WINDOW_MS)
    views = join.join([_outcome(5), _outcome(9), _outcome(9, "click"), _later()], [_result()], [_request()])
    # In the order of the request; ad 7 was shown and not seen, ad 11 was not shown: no zeros.
    assert views.shown.ad_ids_N.tolist() == [5, 9]
    assert views.shown.bids_N.tolist() == [2.0, 3.0]
    np.testing.assert_allclose(views.shown.retrieval_scores_N, [0.3, 0.2], rtol=1e-6)
    assert views.clicked_N.tolist() == [False, True]
    assert views.users.features_BF.tolist() == [[1.0, 2.0]]
    assert views.users.history_ids_H.tolist() == [3, 4]
    assert dict(join.num_left_out) == {"not_offered": 0, "no_result": 1, "no_request": 0}


def test_a_view_is_pending_until_its_window_has_passed_whether_clicked_or_not() -> None:
    newest = _outcome(1, name="other", exposed_ms=11_099, after_ms=0)
    outcomes = [_outcome(5, exposed_ms=10_099), _outcome(7), _outcome(9), _outcome(9, "click"), newest]
    join = ViewJoin(window_ms=_WINDOW_MS)
    assert join.join(outcomes, [_result()], [_request()]).shown.ad_ids_N.tolist() == [5]
    assert join.num_left_out["pending"] == 2


def test_a_click_counts_within_the_window_and_tells_of_its_view() -> None:
    outcomes = [
        _outcome(5, "click", after_ms=_WINDOW_MS),
        _outcome(7, "click", after_ms=_WINDOW_MS + 1),
        _outcome(9, "conversion"),
        _later(),
    ]
    views = ViewJoin(window_ms=_WINDOW_MS).join(outcomes, [_result()], [_request()])
    assert views.shown.ad_ids_N.tolist() == [7, 5]
    assert views.clicked_N.tolist() == [False, True]


def test_repeated_records_change_nothing_and_order_does_not_matter() -> None:
    outcomes = [_outcome(5), _outcome(9), _outcome(9, "click"), _outcome(5, name="q2"), _later()]
    results = [_result(), _result("q2")]
    requests = [_request(), _request("q2", intake_ms=9_000, features=(3.0, 4.0))]
    once = ViewJoin(window_ms=_WINDOW_MS).join(outcomes, results, requests)
    again = ViewJoin(window_ms=_WINDOW_MS).join(
        [*outcomes[::-1], *outcomes], [*results[::-1], *results], [*requests[::-1], *requests]
    )
    # By time of intake.
    assert once.users.features_BF.tolist() == [[3.0, 4.0], [1.0, 2.0]]
    assert again.users.features_BF.tolist() == once.users.features_BF.tolist()
    assert again.shown.ad_ids_N.tolist() == once.shown.ad_ids_N.tolist() == [5, 5, 9]
    assert again.clicked_N.tolist() == once.clicked_N.tolist() == [False, False, True]


def test_what_cannot_be_joined_is_counted_by_reason() -> None:
    outcomes = [
        _outcome(5),
        _outcome(8),
        _outcome(11),
        _outcome(5, name="no-result"),
        _outcome(5, name="no-request"),
        _outcome(5, name="nan"),
        _later(),
    ]
    results = [_result(), _result("no-request"), _result("nan")]
    requests = [_request(), _request("nan", features=(float("nan"), 1.0))]
    join = ViewJoin(window_ms=_WINDOW_MS)
    # Ad 8 was offered by nobody, ad 11 was offered and not shown.
    assert len(join.join(outcomes, results, requests)) == 1
    assert dict(join.num_left_out) == {
        "not_shown": 2,
        "not_offered": 0,
        "not_finite": 1,
        "no_result": 2,
        "no_request": 1,
    }


def test_an_ad_that_a_request_offers_twice_is_the_first_of_the_two() -> None:
    twice = _request()
    twice = RankingRequest(
        **{name: getattr(twice, name) for name in twice.__struct_fields__}
        | {"ad_ids": np.array([5, 9, 5, 9], dtype="<i8").tobytes()}
    )
    views = ViewJoin(window_ms=_WINDOW_MS).join([_outcome(5), _later()], [_result()], [twice])
    assert views.shown.bids_N.tolist() == [1.0]


def test_memory_is_bounded_by_the_requests_that_are_held() -> None:
    join = ViewJoin(max_requests=2, window_ms=_WINDOW_MS)
    for name in ("a", "b", "a"):
        join.add_outcome(_outcome(5, name=name))
    with pytest.raises(TooManyRequestsError, match="more than 2 requests"):
        join.add_outcome(_outcome(5, name="c"))


def test_nothing_to_learn_from_is_said_with_the_reason() -> None:
    with pytest.raises(NoViewsError, match="no outcome in the range"):
        ViewJoin().join([], [_result()], [_request()])
    with pytest.raises(NoViewsError, match="1 pending"):
        ViewJoin(window_ms=_WINDOW_MS).join([_outcome(5)], [_result()], [_request()])
    outcomes = [_outcome(5), _outcome(5, name="q2"), _later()]
    with pytest.raises(NoViewsError, match="2 to 3 features"):
        ViewJoin(window_ms=_WINDOW_MS).join(
            outcomes, [_result(), _result("q2")], [_request(), _request("q2", features=(1.0, 2.0, 3.0))]
        )
    with pytest.raises(ValueError, match="max_requests"):
        ViewJoin(max_requests=0)
