"""Both models on real logs, where these are at hand: no predictor is far off, whatever it learned."""

import os
from pathlib import Path

import pytest

from benchmarks.open_bandit import predict
from ranking.models.training.open_bandit import read_open_bandit
from ranking.models.training.quality import prediction_quality

DATA = Path(os.environ.get("INTERTIDAL_SHARED_DATA", Path(__file__).parents[4] / "shared" / "data"))


def test_every_predictor_is_near_the_constant_on_real_logs() -> None:
    files = sorted(DATA.glob("open-bandit/*/men.csv"))
    if not files:
        pytest.skip("no Open Bandit Dataset at ../shared/data or INTERTIDAL_SHARED_DATA")
    views = read_open_bandit(files)
    assert len(views) == 10_000 * len(files)
    assert 0.002 < views.clicked_N.mean() < 0.01
    predictions, held_out = predict(views, seed=1)
    assert list(predictions) == ["constant", "popularity", "baseline", "wukong"]
    for probability_N in predictions.values():
        quality = prediction_quality(probability_N, held_out.clicked_N)
        assert quality.log_loss < 1.15 * quality.constant_log_loss
        assert 0.5 < quality.calibration < 2.0
