"""Training on a small truth: ads have a pull, users a side, and who is on an ad's side clicks more often."""

from pathlib import Path

import numpy as np
import pytest
import torch

from ranking.models.inputs import CandidateChunk, Users
from ranking.models.load import load_model, save_model
from ranking.models.training.fresh import ARCHITECTURES, default_settings, fresh_model
from ranking.models.training.loop import TrainingSettings, click_probabilities, train
from ranking.models.training.quality import PredictionQuality, prediction_quality
from ranking.models.training.run import trained
from ranking.models.training.views import LabelledViews, SplitViews

_NUM_ADS = 12
_PER_REQUEST = 8


class _Notes:
    def __init__(self) -> None:
        self.steps: list[tuple[int, int, int]] = []
        self.epochs: list[PredictionQuality] = []

    def stepped(self, epoch: int, step: int, num_steps: int) -> None:
        self.steps.append((epoch, step, num_steps))

    def judged(self, epoch: int, quality: PredictionQuality) -> None:
        self.epochs.append(quality)
        assert epoch == len(self.epochs)


def _draw(seed: int, num_requests: int) -> LabelledViews:
    rng = np.random.default_rng(seed)
    side_B = rng.choice([-1.0, 1.0], num_requests)
    ads_N = rng.integers(_NUM_ADS, size=num_requests * _PER_REQUEST)
    index_N = np.repeat(np.arange(num_requests), _PER_REQUEST)
    pull_N = np.where(ads_N % 2 == 0, 1.5, -1.5) * side_B[index_N]
    return LabelledViews(
        users=Users.of_requests(
            [np.array([side, rng.normal()], dtype=np.float32) for side in side_B],
            [rng.integers(_NUM_ADS, size=rng.integers(4)) for _ in side_B],
        ),
        shown=CandidateChunk(
            ad_ids_N=ads_N,
            bids_N=rng.uniform(0.5, 2.0, len(ads_N)).astype(np.float32),
            retrieval_scores_N=rng.normal(size=len(ads_N)).astype(np.float32),
            request_of_candidate_N=index_N,
        ),
        clicked_N=rng.random(len(ads_N)) < 1.0 / (1.0 + np.exp(2.0 - pull_N)),
    )


@pytest.fixture(scope="module")
def split() -> SplitViews:
    return SplitViews(_draw(1, 600), _draw(2, 200), _draw(3, 300))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_is_trained_learns_and_is_calibrated(architecture: str, split: SplitViews) -> None:
    settings = TrainingSettings(learning_rate=2e-2, max_epochs=3, requests_per_step=32)
    num_threads = torch.get_num_threads()
    found = trained(architecture, split, version="v", seed=5, observer=_Notes(), settings=settings)
    assert torch.get_num_threads() == num_threads
    assert found.quality.constant_log_loss > 0.42
    assert found.quality.log_loss < found.quality.constant_log_loss - 0.03
    assert found.quality.auc > 0.7
    # Only a fifth of the views without a click was learned from: without the correction it would be near 3.
    assert found.quality.calibration == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_seed_decides_the_weights(architecture: str, split: SplitViews) -> None:
    settings = TrainingSettings(max_epochs=1, requests_per_step=100)
    one, again, other = (
        trained(architecture, split, version="v", seed=seed, observer=_Notes(), settings=settings).model.state_dict()
        for seed in (1, 1, 2)
    )
    assert all(torch.equal(tensor, again[name]) for name, tensor in one.items())
    assert not torch.equal(one["click_logit.weight"], other["click_logit.weight"])


def test_training_stops_where_the_validation_loss_rises_and_goes_back(split: SplitViews) -> None:
    # Labels by a coin: there is nothing to learn, and what is learned elsewhere makes it worse.
    labels_N = np.random.default_rng(9).random(len(split.validation)) < split.training.clicked_N.mean()
    coin = LabelledViews(split.validation.users, split.validation.shown, labels_N)
    notes = _Notes()
    model = fresh_model("baseline", num_features=2, click_share=0.5, version="v", seed=1)
    settings = TrainingSettings(learning_rate=2e-2, max_epochs=9, requests_per_step=64)
    train(model, split.training, coin, settings=settings, observer=notes)
    losses = [quality.log_loss for quality in notes.epochs]
    *falling, last = losses
    assert falling == sorted(falling, reverse=True)
    assert last >= falling[-1]
    assert len(losses) < settings.max_epochs
    assert notes.steps[-1] == (len(losses), 10, 10)
    # Calibration moves every prediction and leaves their order, or turns it round.
    auc = prediction_quality(click_probabilities(model, coin), coin.clicked_N).auc
    assert max(auc, 1.0 - auc) == pytest.approx(max(notes.epochs[-2].auc, 1.0 - notes.epochs[-2].auc), abs=1e-4)
    assert max(auc, 1.0 - auc) != pytest.approx(max(notes.epochs[-1].auc, 1.0 - notes.epochs[-1].auc), abs=1e-4)


def test_a_fresh_model_believes_in_the_share_of_clicks(split: SplitViews) -> None:
    for architecture in ARCHITECTURES:
        model = fresh_model(architecture, num_features=2, click_share=0.03, version="v", seed=1)
        assert 0.02 < float(np.median(click_probabilities(model, split.held_out))) < 0.045


def test_a_trained_model_is_a_bundle_that_loads(split: SplitViews, tmp_path: Path) -> None:
    settings = TrainingSettings(max_epochs=1)
    found = trained("wukong", split, version="v-1", seed=1, observer=_Notes(), settings=settings)
    save_model(found.model, tmp_path / "bundle")
    loaded = load_model(tmp_path / "bundle")
    assert loaded.version == "v-1"


@pytest.mark.parametrize(
    "wrong",
    [{"max_epochs": 0}, {"learning_rate": float("nan")}, {"unclicked_share": 0.0}, {"embedding_penalty": -1.0}],
)
def test_settings_that_cannot_train_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        TrainingSettings(**wrong)  # type: ignore[arg-type]


def test_views_without_a_click_train_nothing(split: SplitViews) -> None:
    none = LabelledViews(split.training.users, split.training.shown, np.zeros_like(split.training.clicked_N))
    with pytest.raises(ValueError, match="both kinds"):
        trained("baseline", SplitViews(none, none, none), version="v", seed=1, observer=_Notes())
    assert default_settings("baseline", seed=9).seed == 9
