"""The baseline ranking model: hashed ad embeddings, a user tower, and a small network where the two meet.

Shape legend: B requests, F user features, D embedding, T tower width, M and L widths of the meeting layers,
X candidate inputs (D + 3), N candidates of all requests.
"""

from typing import Annotated

import msgspec
import torch
from torch import Tensor, nn

from ranking.models.protocol import CandidateTensors, EncodedUsers, UserTensors

_Width = Annotated[int, msgspec.Meta(ge=1, le=4096)]

# 2^64 divided by the golden ratio, as int64. Fibonacci hashing (Knuth, TAOCP 3, 6.4): neighbouring ids spread
# out.
_HASH_FACTOR = 0x9E3779B97F4A7C15 - 2**64
# Retrieval scores beyond this say no more; a wild one must not saturate the network.
_RETRIEVAL_LIMIT = 32.0
_SMALLEST_BID = 1e-6
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


def tensor_shapes(config: BaselineConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of such a model, without building it."""
    linears = {
        "tower_1": (config.tower_width, config.num_features),
        "tower_2": (config.tower_width, config.tower_width),
        "user_query": (config.embedding_dim, config.tower_width),
        "meeting_user": (config.meeting_width, config.tower_width),
        "last": (config.last_width, config.meeting_width),
        "click_logit": (1, config.last_width),
    }
    return {
        "ad_embedding.weight": (1 << config.bucket_bits, config.embedding_dim),
        "meeting_candidate.weight": (config.meeting_width, config.embedding_dim + _NUM_SCALARS),
        "match_weight": (1,),
        **{f"{name}.weight": shape for name, shape in linears.items()},
        **{f"{name}.bias": shape[:1] for name, shape in linears.items()},
    }


class BaselineModel(nn.Module):
    """p(click) * bid from user features, a hashed ad id, the bid and the retrieval score.

    The first layer over (candidate, user) is split,

        W [x; u] + b  =  W_candidate x + (W_user u + b)[request_of_candidate],

    so that the user's half is computed once per request and broadcast. The past clicks are not used: users
    enter by their features alone, as millions of ids with few clicks each would not fill a table.
    """

    def __init__(self, config: BaselineConfig, version: str) -> None:
        super().__init__()
        self.config = config
        self._weights_version = version
        dim, tower = config.embedding_dim, config.tower_width
        self.ad_embedding = nn.Embedding(1 << config.bucket_bits, dim)
        self.tower_1 = nn.Linear(config.num_features, tower)
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
        tower_BT = torch.relu(self.tower_2(torch.relu(self.tower_1(users.features_BF))))
        return EncodedUsers(
            version=self._weights_version,
            num_requests=users.features_BF.shape[0],
            tensors=(self.user_query(tower_BT), self.meeting_user(tower_BT)),
        )

    def score(self, encoded: EncodedUsers, candidates: CandidateTensors) -> Tensor:
        """Return expected value per candidate, currency: float32 [N]."""
        return torch.sigmoid(self.click_log_odds(encoded, candidates)) * candidates.bids_N

    def click_log_odds(self, encoded: EncodedUsers, candidates: CandidateTensors) -> Tensor:
        """Return the log-odds of a click per candidate: float32 [N]."""
        query_BD, user_half_BM = encoded.tensors
        index_N = candidates.request_of_candidate_N
        ad_ND = self.ad_embedding(self._buckets(candidates.ad_ids_N))
        match_N = (ad_ND * query_BD.index_select(0, index_N)).sum(dim=1)
        scalars_N3 = torch.stack(
            (
                candidates.retrieval_scores_N.clamp(-_RETRIEVAL_LIMIT, _RETRIEVAL_LIMIT),
                # Retrieval ranks by value; with the bid beside it, the network can tell what it says of the
                # click.
                candidates.bids_N.clamp(min=_SMALLEST_BID).log(),
                match_N,
            ),
            dim=1,
        )
        candidate_half_NM = self.meeting_candidate(torch.cat((ad_ND, scalars_N3), dim=1))
        hidden_NM = torch.relu(candidate_half_NM + user_half_BM.index_select(0, index_N))
        log_odds_N = self.click_logit(torch.relu(self.last(hidden_NM))).squeeze(1)
        return torch.addcmul(log_odds_N, match_N, self.match_weight)

    @torch.no_grad()
    def recalibrate(self, scale: float, offset: float) -> None:
        """Turn the log-odds z into scale * z + offset, within the last weights: free at scoring."""
        self.click_logit.weight.mul_(scale)
        self.click_logit.bias.mul_(scale).add_(offset)
        self.match_weight.mul_(scale)

    def _buckets(self, ad_ids_N: Tensor) -> Tensor:
        # The arithmetic shift of a negative hash is harmless: the mask keeps the low bits only.
        hashes_N = (ad_ids_N * _HASH_FACTOR) >> (64 - self.config.bucket_bits)
        return hashes_N & ((1 << self.config.bucket_bits) - 1)
