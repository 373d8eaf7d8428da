"""A ranking model of your own: this one file, and an entry point that names it.

    [project.entry-points."intertidal.models"]
    taste = "own_model:ARCHITECTURE"

A model has a version, encodes the users of several requests once, and scores their candidates against that. Candidates
and histories of all requests stand one after the other, each with the row of its request: never padded.

Shape legend: B requests, F user features, H past ad ids of all users, D taste, N candidates of all requests.
"""

from typing import Annotated

import msgspec
import torch
from torch import Tensor, nn

from ranking.models.architectures import Architecture
from ranking.models.cost import ModelCost
from ranking.models.protocol import CandidateTensors, EncodedUsers, UserTensors


class TasteConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every field has bounds: a config is read before it is believed."""

    num_features: Annotated[int, msgspec.Meta(ge=1, le=4096)]
    num_ads: Annotated[int, msgspec.Meta(ge=1, le=1 << 26)]
    taste_dim: Annotated[int, msgspec.Meta(ge=1, le=256)]


class TasteModel(nn.Module):
    """A user's taste, from features and the last clicks, times the ad's: p(click) * bid."""

    architecture = "taste"

    def __init__(self, config: TasteConfig, version: str) -> None:
        super().__init__()
        self.config = config
        self.version = version
        self.ads = nn.Embedding(config.num_ads, config.taste_dim)
        self.taste = nn.Linear(config.num_features, config.taste_dim)
        self.retrieval_weight = nn.Parameter(torch.ones(1))
        self.log_odds_bias = nn.Parameter(torch.full((1,), -3.0))

    def encode_users(self, users: UserTensors) -> EncodedUsers:
        """Once per request: what a candidate needs of the user. Give as many tensors as you like."""
        taste_BD = self.taste(users.features_BF)
        past_HD = self.ads(users.history_ids_H.remainder(self.config.num_ads))
        clicks_B1 = torch.bincount(users.request_of_history_H, minlength=len(taste_BD)).clamp(min=1)[:, None]
        summed_BD = torch.zeros_like(taste_BD).index_add(0, users.request_of_history_H, past_HD)
        return EncodedUsers(self.version, len(taste_BD), (taste_BD + summed_BD / clicks_B1,))

    def score(self, encoded: EncodedUsers, candidates: CandidateTensors) -> Tensor:
        """For every candidate: its expected value in currency, calibrated, float32 [N]."""
        (taste_BD,) = encoded.tensors
        taste_ND = taste_BD.index_select(0, candidates.request_of_candidate_N)
        ads_ND = self.ads(candidates.ad_ids_N.remainder(self.config.num_ads))
        log_odds_N = (taste_ND * ads_ND).sum(dim=1) + self.retrieval_weight * candidates.retrieval_scores_N
        return torch.sigmoid(log_odds_N + self.log_odds_bias) * candidates.bids_N


def expected_cost(config: TasteConfig) -> ModelCost:
    """In work units, one of which is a candidate scored by the baseline model; `intertidal model bench` measures it."""
    return ModelCost(request_units=50.0, candidate_units=0.5 + config.taste_dim / 64)


ARCHITECTURE = Architecture(config_type=TasteConfig, build=TasteModel, cost=expected_cost)
