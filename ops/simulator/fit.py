"""Train the baseline model on a world's impressions: python -m ops.simulator.fit --out DIR --seed N.

Shape legend: B requests, N impressions.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ops.simulator.impressions import Impressions, draw_impressions
from ops.simulator.quality import (
    PredictionQuality,
    mean_interval,
    platt_scaling,
    prediction_quality,
    width_values,
)
from ops.simulator.world import World, WorldConfig
from ranking.models.baseline import BaselineConfig, BaselineModel
from ranking.models.load import BASELINE_WORLD_BUNDLE, save_baseline
from ranking.models.protocol import CandidateTensors, UserTensors
from ranking.models.scorer import Scorer

# Rises with whatever changes the weights: what was learned about a version does not hold for another one.
_REVISION = 2
_NUM_TRAINING_REQUESTS = 40_000
_NUM_HELD_OUT_REQUESTS = 4_000
_REQUESTS_PER_STEP = 128
_MAX_EPOCHS = 5
_LEARNING_RATE = 4e-3
# On the squared norm of the embeddings: an ad with few clicks is kept near the average ad.
_EMBEDDING_PENALTY = 2e-5
_WIDTHS = (64, 128, 256, 512)


def fit(world: World, seed: int) -> tuple[BaselineModel, PredictionQuality]:
    """Train until the validation loss rises; return the best model and its quality on unseen impressions.

    1. Adam on the log loss of clicks, its rate falling linearly over the epochs.
    2. Stop at the first epoch that is no better on the validation impressions, and go back to the best weights.
    3. Recalibrate on the validation impressions: answers of different models are merged by value.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    training = draw_impressions(world, rng, num_requests=_NUM_TRAINING_REQUESTS)
    validation = draw_impressions(world, rng, num_requests=_NUM_HELD_OUT_REQUESTS)
    test = draw_impressions(world, rng, num_requests=_NUM_HELD_OUT_REQUESTS)
    model = _new_model(world, f"baseline-world-{_REVISION}.{seed}")
    optimizer = torch.optim.Adam(model.parameters(), lr=_LEARNING_RATE)
    best_loss, best_weights = np.inf, model.state_dict()
    for epoch in range(_MAX_EPOCHS):
        for group in optimizer.param_groups:
            group["lr"] = _LEARNING_RATE * (1.0 - epoch / _MAX_EPOCHS)
        _train_epoch(model, optimizer, training, rng)
        quality = prediction_quality(_probabilities(model, validation), validation.clicked_N)
        print(f"epoch {epoch + 1}: validation log loss {quality.log_loss:.5f}", flush=True)
        if quality.log_loss >= best_loss:
            break
        best_loss = quality.log_loss
        best_weights = {name: weights.clone() for name, weights in model.state_dict().items()}
    model.load_state_dict(best_weights)
    model.recalibrate(*platt_scaling(_log_odds_of_all(model, validation), validation.clicked_N))
    return model, prediction_quality(_probabilities(model, test), test.clicked_N)


def main() -> None:
    """Train the baseline model on impressions of the built-in world, write its bundle, print its quality."""
    parser = argparse.ArgumentParser(prog="python -m ops.simulator.fit", description=main.__doc__)
    parser.add_argument("--out", type=Path, default=BASELINE_WORLD_BUNDLE, help="folder of the bundle")
    parser.add_argument("--seed", type=int, default=1, help="seed of the impressions and of the first weights")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    world = World(WorldConfig())
    model, quality = fit(world, arguments.seed)
    save_baseline(model, arguments.out)
    print(
        f"held out: log loss {quality.log_loss:.5f} (constant {quality.constant_log_loss:.5f}), "
        f"AUC {quality.auc:.4f}, predicted over observed clicks {quality.calibration:.4f}"
    )
    _print_widths(world, Scorer(model), np.random.default_rng(arguments.seed + 1))
    print(f"written: {arguments.out}, version {model.version}")


def _new_model(world: World, version: str) -> BaselineModel:
    config = BaselineConfig(
        num_features=world.config.num_features,
        bucket_bits=13,
        embedding_dim=12,
        tower_width=256,
        meeting_width=64,
        last_width=32,
    )
    model = BaselineModel(config, version)
    # Small first embeddings: an ad never seen stays near the average ad.
    torch.nn.init.normal_(model.ad_embedding.weight, std=0.05)
    torch.nn.init.constant_(model.click_logit.bias, -2.0)
    return model


def _train_epoch(
    model: BaselineModel, optimizer: torch.optim.Optimizer, data: Impressions, rng: np.random.Generator
) -> None:
    order_B = rng.permutation(data.num_requests)
    for start in range(0, len(order_B), _REQUESTS_PER_STEP):
        batch = data.take(order_B[start : start + _REQUESTS_PER_STEP])
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            _log_odds(model, batch), torch.from_numpy(batch.clicked_N.astype(np.float32))
        )
        loss = loss + _EMBEDDING_PENALTY * model.ad_embedding.weight.square().sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def _probabilities(model: BaselineModel, data: Impressions) -> NDArray[np.float64]:
    return 1.0 / (1.0 + np.exp(-_log_odds_of_all(model, data)))


def _log_odds_of_all(model: BaselineModel, data: Impressions) -> NDArray[np.float64]:
    with torch.inference_mode():
        requests = np.array_split(np.arange(data.num_requests), 50)
        return np.concatenate([_log_odds(model, data.take(part)).numpy() for part in requests]).astype(np.float64)


def _log_odds(model: BaselineModel, data: Impressions) -> Tensor:
    chunk = data.candidates()
    encoded = model.encode_users(
        UserTensors(
            features_BF=torch.from_numpy(data.users.features_BF),
            history_ids_H=torch.from_numpy(data.users.history_ids_H),
            request_of_history_H=torch.from_numpy(data.users.request_of_history_H),
        )
    )
    return model.click_log_odds(
        encoded,
        CandidateTensors(
            ad_ids_N=torch.from_numpy(chunk.ad_ids_N),
            bids_N=torch.from_numpy(chunk.bids_N),
            retrieval_scores_N=torch.from_numpy(chunk.retrieval_scores_N),
            request_of_candidate_N=torch.from_numpy(chunk.request_of_candidate_N),
        ),
    )


def _print_widths(world: World, scorer: Scorer, rng: np.random.Generator) -> None:
    values = width_values(world, scorer, rng, widths=_WIDTHS, num_requests=6_000)
    segment_R = np.array(values.segments)
    print(f"true value of 8 ads per request: retrieval's head, best of {_WIDTHS}, widest less base")
    for name in ("all", *(segment.name for segment in world.config.segments)):
        rows = np.full(len(segment_R), True) if name == "all" else segment_R == name
        gain, low, high = mean_interval(values.model_RW[rows, -1] - values.model_RW[rows, 0])
        means = " ".join(f"{mean:8.4f}" for mean in values.model_RW[rows].mean(axis=0))
        print(f"  {name:8} {values.retrieval_R[rows].mean():8.4f} {means}   {gain:+.4f} [{low:.4f}, {high:.4f}]")
    believed = values.predicted_RW.sum(axis=0) / values.model_RW.sum(axis=0)
    print("predicted over true value of the choice: " + " ".join(f"{ratio:.4f}" for ratio in believed))


if __name__ == "__main__":
    main()
