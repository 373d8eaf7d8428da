"""The powerful model, request by request, equals itself pair by pair, whatever shares the batch.

Shape legend: B requests, F user features, H past ids, N candidates, D width of a token, n tokens.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from ranking.models.baseline import BaselineConfig, BaselineModel
from ranking.models.inputs import CandidateChunk, Users
from ranking.models.protocol import CandidateTensors, UserTensors
from ranking.models.scorer import Scorer
from ranking.models.wukong import WukongConfig, WukongModel

_NUM_FEATURES = 5


def _wukong() -> WukongModel:
    torch.manual_seed(3)
    config = WukongConfig(
        num_features=_NUM_FEATURES,
        bucket_bits=8,
        embedding_dim=6,
        history_width=10,
        num_interests=3,
        num_feature_tokens=2,
        num_user_layers=2,
        user_width=9,
        num_candidate_tokens=3,
        num_meeting_layers=2,
        meeting_width=8,
        rank=2,
        last_width=7,
    )
    model = WukongModel(config, "wukong-test")
    nn.init.normal_(model.history.age_bias)
    nn.init.normal_(model.history.log_null)
    return model


def _baseline() -> BaselineModel:
    torch.manual_seed(3)
    config = BaselineConfig(
        num_features=_NUM_FEATURES, bucket_bits=8, embedding_dim=6, tower_width=16, meeting_width=12, last_width=8
    )
    return BaselineModel(config, "baseline-test")


WUKONG = _wukong()
SCORERS = {model.version: Scorer(model) for model in (WUKONG, _baseline())}


def _users(rng: np.random.Generator, num_requests: int) -> Users:
    return Users.of_requests(
        list(rng.standard_normal((num_requests, _NUM_FEATURES), dtype=np.float32)),
        # Every third history is empty.
        [rng.integers(1000, size=rng.integers(1, 40) if request % 3 else 0) for request in range(num_requests)],
    )


def _chunk(rng: np.random.Generator, request_of_candidate_N: NDArray[np.int64]) -> CandidateChunk:
    num = len(request_of_candidate_N)
    return CandidateChunk(
        ad_ids_N=rng.integers(-(2**63), 2**63 - 1, size=num),
        bids_N=rng.lognormal(size=num).astype(np.float32),
        retrieval_scores_N=rng.normal(scale=3.0, size=num).astype(np.float32),
        request_of_candidate_N=request_of_candidate_N,
    )


def _rows(chunk: CandidateChunk, rows: NDArray[np.int64], request_of_candidate_N: NDArray[np.int64]) -> CandidateChunk:
    return CandidateChunk(
        ad_ids_N=chunk.ad_ids_N[rows],
        bids_N=chunk.bids_N[rows],
        retrieval_scores_N=chunk.retrieval_scores_N[rows],
        request_of_candidate_N=request_of_candidate_N,
    )


def _history(users: Users, request: int) -> NDArray[np.int64]:
    past: NDArray[np.int64] = users.history_ids_H[users.request_of_history_H == request]
    return past


@pytest.mark.parametrize("version", sorted(SCORERS))
@settings(max_examples=20, deadline=None)
@given(
    lengths_B=st.lists(st.integers(0, 20), min_size=1, max_size=8) | st.just([3] * 64),
    seed=st.integers(0, 2**32),
    mix=st.booleans(),
)
def test_scores_equal_those_of_each_pair_by_itself(version: str, lengths_B: list[int], seed: int, mix: bool) -> None:
    rng = np.random.default_rng(seed)
    scorer, users = SCORERS[version], _users(rng, len(lengths_B))
    index_N = np.repeat(np.arange(len(lengths_B)), lengths_B)
    chunk = _chunk(rng, rng.permutation(index_N) if mix else index_N)
    together_N = scorer.score_chunk(scorer.prepare(users), chunk)
    # A row per pair with the whole user in it, and a few of them scored entirely by themselves.
    owners = chunk.request_of_candidate_N
    if len(chunk):
        per_pair = Users.of_requests(
            [users.features_BF[request] for request in owners], [_history(users, request) for request in owners]
        )
        pairs_N = scorer.score_chunk(
            scorer.prepare(per_pair), _rows(chunk, np.arange(len(chunk)), np.arange(len(chunk)))
        )
        np.testing.assert_allclose(together_N, pairs_N, rtol=1e-5, atol=1e-5)
    for row in rng.choice(len(chunk), size=min(5, len(chunk)), replace=False):
        request = owners[row]
        alone = scorer.prepare(Users.of_requests([users.features_BF[request]], [_history(users, request)]))
        (score,) = scorer.score_chunk(alone, _rows(chunk, np.array([row]), np.zeros(1, dtype=np.int64)))
        np.testing.assert_allclose(together_N[row], score, rtol=1e-5, atol=1e-5)


def _layer(
    w: dict[str, NDArray[np.float64]], name: str, x_nD: NDArray[np.float64], u_mD: NDArray[np.float64]
) -> NDArray[np.float64]:
    """One Wukong layer as the paper writes it, over the rows of [X; U] with one unsplit matrix each."""
    rank = WUKONG.config.rank
    all_nD = np.concatenate((x_nD, u_mD))
    mix = w[f"{name}.mix.weight"]
    if len(u_mD):
        mix = np.concatenate((mix, w[f"{name}.context_mix.weight"]), axis=1)
    y_nk, linear_Ln = mix[:rank].T, mix[rank:]
    machine = (all_nD @ (all_nD.T @ y_nk))[: len(x_nD)].ravel()
    hidden = w[f"{name}.mlp_1.weight"] @ _norm(w, f"{name}.fm_norm", machine) + w[f"{name}.mlp_1.bias"]
    if len(u_mD):
        hidden += w[f"{name}.context_mlp.weight"] @ u_mD.ravel()
    machine = w[f"{name}.mlp_2.weight"] @ np.maximum(hidden, 0.0) + w[f"{name}.mlp_2.bias"]
    out_nD = np.concatenate((machine.reshape(-1, x_nD.shape[1]), linear_Ln @ all_nD)) + x_nD
    return np.stack([_norm(w, f"{name}.norm", row) for row in out_nD])


def _norm(w: dict[str, NDArray[np.float64]], name: str, x: NDArray[np.float64]) -> NDArray[np.float64]:
    normed: NDArray[np.float64] = (x - x.mean()) / np.sqrt(x.var() + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]
    return normed


def _bucket(ad_id: int) -> int:
    return ((ad_id * 0x9E3779B97F4A7C15) % 2**64) >> (64 - WUKONG.config.bucket_bits)


def _interests(w: dict[str, NDArray[np.float64]], past: list[int]) -> NDArray[np.float64]:
    """Attention by learned queries, one past ad after the other; the newest is the last."""
    num_interests = WUKONG.config.num_interests
    sums_QD, weights_Q = np.zeros((num_interests, WUKONG.config.embedding_dim)), np.exp(w["history.log_null"])
    for newer, ad_id in enumerate(reversed(past)):
        ad = w["ad_embedding.weight"][_bucket(ad_id)]
        hidden = np.maximum(w["history.hidden.weight"] @ ad + w["history.hidden.bias"], 0.0)
        logits_Q = w["history.key.weight"] @ hidden + w["history.age_bias"][min(10, (newer + 1).bit_length() - 1)]
        weight_Q = np.exp(8.0 * np.tanh(logits_Q / 8.0))
        value = ad + w["history.value.weight"] @ hidden + w["history.value.bias"]
        sums_QD, weights_Q = sums_QD + weight_Q[:, None] * value, weights_Q + weight_Q
    return sums_QD / weights_Q[:, None]


def _reference(users: Users, chunk: CandidateChunk) -> NDArray[np.float64]:
    """The formulas of the model for one pair after the other, in float64."""
    config = WUKONG.config
    w = {name: tensor.double().numpy() for name, tensor in WUKONG.state_dict().items()}

    def linear(name: str, x: NDArray[np.float64]) -> NDArray[np.float64]:
        y: NDArray[np.float64] = w[f"{name}.weight"] @ x + w.get(f"{name}.bias", 0.0)
        return y

    scores = []
    for row, request in enumerate(chunk.request_of_candidate_N):
        past = _history(users, request).tolist()
        features = linear("feature_tokens", np.append(users.features_BF[request], np.log1p(len(past))))
        user_nD = np.concatenate((features.reshape(-1, config.embedding_dim), _interests(w, past)))
        for layer in range(config.num_user_layers):
            user_nD = _layer(w, f"user_layers.{layer}", user_nD, user_nD[:0])
        ad = w["ad_embedding.weight"][_bucket(int(chunk.ad_ids_N[row]))]
        match = ad @ linear("user_query", user_nD.ravel())
        bid, retrieval = float(chunk.bids_N[row]), float(chunk.retrieval_scores_N[row])
        inputs = np.concatenate((ad, [np.clip(retrieval, -32, 32), np.log(max(bid, 1e-6)), match]))
        tokens_nD = linear("candidate_tokens", inputs).reshape(config.num_candidate_tokens, -1)
        for layer in range(config.num_meeting_layers):
            tokens_nD = _layer(w, f"meeting_layers.{layer}", tokens_nD, user_nD)
        last = linear("last_candidate", np.append(tokens_nD.ravel(), inputs)) + linear("last_user", user_nD.ravel())
        log_odds = linear("click_logit", np.maximum(last, 0.0))[0] + match * w["match_weight"][0]
        scores.append(bid / (1.0 + np.exp(-log_odds)))
    return np.array(scores)


@pytest.mark.parametrize("seed", range(4))
def test_the_split_layers_are_those_of_the_paper(seed: int) -> None:
    rng = np.random.default_rng(seed)
    users, chunk = _users(rng, 4), _chunk(rng, rng.permutation(np.repeat(np.arange(4), 6)))
    scorer = SCORERS[WUKONG.version]
    np.testing.assert_allclose(
        scorer.score_chunk(scorer.prepare(users), chunk), _reference(users, chunk), rtol=1e-5, atol=1e-5
    )


def test_the_users_side_runs_once_per_request_and_never_per_candidate() -> None:
    rng = np.random.default_rng(0)
    calls: list[int] = []
    layers = [WUKONG.history, WUKONG.user_query, WUKONG.last_user, *WUKONG.user_layers]
    layers += [layer.context_mlp for layer in WUKONG.meeting_layers if isinstance(layer.context_mlp, nn.Module)]
    hooks = [layer.register_forward_hook(lambda _, __, out: calls.append(_num_rows(out))) for layer in layers]
    try:
        scorer = SCORERS[WUKONG.version]
        encoded = scorer.prepare(_users(rng, 3))
        for _ in range(4):
            scorer.score_chunk(encoded, _chunk(rng, np.repeat(np.arange(3), 50)))
    finally:
        for hook in hooks:
            hook.remove()
    assert calls == [3] * len(layers)


def _num_rows(out: Tensor | tuple[Tensor, ...]) -> int:
    return len(out[0]) if isinstance(out, tuple) else len(out)


def test_what_is_remembered_of_a_user_does_not_grow_with_the_history() -> None:
    def size(length: int) -> int:
        history = np.arange(length)
        encoded = SCORERS[WUKONG.version].prepare(
            Users.of_requests([np.zeros(_NUM_FEATURES, dtype=np.float32)], [history])
        )
        return sum(tensor.numel() for tensor in encoded.tensors)

    assert size(0) == size(1) == size(500)


def test_past_clicks_count_by_what_they_are_how_many_and_how_old() -> None:
    rng = np.random.default_rng(4)
    features_F = rng.standard_normal(_NUM_FEATURES, dtype=np.float32)
    chunk = _chunk(rng, np.zeros(20, dtype=np.int64))
    scorer = SCORERS[WUKONG.version]

    def scores(*history: int) -> NDArray[np.float32]:
        users = Users.of_requests([features_F], [np.array(history, dtype=np.int64)])
        return scorer.score_chunk(scorer.prepare(users), chunk)

    for other in ((), (3,), (3, 3), (8, 3), (3, 8, 8)):
        assert not np.allclose(scores(3, 8), scores(*other), rtol=1e-3)


def test_recalibration_moves_the_log_odds_as_said() -> None:
    rng = np.random.default_rng(1)
    users, chunk = _users(rng, 2), _chunk(rng, np.repeat(np.arange(2), 20))
    scorer = SCORERS[WUKONG.version]
    before_N = scorer.score_chunk(scorer.prepare(users), chunk) / chunk.bids_N
    other = _wukong()
    other.recalibrate(0.8, -0.3)
    scorer = Scorer(other)
    after_N = scorer.score_chunk(scorer.prepare(users), chunk) / chunk.bids_N
    expected_N = 0.8 * np.log(before_N / (1 - before_N)) - 0.3
    np.testing.assert_allclose(np.log(after_N / (1 - after_N)), expected_N, rtol=1e-4, atol=1e-5)


def test_every_weight_learns() -> None:
    model, rng = _wukong(), np.random.default_rng(2)
    users, chunk = _users(rng, 6), _chunk(rng, np.repeat(np.arange(6), 10))
    encoded = model.encode_users(
        UserTensors(
            features_BF=torch.from_numpy(users.features_BF),
            history_ids_H=torch.from_numpy(users.history_ids_H),
            request_of_history_H=torch.from_numpy(users.request_of_history_H),
        )
    )
    log_odds_N = model.log_odds(
        encoded,
        CandidateTensors(
            ad_ids_N=torch.from_numpy(chunk.ad_ids_N),
            bids_N=torch.from_numpy(chunk.bids_N),
            retrieval_scores_N=torch.from_numpy(chunk.retrieval_scores_N),
            request_of_candidate_N=torch.from_numpy(chunk.request_of_candidate_N),
        ),
    )
    log_odds_N.square().sum().backward()
    for name, weights in model.named_parameters():
        assert weights.grad is not None, name
        assert weights.grad.abs().sum() > 0, name
