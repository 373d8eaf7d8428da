"""A whole training run: a fresh model, trained, calibrated, and judged by what it has not seen."""

from dataclasses import dataclass

from ranking.models.training.fresh import NewModel, default_settings, fresh_model
from ranking.models.training.loop import Observer, TrainingSettings, click_probabilities, train
from ranking.models.training.quality import PredictionQuality, prediction_quality
from ranking.models.training.views import SplitViews


@dataclass(frozen=True)
class TrainedModel:
    """A model and its quality on the views that were held out."""

    model: NewModel
    quality: PredictionQuality


def trained(
    architecture: str,
    split: SplitViews,
    *,
    version: str,
    seed: int,
    observer: Observer,
    settings: TrainingSettings | None = None,
) -> TrainedModel:
    """Train a model of an architecture from nothing; the same views, version and seed give the same weights.

    Raises: ValueError where the training views were all clicked, or none, or the validation or held-out views.
    """
    share = float(split.training.clicked_N.mean())
    if not 0.0 < share < 1.0:
        raise ValueError(f"{share:.0%} of the views to train on were clicked: training needs both kinds")
    model = fresh_model(
        architecture,
        num_features=split.training.users.features_BF.shape[1],
        click_share=share,
        version=version,
        seed=seed,
    )
    settings = settings or default_settings(architecture, seed=seed)
    train(model, split.training, split.validation, settings=settings, observer=observer)
    held_out = split.held_out
    return TrainedModel(model, prediction_quality(click_probabilities(model, held_out), held_out.clicked_N))
