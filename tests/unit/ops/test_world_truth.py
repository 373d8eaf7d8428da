"""The world: deterministic, honest about its truth, and worth searching more widely in some segments than in others."""

import numpy as np
import pytest

from ops.simulator.world import DrawnRequest, Outcome, PlatformProfile, SegmentProfile, World, WorldConfig


@pytest.fixture(scope="module")
def world() -> World:
    return World(WorldConfig())


def _equal(left: DrawnRequest, right: DrawnRequest) -> bool:
    return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(left, right, strict=True))


def test_equal_seeds_give_equal_worlds_and_draws(world: World) -> None:
    again = World(WorldConfig())
    first, second = np.random.default_rng(7), np.random.default_rng(7)
    for _ in range(5):
        assert _equal(world.draw_request(first, 100), again.draw_request(second, 100))
    other = World(WorldConfig(seed=2))
    assert not _equal(
        world.draw_request(np.random.default_rng(7), 100), other.draw_request(np.random.default_rng(7), 100)
    )


def test_a_user_is_the_same_at_every_request() -> None:
    few = World(WorldConfig(num_users=3))
    rng = np.random.default_rng(0)
    features: dict[int, bytes] = {}
    for _ in range(30):
        request = few.draw_request(rng, 10)
        known = features.setdefault(request.user_id, request.user_features_F.tobytes())
        assert known == request.user_features_F.tobytes()
    assert len(set(features.values())) == 3


def test_request_is_in_retrieval_order_with_the_dtypes_of_the_contract(world: World) -> None:
    request = world.draw_request(np.random.default_rng(1), 512)
    assert len(set(request.ad_ids_N.tolist())) == 512
    assert np.all(np.diff(request.retrieval_scores_N) <= 0)
    assert request.user_features_F.shape == (world.config.num_features,)
    assert [column.dtype for column in (request.ad_ids_N, request.history_ids_H)] == [np.int64, np.int64]
    assert {column.dtype.name for column in (request.user_features_F, request.bids_N, request.retrieval_scores_N)} == {
        "float32"
    }
    assert np.array_equal(request.bids_N, world.bids(request.user_id, request.ad_ids_N))


def test_a_wider_retrieval_extends_the_narrow_one(world: World) -> None:
    narrow = world.draw_request(np.random.default_rng(3), 64)
    wide = world.draw_request(np.random.default_rng(3), 512)
    assert np.array_equal(wide.ad_ids_N[:64], narrow.ad_ids_N)


def test_shares_of_segments_and_platforms(world: World) -> None:
    rng = np.random.default_rng(2)
    requests = [world.draw_request(rng, 1) for _ in range(1500)]
    for profile in world.config.segments:
        found = np.mean([request.advertiser_segment == profile.name for request in requests])
        assert found == pytest.approx(profile.share, abs=0.05)
    for platform in world.config.platforms:
        found = np.mean([request.platform == platform.name for request in requests])
        assert found == pytest.approx(platform.share, abs=0.05)


def test_outcomes_happen_as_often_and_are_worth_as_much_as_the_truth_says(world: World) -> None:
    rng = np.random.default_rng(4)
    request = world.draw_request(rng, 10)
    num_draws = 1500
    draws = [world.draw_outcomes(rng, request.user_id, request.ad_ids_N) for _ in range(num_draws)]
    clicks = np.zeros(10)
    for outcomes in draws:
        assert [o.ad_index for o in sorted(outcomes) if o.kind == "view"] == list(range(10))
        for outcome in outcomes:
            clicks[outcome.ad_index] += outcome.kind == "click"
    truth = world.click_probability(request.user_id, request.ad_ids_N)
    error = np.sqrt(truth * (1 - truth) / num_draws)
    assert np.all(np.abs(clicks / num_draws - truth) < 4.5 * error)
    values = np.array([sum(outcome.value for outcome in outcomes) for outcomes in draws])
    expected = world.true_value(request.user_id, request.ad_ids_N, request.bids_N)
    assert abs(values.mean() - expected) < 4.5 * values.std() / np.sqrt(num_draws)


def test_conversions_follow_their_clicks_and_delays_are_late(world: World) -> None:
    rng = np.random.default_rng(5)
    request = world.draw_request(rng, 50)
    times: dict[str, list[float]] = {"view": [], "click": [], "conversion": []}
    for _ in range(250):
        outcomes = world.draw_outcomes(rng, request.user_id, request.ad_ids_N)
        assert outcomes == sorted(outcomes, key=lambda outcome: outcome.delay_s)
        by_ad: dict[int, list[Outcome]] = {}
        for outcome in outcomes:
            times[outcome.kind].append(outcome.delay_s)
            by_ad.setdefault(outcome.ad_index, []).append(outcome)
        for chain in by_ad.values():
            kinds = [outcome.kind for outcome in chain]
            assert kinds == ["view", "click", "conversion"][: len(kinds)]
    assert np.median(times["click"]) == pytest.approx(world.config.click_delay_median_s + 0.5, rel=0.2)
    conversion_s = world.config.conversion_delay_median_s + world.config.click_delay_median_s
    assert np.median(times["conversion"]) == pytest.approx(conversion_s, rel=0.4)


def test_retrieval_order_is_informative_and_misses_winners_that_a_wider_search_finds(world: World) -> None:
    rng = np.random.default_rng(6)
    head, tail, found = [], [], []
    for _ in range(250):
        request = world.draw_request(rng, 512)
        value_N = world.click_probability(request.user_id, request.ad_ids_N) * request.bids_N
        head.append(value_N[:64].mean())
        tail.append(value_N[-64:].mean())
        found.append(np.mean(np.argsort(-value_N)[:8] >= 64))
    assert np.mean(head) > 1.5 * np.mean(tail)
    assert 0.1 < np.mean(found) < 0.8


def test_worth_and_gain_of_a_wider_search_order_the_segments_differently(world: World) -> None:
    rng = np.random.default_rng(8)
    worth: dict[str, list[float]] = {}
    gain: dict[str, list[float]] = {}
    for _ in range(800):
        request = world.draw_request(rng, 512)
        value_N = world.click_probability(request.user_id, request.ad_ids_N) * request.bids_N
        base = np.sort(value_N[:64])[-8:].sum()
        worth.setdefault(request.advertiser_segment, []).append(base)
        gain.setdefault(request.advertiser_segment, []).append(np.sort(value_N)[-8:].sum() - base)
    mean_worth = {name: np.mean(values) for name, values in worth.items()}
    mean_gain = {name: np.mean(values) for name, values in gain.items()}
    assert max(mean_worth, key=lambda name: mean_worth[name]) == "finance"
    assert sorted(mean_gain, key=lambda name: -mean_gain[name]) == ["travel", "gaming", "retail", "finance"]
    assert mean_gain["travel"] > 10 * mean_gain["finance"]


@pytest.mark.parametrize("num_candidates", [0, -1, 4001])
def test_more_candidates_than_ads_are_refused(world: World, num_candidates: int) -> None:
    with pytest.raises(ValueError, match="num_candidates"):
        world.draw_request(np.random.default_rng(0), num_candidates)


@pytest.mark.parametrize("ad_id", [-1, 4000])
def test_unknown_ads_are_refused(world: World, ad_id: int) -> None:
    with pytest.raises(ValueError, match="ad ids"):
        world.click_probability(1, np.array([5, ad_id]))


def test_bad_configs_are_refused() -> None:
    with pytest.raises(ValueError, match="segment shares"):
        WorldConfig(segments=(SegmentProfile("only", 0.5, 1.0, 0.0, 1.0),))
    with pytest.raises(ValueError, match="platform shares"):
        WorldConfig(platforms=(PlatformProfile("a", 1.5, 0.0), PlatformProfile("b", -0.5, 0.0)))
    with pytest.raises(ValueError, match="click_delay_median_s"):
        WorldConfig(click_delay_median_s=float("nan"))
    with pytest.raises(ValueError, match="conversion_probability"):
        WorldConfig(conversion_probability=1.5)
