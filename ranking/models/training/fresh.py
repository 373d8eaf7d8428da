"""Models that have learned nothing yet, of the sizes that are trained by default, and how those are trained."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
import torch
from torch import nn

from ranking.models.architectures import BundledModel
from ranking.models.baseline import BaselineConfig, BaselineModel
from ranking.models.training.loop import TrainableModel, TrainingSettings
from ranking.models.wukong import WukongConfig, WukongModel

# Small first embeddings: an ad never seen stays near the average ad.
_EMBEDDING_DEVIATION = 0.05


class NewModel(BundledModel, TrainableModel, Protocol):
    """A model that can be trained and written as a bundle."""


@dataclass(frozen=True)
class _Recipe:
    build: Callable[[int, str], NewModel]
    settings: TrainingSettings


def _baseline(num_features: int, version: str) -> NewModel:
    config = BaselineConfig(
        num_features=num_features,
        bucket_bits=13,
        embedding_dim=12,
        tower_width=256,
        meeting_width=64,
        last_width=32,
    )
    return BaselineModel(config, version)


def _wukong(num_features: int, version: str) -> NewModel:
    return WukongModel(WukongConfig(num_features=num_features), version)


_RECIPES: Final = {
    BaselineModel.architecture: _Recipe(_baseline, TrainingSettings(learning_rate=4e-3)),
    WukongModel.architecture: _Recipe(_wukong, TrainingSettings(learning_rate=3e-3, requests_per_step=256)),
}
ARCHITECTURES: Final = tuple(_RECIPES)


def fresh_model(architecture: str, *, num_features: int, click_share: float, version: str, seed: int) -> NewModel:
    """Build a model whose first weights are drawn by `seed` and whose first belief is the share of clicks."""
    torch.manual_seed(seed)
    model = _RECIPES[architecture].build(num_features, version)
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=_EMBEDDING_DEVIATION)
    model.recalibrate(1.0, float(np.log(click_share / (1.0 - click_share))))
    return model


def default_settings(architecture: str, *, seed: int) -> TrainingSettings:
    """How a model of that architecture is trained unless something else is asked for."""
    return replace(_RECIPES[architecture].settings, seed=seed)
