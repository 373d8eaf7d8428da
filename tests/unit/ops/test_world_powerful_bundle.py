"""The committed weights of the powerful model know more of their world than the baseline's, and earn more by it.

Both judge the same requests, which neither was trained on; intervals are of the differences, over requests.
"""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ops.simulator.impressions import draw_impressions
from ops.simulator.quality import WidthValues, width_values
from ops.simulator.world import World, WorldConfig
from ranking.models.load import BASELINE_WORLD_BUNDLE, POWERFUL_WORLD_BUNDLE, load_model
from ranking.models.scorer import Scorer
from ranking.models.training.quality import log_loss, mean_interval, prediction_quality
from ranking.models.training.views import LabelledViews

# Far from the seeds that the weights were trained with.
_HELD_OUT_SEED = 987_654_321
_BASE_WIDTH = 64
_BUNDLES = {"baseline": BASELINE_WORLD_BUNDLE, "powerful": POWERFUL_WORLD_BUNDLE}


@pytest.fixture(scope="module")
def world() -> World:
    return World(WorldConfig())


@pytest.fixture(scope="module")
def scorers() -> Iterator[dict[str, Scorer]]:
    # One thread for as long as the scorers live: on a busy machine, threads that wait for each other cost most.
    threads = torch.get_num_threads()
    yield {name: Scorer(load_model(folder)) for name, folder in _BUNDLES.items()}
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def held_out(world: World) -> LabelledViews:
    return draw_impressions(world, np.random.default_rng(_HELD_OUT_SEED), num_requests=1_000)


@pytest.fixture(scope="module")
def probabilities(scorers: dict[str, Scorer], held_out: LabelledViews) -> dict[str, NDArray[np.float64]]:
    return {
        name: scorer.score_chunk(scorer.prepare(held_out.users), held_out.shown).astype(np.float64)
        / held_out.shown.bids_N
        for name, scorer in scorers.items()
    }


@pytest.fixture(scope="module")
def values(world: World, scorers: dict[str, Scorer]) -> dict[str, WidthValues]:
    """What each would show of the base candidates of the same requests."""
    return {
        name: width_values(
            world, scorer, np.random.default_rng(_HELD_OUT_SEED), widths=(_BASE_WIDTH,), num_requests=1_500
        )
        for name, scorer in scorers.items()
    }


def test_the_bundle_is_small_enough_for_the_repository() -> None:
    assert sum(path.stat().st_size for path in POWERFUL_WORLD_BUNDLE.iterdir()) < 4_000_000


def test_both_beat_chance_and_the_powerful_model_beats_the_baseline(
    held_out: LabelledViews, probabilities: dict[str, NDArray[np.float64]]
) -> None:
    clicked_N = held_out.clicked_N
    constant_N = log_loss(np.full(len(held_out), clicked_N.mean()), clicked_N)
    losses = {name: log_loss(probability_N, clicked_N) for name, probability_N in probabilities.items()}
    for loss_N in losses.values():
        assert mean_interval(held_out.mean_by_request(constant_N - loss_N))[1] > 0.01
    gain, low, high = mean_interval(held_out.mean_by_request(losses["baseline"] - losses["powerful"]))
    print(f"log loss of the baseline less that of the powerful model: {gain:.5f} [{low:.5f}, {high:.5f}]")
    assert low > 0.0


def test_the_powerful_model_is_calibrated_as_answers_of_both_are_merged(
    held_out: LabelledViews, probabilities: dict[str, NDArray[np.float64]]
) -> None:
    quality = prediction_quality(probabilities["powerful"], held_out.clicked_N)
    assert quality.calibration == pytest.approx(1.0, abs=0.08)


def test_its_choice_of_the_base_candidates_is_truly_worth_more(values: dict[str, WidthValues]) -> None:
    gain_R = values["powerful"].model_RW[:, 0] - values["baseline"].model_RW[:, 0]
    gain, low, high = mean_interval(gain_R)
    print(f"true value per request, powerful less baseline: {gain:+.4f} [{low:+.4f}, {high:+.4f}]")
    assert low > 0.0


def test_the_gain_differs_between_segments_and_is_not_ordered_like_their_worth(
    world: World, values: dict[str, WidthValues]
) -> None:
    segment_R = np.array(values["baseline"].segments)
    assert values["powerful"].segments == values["baseline"].segments
    worth, gain, per_worth = {}, {}, {}
    for segment in world.config.segments:
        rows = segment_R == segment.name
        base_R = values["baseline"].model_RW[rows, 0]
        worth[segment.name] = float(base_R.mean())
        gain[segment.name] = mean_interval(values["powerful"].model_RW[rows, 0] - base_R)
        per_worth[segment.name] = [bound / worth[segment.name] for bound in gain[segment.name]]
        print(f"{segment.name:8} worth {worth[segment.name]:.4f}, gain {gain[segment.name]}")
    by_worth = sorted(worth, key=lambda name: worth[name])
    assert by_worth[-1] == "finance"
    # In currency: a segment worth less than half as much gains more.
    assert max(gain, key=lambda name: gain[name][0]) == "travel"
    assert by_worth != sorted(gain, key=lambda name: gain[name][0])
    # By share, beyond chance: the segment worth most gains less than any other.
    for name in by_worth[:-1]:
        assert per_worth["finance"][2] < per_worth[name][1]
