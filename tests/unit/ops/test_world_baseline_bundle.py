"""The committed weights know their world: they beat a constant and the retrieval order, and gain by a wider search."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from ops.simulator.impressions import draw_impressions
from ops.simulator.quality import WidthValues, width_values
from ops.simulator.world import World, WorldConfig
from ranking.models.load import BASELINE_WORLD_BUNDLE, load_baseline
from ranking.models.scorer import Scorer
from ranking.models.training.quality import log_loss, mean_interval, prediction_quality

# Far from the seeds that the weights were trained with.
_HELD_OUT_SEED = 987_654_321
_WIDTHS = (64, 128, 256, 512)


@pytest.fixture(scope="module")
def world() -> World:
    return World(WorldConfig())


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    # One thread for as long as the scorer lives: on a busy machine, threads that wait for each other cost most.
    threads = torch.get_num_threads()
    yield Scorer(load_baseline())
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def values(world: World, scorer: Scorer) -> WidthValues:
    return width_values(world, scorer, np.random.default_rng(_HELD_OUT_SEED), widths=_WIDTHS, num_requests=600)


def test_the_bundle_is_small_enough_for_the_repository() -> None:
    assert sum(path.stat().st_size for path in BASELINE_WORLD_BUNDLE.iterdir()) < 1_000_000


def test_clicks_are_predicted_better_than_by_a_constant_and_calibrated(world: World, scorer: Scorer) -> None:
    held_out = draw_impressions(world, np.random.default_rng(_HELD_OUT_SEED), num_requests=1000)
    scores_N = scorer.score_chunk(scorer.prepare(held_out.users), held_out.shown)
    probability_N = scores_N.astype(np.float64) / held_out.shown.bids_N
    quality = prediction_quality(probability_N, held_out.clicked_N)
    constant_N = np.full(len(held_out), held_out.clicked_N.mean())
    loss_N = log_loss(probability_N, held_out.clicked_N)
    # A request's impressions are alike: the interval is over requests.
    gain_B = held_out.mean_by_request(log_loss(constant_N, held_out.clicked_N) - loss_N)
    assert mean_interval(gain_B)[1] > 0.01
    assert quality.log_loss == pytest.approx(loss_N.mean())
    assert quality.auc > 0.68
    assert quality.calibration == pytest.approx(1.0, abs=0.08)


def test_the_models_choice_is_truly_worth_more_than_the_head_of_the_retrieval_order(values: WidthValues) -> None:
    for column in range(len(_WIDTHS)):
        _, low, _ = mean_interval(values.model_RW[:, column] - values.retrieval_R)
        assert low > 0.5


def test_each_wider_search_earns_more_with_diminishing_returns(values: WidthValues) -> None:
    gains = np.diff(values.model_RW, axis=1)
    for column in range(gains.shape[1]):
        assert mean_interval(gains[:, column])[1] > 0.0
    mean_gains = gains.mean(axis=0)
    # Each step doubles the width: per candidate, the next one must earn less.
    assert np.all(np.diff(mean_gains / np.diff(_WIDTHS)) < 0)


def test_what_the_model_believes_of_its_choice_is_near_the_truth(values: WidthValues) -> None:
    ratio_W = values.predicted_RW.sum(axis=0) / values.model_RW.sum(axis=0)
    np.testing.assert_allclose(ratio_W, 1.0, atol=0.12)
