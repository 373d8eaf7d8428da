"""The powerful model: a Wukong stack over the user, and a lean one where each candidate meets it.

    user, once per request        history ── interests ─┐
                                  features ── tokens ───┴─ Wukong layers ── user tokens U, query, halves of all below
    candidate, each               ad embedding, scalars, match ── tokens ── Wukong layers over [X; U] ── click

Where the work is: a user's history and tokens take a hundred times the multiplications of a candidate, so the strong
part costs a request of 512 candidates about as much as the candidates do. Candidates keep what only they can tell:
which ad, and how it interacts with every user token, by the factorisation machine of each meeting layer.

Shape legend: B requests, F user features, H past ad ids of all users, D width of a token and of the embedding,
Q interests, n tokens, X candidate inputs (D + 3), L width of the last layer, N candidates of all requests.
"""

from typing import Annotated

import msgspec
import torch
from torch import Tensor, nn

from ranking.models.columns import buckets, scalars
from ranking.models.cost import ModelCost
from ranking.models.history import HistoryEncoder
from ranking.models.protocol import CandidateTensors, EncodedUsers, UserTensors
from ranking.models.wukong_layer import LayerContext, WukongLayer

_Width = Annotated[int, msgspec.Meta(ge=1, le=4096)]
_Tokens = Annotated[int, msgspec.Meta(ge=2, le=256)]
_Layers = Annotated[int, msgspec.Meta(ge=1, le=16)]

# Beside their features, users enter by how many past clicks there are.
_NUM_USER_SCALARS = 1
# Beside the embedding, a candidate enters by its retrieval score, its bid and its match with the user.
_NUM_SCALARS = 3
# Where a cost is expected, not measured: past ads of a user; work units of the user's many small operations, whatever
# their size; and multiplications in the time of a work unit. The last two are rough, from measurements on one core.
_TYPICAL_HISTORY = 200
_OPERATIONS_UNITS = 300.0
_PRODUCTS_PER_UNIT = 8_000.0


class WukongConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Shape of a powerful model; the bounds keep a hostile config from asking for memory."""

    num_features: _Width
    bucket_bits: Annotated[int, msgspec.Meta(ge=1, le=26)] = 13
    embedding_dim: Annotated[int, msgspec.Meta(ge=2, le=512)] = 32
    history_width: _Width = 64
    num_interests: Annotated[int, msgspec.Meta(ge=1, le=256)] = 8
    num_feature_tokens: Annotated[int, msgspec.Meta(ge=1, le=256)] = 8
    num_user_layers: _Layers = 2
    user_width: _Width = 256
    num_candidate_tokens: _Tokens = 4
    num_meeting_layers: _Layers = 1
    meeting_width: _Width = 64
    rank: Annotated[int, msgspec.Meta(ge=1, le=64)] = 8
    last_width: _Width = 64


class WukongModel(nn.Module):
    """p(click) * bid from user features, past clicks, a hashed ad id, the bid and the retrieval score."""

    architecture = "wukong"

    def __init__(self, config: WukongConfig, version: str) -> None:
        super().__init__()
        self.config = config
        self._weights_version = version
        dim = config.embedding_dim
        num_user_tokens = config.num_feature_tokens + config.num_interests
        self.ad_embedding = nn.Embedding(1 << config.bucket_bits, dim)
        self.history = HistoryEncoder(embedding_dim=dim, width=config.history_width, num_interests=config.num_interests)
        self.feature_tokens = nn.Linear(config.num_features + _NUM_USER_SCALARS, config.num_feature_tokens * dim)
        self.user_layers = nn.ModuleList(
            WukongLayer(num_tokens=num_user_tokens, dim=dim, rank=config.rank, width=config.user_width)
            for _ in range(config.num_user_layers)
        )
        self.user_query = nn.Linear(num_user_tokens * dim, dim)
        self.candidate_tokens = nn.Linear(dim + _NUM_SCALARS, config.num_candidate_tokens * dim)
        self.meeting_layers = nn.ModuleList(
            WukongLayer(
                num_tokens=config.num_candidate_tokens,
                dim=dim,
                rank=config.rank,
                width=config.meeting_width,
                num_context_tokens=num_user_tokens,
            )
            for _ in range(config.num_meeting_layers)
        )
        self.last_user = nn.Linear(num_user_tokens * dim, config.last_width)
        last_inputs = config.num_candidate_tokens * dim + dim + _NUM_SCALARS
        self.last_candidate = nn.Linear(last_inputs, config.last_width, bias=False)
        self.click_logit = nn.Linear(config.last_width, 1)
        self.match_weight = nn.Parameter(torch.ones(1))

    @property
    def version(self) -> str:
        """Name of these weights."""
        return self._weights_version

    def encode_users(self, users: UserTensors) -> EncodedUsers:
        """Compute each user's query [B, D], half of the last layer [B, L], and context of each meeting layer."""
        config = self.config
        num_requests = users.features_BF.shape[0]
        past_HD = self.ad_embedding(buckets(users.history_ids_H, config.bucket_bits))
        interests_BQD, log_length_B1 = self.history(past_HD, users.request_of_history_H, num_requests)
        features_BnD = self.feature_tokens(torch.cat((users.features_BF, log_length_B1), dim=1)).unflatten(
            1, (config.num_feature_tokens, config.embedding_dim)
        )
        tokens_BnD = torch.cat((features_BnD, interests_BQD), dim=1)
        for layer in self.user_layers:
            tokens_BnD = layer(tokens_BnD)
        flat_BX = tokens_BnD.flatten(1)
        contexts = [part for layer in self._meetings() for part in layer.context(tokens_BnD)]
        return EncodedUsers(
            version=self._weights_version,
            num_requests=num_requests,
            tensors=(self.user_query(flat_BX), self.last_user(flat_BX), *contexts),
        )

    def score(self, encoded: EncodedUsers, candidates: CandidateTensors) -> Tensor:
        """Return expected value per candidate, currency: float32 [N]."""
        return torch.sigmoid(self.log_odds(encoded, candidates)) * candidates.bids_N

    def log_odds(self, encoded: EncodedUsers, candidates: CandidateTensors) -> Tensor:
        """Return the log-odds of a click per candidate: float32 [N]."""
        of_users = encoded.tensors
        # The user of a single request is broadcast as it is; only users of several are laid out by candidate.
        if encoded.num_requests != 1:
            index_N = candidates.request_of_candidate_N
            of_users = tuple(tensor.index_select(0, index_N) for tensor in of_users)
        query, last_user, *contexts = of_users
        ad_ND = self.ad_embedding(buckets(candidates.ad_ids_N, self.config.bucket_bits))
        match_N = (ad_ND * query).sum(dim=1)
        inputs_NX = torch.cat(
            (ad_ND, *scalars(candidates.retrieval_scores_N, candidates.bids_N), match_N.unsqueeze(1)), dim=1
        )
        tokens_NnD = self.candidate_tokens(inputs_NX).unflatten(1, (self.config.num_candidate_tokens, -1))
        for layer, mixed, hidden in zip(self._meetings(), contexts[::2], contexts[1::2], strict=True):
            tokens_NnD = layer(tokens_NnD, LayerContext(mixed, hidden))
        last_NL = self.last_candidate(torch.cat((tokens_NnD.flatten(1), inputs_NX), dim=1)).add_(last_user).relu_()
        return torch.addcmul(self.click_logit(last_NL).squeeze(1), match_N, self.match_weight)

    @torch.no_grad()
    def recalibrate(self, scale: float, offset: float) -> None:
        """Turn the log-odds z into scale * z + offset, within the last weights: free at scoring."""
        self.click_logit.weight.mul_(scale)
        self.click_logit.bias.mul_(scale).add_(offset)
        self.match_weight.mul_(scale)

    def _meetings(self) -> list[WukongLayer]:
        return [layer for layer in self.meeting_layers if isinstance(layer, WukongLayer)]


def expected_cost(config: WukongConfig) -> ModelCost:
    """What such a model should cost beside the baseline model, with a history of 200 ads; roughly."""
    dim, rank, num_candidate = config.embedding_dim, config.rank, config.num_candidate_tokens
    num_user = config.num_feature_tokens + config.num_interests
    per_ad = config.history_width * (2 * dim + config.num_interests) + config.num_interests * dim
    user_layer = num_user * dim * 2 * rank + config.user_width * num_user * (rank + dim // 2)
    context = num_user * dim * (rank + config.meeting_width)
    request = _TYPICAL_HISTORY * per_ad + config.num_user_layers * user_layer + config.num_meeting_layers * context
    meeting_layer = num_candidate * dim * 2 * rank + config.meeting_width * num_candidate * (rank + dim // 2)
    candidate = (
        (dim + _NUM_SCALARS) * num_candidate * dim
        + config.num_meeting_layers * meeting_layer
        + config.last_width * ((num_candidate + 1) * dim + _NUM_SCALARS)
    )
    return ModelCost(
        round(_OPERATIONS_UNITS + request / _PRODUCTS_PER_UNIT, 1), round(candidate / _PRODUCTS_PER_UNIT, 3)
    )
