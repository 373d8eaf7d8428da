"""Both models on real logs beside a constant and a popularity predictor: python -m benchmarks.open_bandit FILES.

FILES are campaign files of the Open Bandit Dataset, say `random/men/men.csv bts/men/men.csv`. The last fifth of the
rows by time is held out; the seed changes the first weights and the order of the steps.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ranking.models.training.fresh import ARCHITECTURES, default_settings
from ranking.models.training.loop import click_probabilities
from ranking.models.training.open_bandit import read_open_bandit
from ranking.models.training.popularity import Popularity
from ranking.models.training.quality import PredictionQuality, log_loss, mean_interval, prediction_quality
from ranking.models.training.run import trained
from ranking.models.training.views import LabelledViews, split_in_order

# A few hundred clicks at best: a step as large as for the world would be over after an epoch.
_LEARNING_RATE = 1e-3


def main() -> None:
    """Print the held-out quality of each predictor, and its loss less that of popularity with a 95 % interval."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.open_bandit", description=main.__doc__)
    parser.add_argument("files", type=Path, nargs="+", help="campaign files of one campaign")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    views = read_open_bandit(arguments.files)
    predictions, held_out = predict(views, seed=arguments.seed)
    print(f"{len(views)} rows, {views.clicked_N.sum()} clicks; held out: {len(held_out)}, {held_out.clicked_N.sum()}")
    popular_N = log_loss(predictions["popularity"], held_out.clicked_N)
    for name, probability_N in predictions.items():
        quality = prediction_quality(probability_N, held_out.clicked_N)
        mean, low, high = mean_interval(log_loss(probability_N, held_out.clicked_N) - popular_N)
        print(
            f"{name:10} log loss {quality.log_loss:.5f}  AUC {quality.auc:.3f}  calibration {quality.calibration:.2f}"
            f"  less popularity {mean:+.5f} [{low:+.5f}, {high:+.5f}]"
        )


def predict(views: LabelledViews, *, seed: int) -> tuple[dict[str, NDArray[np.float64]], LabelledViews]:
    """What each predictor says of the rows that were held out, and those rows."""
    split = split_in_order(views)
    held_out = split.held_out
    # The simple ones learn from what the models stop by, too: they have nothing to stop.
    num_known = views.num_requests - held_out.num_requests
    known = views.take(np.arange(num_known))
    popularity = Popularity(known.shown.ad_ids_N, known.clicked_N)
    predictions = {
        "constant": np.full(len(held_out), popularity.share),
        "popularity": popularity.probabilities(held_out.shown.ad_ids_N),
    }
    for architecture in ARCHITECTURES:
        settings = replace(default_settings(architecture, seed=seed), learning_rate=_LEARNING_RATE)
        found = trained(architecture, split, version="open-bandit", seed=seed, observer=_Silent(), settings=settings)
        predictions[architecture] = click_probabilities(found.model, held_out)
    return predictions, held_out


class _Silent:
    def stepped(self, epoch: int, step: int, num_steps: int) -> None:
        """Nobody watches."""

    def judged(self, epoch: int, quality: PredictionQuality) -> None:
        """Nobody watches."""


if __name__ == "__main__":
    main()
