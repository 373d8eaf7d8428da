"""What a ranking model is: the one protocol that our models and a user's own PyTorch model satisfy.

Shape legend: B requests (one user each), F user features, H past ad ids of all users together, N candidates
of all requests together. Candidates and histories are ragged: concatenated with an index, never padded.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class UserTensors:
    """The users of B requests, on the model's device.

    features_BF float32; history_ids_H int64, past ad ids, oldest first, possibly none;
    request_of_history_H int64, the request that each belongs to, ascending.
    """

    features_BF: Tensor
    history_ids_H: Tensor
    request_of_history_H: Tensor


@dataclass(frozen=True)
class CandidateTensors:
    """Candidates of several requests, on the model's device.

    ad_ids_N int64; bids_N float32, value per click in currency; retrieval_scores_N float32;
    request_of_candidate_N int64, rows of the users that were encoded.
    """

    ad_ids_N: Tensor
    bids_N: Tensor
    retrieval_scores_N: Tensor
    request_of_candidate_N: Tensor


@dataclass(frozen=True)
class EncodedUsers:
    """What a model computed once per request; `tensors` is the affair of the model named by `version`."""

    version: str
    num_requests: int
    tensors: tuple[Tensor, ...]


class RankingModel(Protocol):
    """A model that scores candidates request by request.

    A candidate's score must not depend on what else is in the chunk: replicas batch and split work as time
    allows.
    """

    @property
    def version(self) -> str:
        """Name of these weights; estimates and curves belong to it."""

    def encode_users(self, users: UserTensors) -> EncodedUsers:
        """Compute what depends on the user alone, once per request."""

    def score(self, encoded: EncodedUsers, candidates: CandidateTensors) -> Tensor:
        """Return each candidate's calibrated expected value, p(click) * bid, currency: float32 [N]."""
