"""Request-oriented scoring equals per-pair scoring, whatever shares the batch.

Shape legend: B requests, F user features, N candidates.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ranking.models.baseline import BaselineConfig, BaselineModel
from ranking.models.inputs import CandidateChunk, Users
from ranking.models.scorer import Scorer

_NUM_FEATURES = 7


def _model() -> BaselineModel:
    torch.manual_seed(3)
    config = BaselineConfig(
        num_features=_NUM_FEATURES, bucket_bits=8, embedding_dim=6, tower_width=16, meeting_width=12, last_width=8
    )
    model = BaselineModel(config, "test-1")
    torch.nn.init.normal_(model.ad_embedding.weight, std=0.5)
    return model


MODEL = _model()
SCORER = Scorer(MODEL)


def _users(rng: np.random.Generator, num_requests: int) -> Users:
    return Users.of_requests(
        list(rng.standard_normal((num_requests, _NUM_FEATURES), dtype=np.float32)),
        [rng.integers(1000, size=rng.integers(0, 4)) for _ in range(num_requests)],
    )


def _chunk(rng: np.random.Generator, request_of_candidate_N: NDArray[np.int64]) -> CandidateChunk:
    num = len(request_of_candidate_N)
    return CandidateChunk(
        ad_ids_N=rng.integers(-(2**63), 2**63 - 1, size=num),
        bids_N=rng.lognormal(size=num).astype(np.float32),
        retrieval_scores_N=rng.normal(scale=3.0, size=num).astype(np.float32),
        request_of_candidate_N=request_of_candidate_N,
    )


def _bucket(ad_id: int) -> int:
    return ((ad_id * 0x9E3779B97F4A7C15) % 2**64) >> (64 - MODEL.config.bucket_bits)


def _per_pair(users: Users, chunk: CandidateChunk) -> NDArray[np.float64]:
    """Score each pair alone, in float64, with one unsplit layer over the concatenated candidate and user."""
    w = {name: tensor.double().numpy() for name, tensor in MODEL.state_dict().items()}
    scores = []
    for ad_id, bid, retrieval, request in zip(
        chunk.ad_ids_N.tolist(),
        chunk.bids_N.astype(np.float64),
        chunk.retrieval_scores_N.astype(np.float64),
        chunk.request_of_candidate_N,
        strict=True,
    ):
        ad = w["ad_embedding.weight"][_bucket(ad_id)]
        past = users.history_ids_H[users.request_of_history_H == request].tolist()
        pooled = (
            np.zeros_like(ad) if not past else np.mean([w["ad_embedding.weight"][_bucket(p)] for p in past], axis=0)
        )
        user = np.concatenate((users.features_BF[request], pooled, [np.log1p(len(past))]))
        for layer in ("tower_1", "tower_2"):
            user = np.maximum(w[f"{layer}.weight"] @ user + w[f"{layer}.bias"], 0.0)
        match = ad @ (w["user_query.weight"] @ user + w["user_query.bias"])
        pair = np.concatenate((ad, [np.clip(retrieval, -32, 32), np.log(max(bid, 1e-6)), match], user))
        whole_layer = np.concatenate((w["meeting_candidate.weight"], w["meeting_user.weight"]), axis=1)
        hidden = np.maximum(whole_layer @ pair + w["meeting_user.bias"], 0.0)
        hidden = np.maximum(w["last.weight"] @ hidden + w["last.bias"], 0.0)
        log_odds = w["click_logit.weight"][0] @ hidden + w["click_logit.bias"][0] + match * w["match_weight"][0]
        scores.append(bid / (1.0 + np.exp(-log_odds)))
    return np.array(scores)


@settings(max_examples=60, deadline=None)
@given(lengths_B=st.lists(st.integers(0, 40), min_size=1, max_size=6), seed=st.integers(0, 2**32), mix=st.booleans())
def test_request_oriented_scores_equal_per_pair_scores(lengths_B: list[int], seed: int, mix: bool) -> None:
    rng = np.random.default_rng(seed)
    users = _users(rng, len(lengths_B))
    index_N = np.repeat(np.arange(len(lengths_B)), lengths_B)
    chunk = _chunk(rng, rng.permutation(index_N) if mix else index_N)
    scores_N = SCORER.score_chunk(SCORER.prepare(users), chunk)
    assert scores_N.dtype == np.float32
    np.testing.assert_allclose(scores_N, _per_pair(users, chunk), rtol=1e-5, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(lengths_B=st.lists(st.integers(1, 40), min_size=2, max_size=6), seed=st.integers(0, 2**32))
def test_a_score_does_not_depend_on_batch_mates_nor_on_where_a_chunk_is_cut(lengths_B: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    users = _users(rng, len(lengths_B))
    chunk = _chunk(rng, np.repeat(np.arange(len(lengths_B)), lengths_B))
    together_N = SCORER.score_chunk(SCORER.prepare(users), chunk)
    for request in range(len(lengths_B)):
        own = np.flatnonzero(chunk.request_of_candidate_N == request)
        history_ids_H = users.history_ids_H[users.request_of_history_H == request]
        alone = SCORER.prepare(Users.of_requests([users.features_BF[request]], [history_ids_H]))
        cut = int(rng.integers(0, len(own) + 1))
        parts = [
            SCORER.score_chunk(
                alone,
                CandidateChunk(
                    ad_ids_N=chunk.ad_ids_N[rows],
                    bids_N=chunk.bids_N[rows],
                    retrieval_scores_N=chunk.retrieval_scores_N[rows],
                    request_of_candidate_N=np.zeros(len(rows), dtype=np.int64),
                ),
            )
            for rows in (own[:cut], own[cut:])
        ]
        np.testing.assert_allclose(np.concatenate(parts), together_N[own], rtol=1e-5, atol=1e-5)


def test_the_user_tower_runs_once_per_request_and_never_per_candidate() -> None:
    rng = np.random.default_rng(0)
    rows_seen: list[int] = []
    layers = (MODEL.tower_1, MODEL.tower_2, MODEL.user_query, MODEL.meeting_user)
    hooks = [layer.register_forward_pre_hook(lambda _, inputs: rows_seen.append(len(inputs[0]))) for layer in layers]
    try:
        encoded = SCORER.prepare(_users(rng, 3))
        for _ in range(4):
            SCORER.score_chunk(encoded, _chunk(rng, np.repeat(np.arange(3), 50)))
    finally:
        for hook in hooks:
            hook.remove()
    assert rows_seen == [3, 3, 3, 3]


def test_past_clicks_count_by_what_they_are_and_how_many() -> None:
    rng = np.random.default_rng(4)
    features_F = rng.standard_normal(_NUM_FEATURES, dtype=np.float32)
    chunk = _chunk(rng, np.zeros(20, dtype=np.int64))

    def scores(*history: int) -> NDArray[np.float32]:
        users = Users.of_requests([features_F], [np.array(history, dtype=np.int64)])
        return SCORER.score_chunk(SCORER.prepare(users), chunk)

    # The order of the clicks is not looked at; a click more is, even on the same ad.
    np.testing.assert_allclose(scores(3, 8, 8), scores(8, 3, 8), rtol=1e-5)
    for other in ((), (3,), (3, 3), (8,), (3, 8)):
        assert not np.allclose(scores(3, 8, 8), scores(*other), rtol=1e-3)


def test_recalibration_moves_the_log_odds_as_said() -> None:
    rng = np.random.default_rng(1)
    users, chunk = _users(rng, 2), _chunk(rng, np.repeat(np.arange(2), 20))
    before_N = SCORER.score_chunk(SCORER.prepare(users), chunk) / chunk.bids_N
    other = _model()
    other.recalibrate(0.8, -0.3)
    scorer = Scorer(other)
    after_N = scorer.score_chunk(scorer.prepare(users), chunk) / chunk.bids_N
    expected_N = 0.8 * np.log(before_N / (1 - before_N)) - 0.3
    np.testing.assert_allclose(np.log(after_N / (1 - after_N)), expected_N, rtol=1e-4, atol=1e-5)


def test_a_free_or_wild_candidate_is_still_scored() -> None:
    rng = np.random.default_rng(2)
    chunk = CandidateChunk(
        ad_ids_N=np.arange(3),
        bids_N=np.array([0.0, 1.0, 1.0], dtype=np.float32),
        retrieval_scores_N=np.array([0.0, 3e38, -np.inf], dtype=np.float32),
        request_of_candidate_N=np.zeros(3, dtype=np.int64),
    )
    scores_N = SCORER.score_chunk(SCORER.prepare(_users(rng, 1)), chunk)
    assert scores_N[0] == 0.0
    assert np.all((scores_N >= 0.0) & (scores_N <= 1.0))


@pytest.mark.parametrize("num_candidates", [0, 1])
def test_small_chunks(num_candidates: int) -> None:
    rng = np.random.default_rng(0)
    chunk = _chunk(rng, np.zeros(num_candidates, dtype=np.int64))
    assert SCORER.score_chunk(SCORER.prepare(_users(rng, 1)), chunk).shape == (num_candidates,)
