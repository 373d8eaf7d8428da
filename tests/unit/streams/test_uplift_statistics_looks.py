"""Intervals and the check of the split at a hundred looks, in thousands of experiments: they seldom err, and they find.

Simulated at all looks at once (``benchmarks.simulated_users``), by formulas that are checked against the package's own.
"""

from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.always_valid import SHARES_A, even_and_uneven, levers, mismatches, moved
from benchmarks.simulated_users import Floats, crowd, drawn, looked_at, split_p_values
from schemas.buckets import NUM_BUCKETS
from streams.control.uplift.statistics.contrasts import interaction, mean_difference
from streams.control.uplift.statistics.groups import GroupSums
from streams.control.uplift.statistics.sample_ratio import sample_ratio

NUM_LOOKS = 100


def of_look(weight_BL: Floats, total_BL: Floats, look: int) -> GroupSums:
    weight_B = np.ascontiguousarray(weight_BL[:, look])
    size = float(weight_B.sum())
    return GroupSums(
        weight_B=weight_B,
        total_B=np.ascontiguousarray(total_BL[:, look]),
        num_requests=round(size),
        weight_squared=size,
    )


@pytest.fixture(scope="module")
def few_and_many() -> Floats:
    """Sums of five arms of 600, 60, 40, 5 and 600 users."""
    rng = np.random.default_rng(11)
    return drawn(rng, crowd(rng, num_users=3_000, num_looks=NUM_LOOKS, rate=0.3), [600, 60, 40, 5, 600])


@pytest.mark.parametrize("arms", [(0, 4), (1, 0), (0, 2), (3, 0), (4, 0, 1, 2)])
def test_the_simulated_formulas_are_those_of_the_package(few_and_many: Floats, arms: tuple[int, ...]) -> None:
    pairs = [(few_and_many[arm, 0], few_and_many[arm, 1]) for arm in arms]
    looks = looked_at(pairs, (1.0, -1.0) if len(arms) == 2 else (1.0, -1.0, -1.0, 1.0))
    num_told = 0
    for look in range(NUM_LOOKS):
        groups = [of_look(weight_BL, total_BL, look) for weight_BL, total_BL in pairs]
        found = mean_difference(groups[0], groups[1]) if len(arms) == 2 else interaction(*groups)
        if found is None:
            assert np.isnan(looks.effect_L[look])
            continue
        num_told += 1
        half, fixed = looks.half_L[look], looks.fixed_half_L[look]
        assert found.effect == pytest.approx(looks.effect_L[look], rel=1e-9, abs=1e-12)
        assert (found.upper - found.effect, found.fixed_upper - found.effect) == pytest.approx((half, fixed), rel=1e-9)
    assert (num_told > 0) == (3 not in arms)


def test_the_simulated_split_is_that_of_the_package(few_and_many: Floats) -> None:
    requests_ABL = few_and_many[:, 0]
    shares_A = np.array([0.45, 0.05, 0.03, 0.01, 0.46])
    p_values_L = split_p_values(requests_ABL, shares_A)
    for look in range(0, NUM_LOOKS, 9):
        requests = {str(arm): requests_BL[:, look] for arm, requests_BL in enumerate(requests_ABL)}
        found = sample_ratio(requests, {arm: each / shares_A[int(arm)] for arm, each in requests.items()})
        assert (1.0 if found is None else found.p_value) == pytest.approx(p_values_L[look])


# Seconds of work, and minutes where a busy machine leaves it little.
@pytest.mark.timeout(600)
def test_two_thousand_a_a_tests_of_a_hundred_looks_raise_few_false_alarms() -> None:
    found = even_and_uneven(2_000, (1_000, 1_000))
    print(f"A/A, 2,000 x 100: {found}")
    assert found.ever_missed <= 0.05
    assert found.width_ratio <= 2.0
    # Whoever looks again and again at intervals for one look is fooled: the users are no tame ones.
    assert found.fixed_ever_missed > 0.15


@pytest.mark.parametrize("users", [(4_000, 100), (4_000, 10)])
def test_an_arm_of_few_users_is_told_of_honestly_or_not_at_all(users: tuple[int, int]) -> None:
    found = even_and_uneven(120, users)
    print(f"A/A of {users} users: {found}")
    assert found.ever_missed <= 0.05


def even_tempered(num: int, few: int) -> Iterator[tuple[Floats, Floats]]:
    """Arms of many and of few users who are nearly alike, with much traffic: few buckets, much in each."""
    rng = np.random.default_rng(7)
    for _ in range(num):
        sums = []
        for users in (2_000, few):
            num_B = rng.multinomial(users, np.full(NUM_BUCKETS, 1.0 / NUM_BUCKETS))
            requests_BL = np.cumsum(rng.poisson(30.0 * num_B[:, None], (NUM_BUCKETS, NUM_LOOKS)), axis=1) * 1.0
            noise_BL = np.sqrt(30.0 * num_B)[:, None] * rng.standard_normal((NUM_BUCKETS, NUM_LOOKS))
            own_B = 1.0 + 0.02 * rng.standard_normal(NUM_BUCKETS) / np.sqrt(np.maximum(1, num_B))
            sums.append(np.stack([requests_BL, requests_BL * own_B[:, None] + np.cumsum(noise_BL, axis=1)]))
        yield sums[0], sums[1]


def test_an_error_that_rests_on_few_buckets_is_not_taken_for_sure() -> None:
    alarms = [
        looked_at([(many[0], many[1]), (few[0], few[1])], (1.0, -1.0)).misses(0.0).any()
        for many, few in even_tempered(400, 12)
    ]
    print(f"arm of 12 users who are alike: {np.mean(alarms):.1%}")
    assert np.mean(alarms) <= 0.05


def test_an_effect_of_a_half_is_found() -> None:
    found = even_and_uneven(120, (1_000, 1_000), lift=0.5)
    print(f"lift of 50 %: {found}")
    assert found.found >= 0.4
    assert found.ever_missed <= 0.05


def test_truth_is_covered_under_drift_and_shedding_and_the_delivered_mislead() -> None:
    found = levers(80)
    for name, figures in found.items():
        print(f"{name}: {figures}")
        if name != "naive":
            assert figures.worst_look_missed <= 0.07
    # What is shed first is worth little: those who were served would have earned more anyway.
    assert found["naive"].worst_look_missed >= 0.9
    assert found["both"].found >= 0.6


def test_a_fair_split_is_trusted_at_a_hundred_looks() -> None:
    alarms = mismatches(500, 500, SHARES_A, told_A=SHARES_A)
    print(f"fair split of 500 users: {alarms:.2%}")
    assert alarms <= 0.01


def test_a_split_that_is_two_points_off_or_lacks_an_arm_is_found() -> None:
    two_points = mismatches(10, 12_000, moved(2, 0.02), told_A=SHARES_A)
    no_holdout = mismatches(10, 6_000, moved(0, SHARES_A[0]), told_A=SHARES_A)
    print(f"two points of rma lost, 12,000 users: {two_points:.0%}; no holdout, 6,000 users: {no_holdout:.0%}")
    assert two_points >= 0.7
    assert no_holdout >= 0.9


def test_an_arm_without_any_request_is_missed_though_nobody_names_it() -> None:
    rng = np.random.default_rng(4)
    requests_ABL = drawn(rng, crowd(rng, num_users=9_000, num_looks=1, rate=3.0), [900, 2_700, 5_400])[:, 0]
    requests = {str(arm): requests_BL[:, 0] for arm, requests_BL in enumerate(requests_ABL)}
    weights = {arm: each / share for (arm, each), share in zip(requests.items(), (0.1, 0.3, 0.6), strict=True)}
    fair = sample_ratio(requests, weights)
    assert fair is not None
    assert not fair.is_mismatch
    del requests["0"], weights["0"]
    found = sample_ratio(requests, weights)
    assert found is not None
    assert found.is_mismatch
    assert found.expected == pytest.approx((0.3, 0.6))
    # An arm whose probability nobody knows makes the split impossible to judge, not fair.
    assert sample_ratio(requests, {**weights, "1": np.zeros(NUM_BUCKETS)}) is None
