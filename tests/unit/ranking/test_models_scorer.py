"""The scorer returns finite scores of the right requests, or says what is wrong."""

import warnings
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from ranking.models.inputs import CandidateChunk, Users
from ranking.models.protocol import CandidateTensors, EncodedUsers, UserTensors
from ranking.models.scorer import Scorer, ScoringError


class HistoryModel:
    """The smallest model that a user could bring: it counts how often a candidate was clicked before."""

    def __init__(self, version: str = "mine-1") -> None:
        self.version = version

    def encode_users(self, users: UserTensors) -> EncodedUsers:
        tensors = (users.history_ids_H, users.request_of_history_H)
        return EncodedUsers(self.version, users.features_BF.shape[0], tensors)

    def score(self, encoded: EncodedUsers, candidates: CandidateTensors) -> Tensor:
        ids_H, request_H = encoded.tensors
        same_NH = (candidates.ad_ids_N[:, None] == ids_H) & (candidates.request_of_candidate_N[:, None] == request_H)
        return same_NH.sum(dim=1).float() * candidates.bids_N


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def _users() -> Users:
    return Users.of_requests(
        [np.zeros(2, dtype=np.float32)] * 3,
        [np.array([5, 5, 7]), np.array([], dtype=np.int64), np.array([7])],
    )


def _chunk() -> CandidateChunk:
    return CandidateChunk(
        ad_ids_N=np.array([5, 7, 5, 7, 5]),
        bids_N=np.array([1.0, 2.0, 1.0, 4.0, 1.0], dtype=np.float32),
        retrieval_scores_N=np.zeros(5, dtype=np.float32),
        request_of_candidate_N=np.array([0, 0, 1, 2, 2]),
    )


def test_a_users_own_model_sees_each_requests_history() -> None:
    scorer = Scorer(HistoryModel())
    assert scorer.version == "mine-1"
    assert scorer.score_chunk(scorer.prepare(_users()), _chunk()).tolist() == [2.0, 2.0, 0.0, 4.0, 0.0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_scores_that_are_not_finite_are_reported_and_never_returned(bad: float) -> None:
    scorer = Scorer(HistoryModel())
    bids_N = _chunk().bids_N.copy()
    bids_N[[1, 3]] = bad
    with pytest.raises(ScoringError, match="mine-1: 2 of 5 scores not finite, first: 1") as caught:
        scorer.score_chunk(scorer.prepare(_users()), replace(_chunk(), bids_N=bids_N))
    assert caught.value.positions.tolist() == [1, 3]


@pytest.mark.parametrize("request_index", [-1, 3])
def test_a_candidate_of_a_request_that_was_not_prepared_is_refused(request_index: int) -> None:
    scorer = Scorer(HistoryModel())
    index_N = np.array([0, 0, 1, 2, request_index])
    with pytest.raises(ValueError, match="request_of_candidate_N"):
        scorer.score_chunk(scorer.prepare(_users()), replace(_chunk(), request_of_candidate_N=index_N))


def test_users_encoded_by_another_version_are_refused() -> None:
    encoded = Scorer(HistoryModel("mine-0")).prepare(_users())
    with pytest.raises(ValueError, match="mine-0"):
        Scorer(HistoryModel()).score_chunk(encoded, _chunk())


def test_a_model_that_returns_another_shape_or_type_is_named() -> None:
    class Wide(HistoryModel):
        def score(self, encoded: EncodedUsers, candidates: CandidateTensors) -> Tensor:
            return super().score(encoded, candidates)[:, None]

    class Double(HistoryModel):
        def score(self, encoded: EncodedUsers, candidates: CandidateTensors) -> Tensor:
            return super().score(encoded, candidates).double()

    for model in (Wide(), Double()):
        scorer = Scorer(model)
        with pytest.raises(ValueError, match=r"mine-1: want float32 \[5\]"):
            scorer.score_chunk(scorer.prepare(_users()), _chunk())


def test_read_only_and_strided_columns_are_scored_like_any_other() -> None:
    scorer = Scorer(HistoryModel())
    chunk = _chunk()
    read_only = CandidateChunk(
        ad_ids_N=np.frombuffer(chunk.ad_ids_N.tobytes(), dtype="<i8"),
        bids_N=np.frombuffer(chunk.bids_N.tobytes(), dtype="<f4"),
        retrieval_scores_N=chunk.retrieval_scores_N[::-1],
        request_of_candidate_N=np.repeat(chunk.request_of_candidate_N, 2)[::2],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores_N = scorer.score_chunk(scorer.prepare(_users()), read_only)
    assert scores_N.tolist() == [2.0, 2.0, 0.0, 4.0, 0.0]


def test_threads_are_set_as_asked() -> None:
    Scorer(HistoryModel(), num_threads=2)
    assert torch.get_num_threads() == 2
    Scorer(HistoryModel())
    assert torch.get_num_threads() == 1


def test_bad_devices_and_thread_counts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="no CUDA device"):
        Scorer(HistoryModel(), "cuda")
    with pytest.raises(ValueError, match="unknown device 'abacus'"):
        Scorer(HistoryModel(), "abacus")
    with pytest.raises(ValueError, match="num_threads"):
        Scorer(HistoryModel(), num_threads=0)


def test_columns_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        replace(_chunk(), bids_N=np.ones(4, dtype=np.float32))
    with pytest.raises(ValueError, match="bids_N must be float32"):
        replace(_chunk(), bids_N=np.ones(5))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="features_BF"):
        Users(np.zeros(3, dtype=np.float32), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    with pytest.raises(ValueError, match="history ids"):
        replace(_users(), history_ids_H=np.array([1]))
    with pytest.raises(ValueError, match="request_of_history_H"):
        replace(_users(), request_of_history_H=np.array([0, 0, 0, 3]))
    with pytest.raises(ValueError, match="1 users, but 0 histories"):
        Users.of_requests([np.zeros(2, dtype=np.float32)], [])
