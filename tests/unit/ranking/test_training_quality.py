"""Measures of predicted click probabilities, against brute force and known distortions."""

import numpy as np
import pytest

from ranking.models.training.quality import log_loss, mean_interval, platt_scaling, prediction_quality


def test_auc_is_the_chance_of_the_right_order_with_ties_as_halves() -> None:
    rng = np.random.default_rng(0)
    probability_N = rng.choice([0.1, 0.2, 0.3, 0.4], size=200)
    clicked_N = rng.random(200) < probability_N
    above = probability_N[clicked_N][:, None] - probability_N[~clicked_N]
    expected = (above > 0).mean() + 0.5 * (above == 0).mean()
    assert prediction_quality(probability_N, clicked_N).auc == pytest.approx(expected)


def test_the_constant_beside_a_prediction_is_the_share_of_clicks() -> None:
    clicked_N = np.array([True, False, False, False])
    quality = prediction_quality(np.array([0.5, 0.25, 0.25, 0.2]), clicked_N)
    assert quality.constant_log_loss == pytest.approx(log_loss(np.full(4, 0.25), clicked_N).mean())
    assert quality.calibration == pytest.approx(1.2)


@pytest.mark.parametrize("clicked", [True, False])
def test_views_of_one_kind_alone_judge_nothing(clicked: bool) -> None:
    with pytest.raises(ValueError, match="needs both kinds"):
        prediction_quality(np.array([0.5, 0.4]), np.array([clicked, clicked]))


def test_platt_scaling_finds_the_distortion_of_known_log_odds() -> None:
    rng = np.random.default_rng(1)
    log_odds_N = rng.normal(-1.0, 1.5, size=200_000)
    clicked_N = rng.random(200_000) < 1.0 / (1.0 + np.exp(-(0.7 * log_odds_N - 0.4)))
    scale, offset = platt_scaling(log_odds_N, clicked_N)
    assert scale == pytest.approx(0.7, abs=0.02)
    assert offset == pytest.approx(-0.4, abs=0.03)


def test_an_interval_covers_the_mean_of_nineteen_in_twenty_samples() -> None:
    rng = np.random.default_rng(2)
    covered = [low <= 0.3 <= high for _, low, high in (mean_interval(rng.normal(0.3, 2.0, 400)) for _ in range(500))]
    assert 0.92 < np.mean(covered) < 0.98
