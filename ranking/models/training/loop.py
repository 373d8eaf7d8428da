"""The training loop, one for every architecture: clicks in, calibrated log-odds out.

Shape legend: B requests, N views.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ranking.models.protocol import CandidateTensors, EncodedUsers, UserTensors
from ranking.models.training.quality import PredictionQuality, platt_scaling, prediction_quality
from ranking.models.training.views import LabelledViews

# Requests scored at once where nothing is learned: bounds the memory of a pass.
_REQUESTS_PER_PASS = 512


class TrainableModel(Protocol):
    """What training asks of a model: these three of the model's own, and the rest, which every `nn.Module` has."""

    def encode_users(self, users: UserTensors) -> EncodedUsers:
        """Compute what depends on the user alone, once per request."""

    def log_odds(self, encoded: EncodedUsers, candidates: CandidateTensors) -> Tensor:
        """Return the log-odds of a click per candidate: float32 [N]."""

    def recalibrate(self, scale: float, offset: float) -> None:
        """Turn the log-odds z into scale * z + offset."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """All that is learned."""

    def modules(self) -> Iterator[nn.Module]:
        """All parts."""

    def state_dict(self) -> dict[str, Any]:
        """Tensors by name."""

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Take tensors by name."""

    def train(self) -> Any:
        """Be about to learn."""

    def eval(self) -> Any:
        """Be about to score."""


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How to train. Raises: ValueError on what cannot train.

    `embedding_penalty` is on the squared norm of each embedding table: it keeps an ad with few clicks near the average
    ad. Of the views that were not clicked a step learns from a share alone, `unclicked_share`, drawn anew each epoch:
    where clicks are rare the others teach little and cost nearly all the time.
    """

    seed: int = 1
    max_epochs: int = 5
    requests_per_step: int = 128
    learning_rate: float = 4e-3
    embedding_penalty: float = 2e-5
    unclicked_share: float = 0.2

    def __post_init__(self) -> None:
        if self.max_epochs < 1 or self.requests_per_step < 1:
            raise ValueError("max_epochs and requests_per_step must be at least 1")
        if not self.learning_rate > 0.0 or not self.embedding_penalty >= 0.0:
            raise ValueError("learning_rate must be positive and embedding_penalty not negative")
        if not 0.0 < self.unclicked_share <= 1.0:
            raise ValueError(f"unclicked_share must be in (0, 1], got {self.unclicked_share}")


class Observer(Protocol):
    """Who watches a training run."""

    def stepped(self, epoch: int, step: int, num_steps: int) -> None:
        """Say that `step` of `num_steps` steps of an epoch are done, both from 1."""

    def judged(self, epoch: int, quality: PredictionQuality) -> None:
        """Say how good the model is on the validation views after an epoch, from 1."""


def train(
    model: TrainableModel,
    training: LabelledViews,
    validation: LabelledViews,
    *,
    settings: TrainingSettings,
    observer: Observer,
) -> None:
    """Train until the validation loss rises; leaves the model with its best weights, calibrated.

    1. Adam on the log loss of clicks, its rate falling linearly over the epochs. Among the views that a step learns
       from, a share w of the unclicked and all clicked, log-odds are higher by -log w than among all (He et al.,
       "Practical Lessons from Predicting Clicks on Ads at Facebook", 2014, 6.3): that is added to what the model
       says, so that it learns the log-odds among all.
    2. Stop at the first epoch that is no better on the validation views, and go back to the best weights.
    3. Recalibrate on the validation views (Platt scaling): answers of different models are merged by value.

    It runs on one thread, so that the same model, views and settings give the same weights. Raises: ValueError where
    the validation views hold no click, or nothing else, and where the loss is not finite.
    """
    with _one_thread():
        rng = np.random.default_rng(settings.seed)
        optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
        best_loss, best_weights = np.inf, _copy(model)
        for epoch in range(settings.max_epochs):
            for group in optimizer.param_groups:
                group["lr"] = settings.learning_rate * (1.0 - epoch / settings.max_epochs)
            model.train()
            for step, num_steps in _steps(model, optimizer, training, settings, rng):  # 1
                observer.stepped(epoch + 1, step, num_steps)
            model.eval()
            quality = prediction_quality(click_probabilities(model, validation), validation.clicked_N)
            if not math.isfinite(quality.log_loss):
                raise ValueError("the validation loss is not finite: the learning rate is too high")
            observer.judged(epoch + 1, quality)
            if quality.log_loss >= best_loss:  # 2
                break
            best_loss, best_weights = quality.log_loss, _copy(model)
        model.load_state_dict(best_weights)
        model.recalibrate(*platt_scaling(_log_odds_of_all(model, validation), validation.clicked_N))  # 3


def click_probabilities(model: TrainableModel, views: LabelledViews) -> NDArray[np.float64]:
    """Return the predicted probability of a click on each view: float64 [N]."""
    return 1.0 / (1.0 + np.exp(-_log_odds_of_all(model, views)))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sums of several threads depend on how many there are."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


def _steps(
    model: TrainableModel,
    optimizer: torch.optim.Optimizer,
    training: LabelledViews,
    settings: TrainingSettings,
    rng: np.random.Generator,
) -> Iterator[tuple[int, int]]:
    """Take the steps of an epoch; yields how many are done, and of how many."""
    tables = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
    order_B = rng.permutation(training.num_requests)
    num_steps = -(-len(order_B) // settings.requests_per_step)
    for step, requests_B in enumerate(np.array_split(order_B, num_steps), start=1):
        batch = _learned_from(training.take(requests_B), settings.unclicked_share, rng)
        loss = nn.functional.binary_cross_entropy_with_logits(
            _log_odds(model, batch) - math.log(settings.unclicked_share),
            torch.from_numpy(batch.clicked_N.astype(np.float32)),
        )
        for table in tables:
            loss = loss + settings.embedding_penalty * table.square().sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        yield step, num_steps


def _copy(model: TrainableModel) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def _learned_from(batch: LabelledViews, unclicked_share: float, rng: np.random.Generator) -> LabelledViews:
    """All that was clicked, and a share of the rest. A batch without any view left keeps all."""
    kept_N = batch.clicked_N | (rng.random(len(batch)) < unclicked_share)
    return batch.only(kept_N) if kept_N.any() else batch


def _log_odds_of_all(model: TrainableModel, views: LabelledViews) -> NDArray[np.float64]:
    with torch.inference_mode():
        parts = np.split(
            np.arange(views.num_requests), range(_REQUESTS_PER_PASS, views.num_requests, _REQUESTS_PER_PASS)
        )
        return np.concatenate([_log_odds(model, views.take(part)).numpy() for part in parts]).astype(np.float64)


def _log_odds(model: TrainableModel, views: LabelledViews) -> Tensor:
    users, shown = views.users, views.shown
    encoded = model.encode_users(
        UserTensors(
            features_BF=torch.from_numpy(users.features_BF),
            history_ids_H=torch.from_numpy(users.history_ids_H),
            request_of_history_H=torch.from_numpy(users.request_of_history_H),
        )
    )
    return model.log_odds(
        encoded,
        CandidateTensors(
            ad_ids_N=torch.from_numpy(shown.ad_ids_N),
            bids_N=torch.from_numpy(shown.bids_N),
            retrieval_scores_N=torch.from_numpy(shown.retrieval_scores_N),
            request_of_candidate_N=torch.from_numpy(shown.request_of_candidate_N),
        ),
    )
