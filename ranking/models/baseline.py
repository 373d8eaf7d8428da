"""The baseline ranking model: hashed ad embeddings, a user tower, and a small network where the two meet.

Shape legend: B requests, F user features, H past ad ids of all users, D embedding, U user inputs (F + D + 1), T tower
width, M and L widths of the meeting layers, X candidate inputs (D + 3), N candidates of all requests.
"""

from typing import Annotated

import msgspec
import torch
from torch import Tensor, nn

from ranking.models.columns import buckets, scalars
from ranking.models.protocol import CandidateTensors, EncodedUsers, UserTensors

_Width = Annotated[int, msgspec.Meta(ge=1, le=4096)]

# Beside their features and their pooled past clicks, users enter by how many past clicks there are.
_NUM_USER_SCALARS = 1
# Beside the embedding, a candidate enters by its retrieval score, its bid and its match with the user.
_NUM_SCALARS = 3


class BaselineConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Shape of a baseline model; the bounds keep a hostile config from asking for memory."""

    num_features: _Width
    bucket_bits: Annotated[int, msgspec.Meta(ge=1, le=26)]
    embedding_dim: Annotated[int, msgspec.Meta(ge=1, le=512)]
    tower_width: _Width
    meeting_width: _Width
    last_width: _Width


class BaselineModel(nn.Module):
    """p(click) * bid from user features, past clicks, a hashed ad id, the bid and the retrieval score.

    A user's past clicks enter as the mean of their ads' embeddings, from the same table as the candidates', beside
    their logarithmic number; a user without any has the zero vector. With the features they go through a tower of two
    layers. All of it is computed once per request.

    The first layer over (candidate, user) is split,

        W [x; u] + b  =  W_candidate x + (W_user u + b)[request_of_candidate],

    so that the user's half is computed once per request and broadcast.
    """

    architecture = "baseline"

    def __init__(self, config: BaselineConfig, version: str) -> None:
        super().__init__()
        self.config = config
        self._weights_version = version
        dim, tower = config.embedding_dim, config.tower_width
        self.ad_embedding = nn.Embedding(1 << config.bucket_bits, dim)
        self.tower_1 = nn.Linear(config.num_features + dim + _NUM_USER_SCALARS, tower)
        self.tower_2 = nn.Linear(tower, tower)
        self.user_query = nn.Linear(tower, dim)
        self.meeting_user = nn.Linear(tower, config.meeting_width)
        self.meeting_candidate = nn.Linear(dim + _NUM_SCALARS, config.meeting_width, bias=False)
        self.last = nn.Linear(config.meeting_width, config.last_width)
        self.click_logit = nn.Linear(config.last_width, 1)
        self.match_weight = nn.Parameter(torch.ones(1))

    @property
    def version(self) -> str:
        """Name of these weights."""
        return self._weights_version

    def encode_users(self, users: UserTensors) -> EncodedUsers:
        """Compute each user's query [B, D] and half of the meeting layer [B, M]."""
        inputs_BU = torch.cat((users.features_BF, self._pooled_history(users)), dim=1)
        tower_BT = torch.relu(self.tower_2(torch.relu(self.tower_1(inputs_BU))))
        return EncodedUsers(
            version=self._weights_version,
            num_requests=users.features_BF.shape[0],
            tensors=(self.user_query(tower_BT), self.meeting_user(tower_BT)),
        )

    def score(self, encoded: EncodedUsers, candidates: CandidateTensors) -> Tensor:
        """Return expected value per candidate, currency: float32 [N]."""
        return torch.sigmoid(self.log_odds(encoded, candidates)) * candidates.bids_N

    def log_odds(self, encoded: EncodedUsers, candidates: CandidateTensors) -> Tensor:
        """Return the log-odds of a click per candidate: float32 [N]."""
        query, user_half = encoded.tensors
        # The user of a single request is broadcast as it is; only users of several are laid out by candidate.
        if encoded.num_requests != 1:
            index_N = candidates.request_of_candidate_N
            query, user_half = query.index_select(0, index_N), user_half.index_select(0, index_N)
        ad_ND = self.ad_embedding(buckets(candidates.ad_ids_N, self.config.bucket_bits))
        match_N = (ad_ND * query).sum(dim=1)
        inputs_NX = torch.cat(
            (ad_ND, *scalars(candidates.retrieval_scores_N, candidates.bids_N), match_N.unsqueeze(1)), dim=1
        )
        # In place: nobody needs what these layers are before.
        hidden_NM = self.meeting_candidate(inputs_NX).add_(user_half).relu_()
        log_odds_N = self.click_logit(self.last(hidden_NM).relu_()).squeeze(1)
        return torch.addcmul(log_odds_N, match_N, self.match_weight)

    @torch.no_grad()
    def recalibrate(self, scale: float, offset: float) -> None:
        """Turn the log-odds z into scale * z + offset, within the last weights: free at scoring."""
        self.click_logit.weight.mul_(scale)
        self.click_logit.bias.mul_(scale).add_(offset)
        self.match_weight.mul_(scale)

    def _pooled_history(self, users: UserTensors) -> Tensor:
        """The mean embedding of each user's past clicks and log(1 + their number): float32 [B, D + 1]."""
        index_H = users.request_of_history_H
        past_HD = self.ad_embedding(buckets(users.history_ids_H, self.config.bucket_bits))
        lengths_B = past_HD.new_zeros(users.features_BF.shape[0]).index_add_(0, index_H, past_HD.new_ones(len(index_H)))
        sums_BD = past_HD.new_zeros((len(lengths_B), past_HD.shape[1])).index_add(0, index_H, past_HD)
        return torch.cat((sums_BD / lengths_B.clamp(min=1.0)[:, None], lengths_B.log1p()[:, None]), dim=1)
