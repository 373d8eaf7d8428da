"""Expected survival against lifetimes that are known: most offers have not ended when they are asked about."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from streams.control.ledger.survival import MAX_SURVIVAL_S, expected_survival_s, survives_share
from tests.unit.streams.ledger_makers import Fleet, Lifetimes, aged, ledger_of, pool

HOUR_S = 3_600.0
# What the estimate of a share may be off by, with 2,000 offers of which at least half are still alive.
BOUND = 0.03
Survival = Callable[[float], float]


def exponential(mean_s: float) -> tuple[Lifetimes, Survival]:
    return lambda rng, size: rng.exponential(mean_s, size), lambda age_s: math.exp(-age_s / mean_s)


def weibull(scale_s: float, shape: float) -> tuple[Lifetimes, Survival]:
    return (
        lambda rng, size: scale_s * rng.weibull(shape, size),
        lambda age_s: math.exp(-((age_s / scale_s) ** shape)),
    )


WORLDS = [
    pytest.param(exponential(2 * HOUR_S), id="memoryless"),
    pytest.param(weibull(2 * HOUR_S, 0.6), id="those that lasted last"),
    pytest.param(weibull(2 * HOUR_S, 1.8), id="those that are old go"),
]


def fleet(lifetimes: Lifetimes, *, seed: int) -> Fleet:
    return Fleet(lifetimes, num_offers=2_000, arrivals_s=HOUR_S, until_s=int(HOUR_S), seed=seed)


@pytest.mark.parametrize("world", WORLDS)
def test_the_share_that_survives_is_found_under_heavy_censoring(world: tuple[Lifetimes, Survival]) -> None:
    lifetimes, survival = world
    for seed in range(3):
        seen = fleet(lifetimes, seed=seed)
        ages_s = seen.ages_s()
        assert len(seen.ended_s()) < len(ages_s)
        ledger = ledger_of(*seen.windows())
        for startup_s in (30.0, 120.0, 600.0):
            truth = sum(survival(age_s + startup_s) / survival(age_s) for age_s in ages_s) / len(ages_s)
            assert survives_share(ledger, startup_s) == pytest.approx(truth, abs=BOUND)


def test_the_mean_of_ended_lifetimes_would_be_far_off() -> None:
    """The same fleet, startup and bound as above: what ended was short-lived, or it would not have ended."""
    lifetimes, survival = exponential(2 * HOUR_S)
    seen = fleet(lifetimes, seed=0)
    naive_mean_s = float(np.mean(seen.ended_s()))
    assert naive_mean_s < HOUR_S / 2
    assert abs(math.exp(-600.0 / naive_mean_s) - survival(600.0)) > 5 * BOUND
    assert expected_survival_s(ledger_of(*seen.windows())) == pytest.approx(2 * HOUR_S, rel=0.15)


def test_offers_still_alive_count_as_far_as_they_were_seen() -> None:
    """One in ten lost at 15 s; the longer the others are watched, the better they look."""
    first = pool(aged(10, 9.0, taken=1.0), num_hosts=9)
    shares = [survives_share(ledger_of(first, *[pool(aged(10, 9.0), num_hosts=9)] * more), 10.0) for more in (0, 3, 30)]
    assert shares == sorted(share for share in shares if share is not None)
    assert len({*shares}) == 3


def test_the_share_is_of_todays_mix_of_ages() -> None:
    """Half of the young go within seconds, hardly any of the old: a pool of old offers is a good one."""
    past = [pool(aged(0, 50.0, taken=25.0), aged(3_600, 50.0), num_hosts=100)] * 60
    young = survives_share(ledger_of(*past, pool(aged(0, 50.0), num_hosts=50)), 5.0)
    old = survives_share(ledger_of(*past, pool(aged(3_600, 50.0), num_hosts=50)), 5.0)
    both = survives_share(ledger_of(*past, pool(aged(0, 50.0), aged(3_600, 50.0), num_hosts=100)), 5.0)
    assert young is not None
    assert old is not None
    assert young < 0.8 < 0.99 < old
    assert both == pytest.approx((young + old) / 2, abs=0.01)


def test_a_class_that_was_never_seen_goes_by_the_pool_as_a_whole() -> None:
    past = [pool(aged(0, 50.0, taken=5.0), num_hosts=50)] * 60
    unseen = survives_share(ledger_of(*past, pool(aged(86_400, 1.0))), 30.0)
    # 5 of 50 units in ten seconds; the one old unit has lasted a window.
    assert unseen == pytest.approx(math.exp(-0.01 * 30.0), abs=0.05)


def test_a_pool_that_lost_nothing_is_trusted_as_long_as_it_was_watched() -> None:
    one_host = [pool(aged(0, 8.0), num_hosts=1)]
    watched = [survives_share(ledger_of(*one_host * num_windows), 60.0) for num_windows in (1, 6, 360)]
    assert watched[0] is not None
    assert watched[2] is not None
    assert watched[0] < 0.1
    assert watched[2] > 0.98
    # A hundred hosts say in one window what one says in a hundred.
    assert survives_share(ledger_of(pool(aged(0, 800.0), num_hosts=100)), 60.0) == pytest.approx(
        survives_share(ledger_of(*one_host * 100), 60.0), abs=0.01
    )


@pytest.mark.parametrize("estimate", [expected_survival_s, lambda ledger: survives_share(ledger, 30.0)])
def test_nothing_is_said_where_nothing_is_known_or_nothing_is_there(estimate: Callable[..., float | None]) -> None:
    assert estimate(ledger_of(pool(num_hosts=0))) is None
    assert estimate(ledger_of(pool(aged(0, taken=3.0), num_hosts=0))) is None
    # Known well, but nothing of it is idle today.
    assert estimate(ledger_of(pool(aged(0, 5.0)), pool(num_hosts=0))) is None


def test_what_is_promised_is_bounded() -> None:
    for_ever = ledger_of(*[pool(aged(86_400, 4_000_000.0), num_hosts=10)] * 5_000)
    assert expected_survival_s(for_ever) == MAX_SURVIVAL_S
    never = ledger_of(*[pool(aged(0, 1.0, taken=1e6))] * 10)
    survival_s, share = expected_survival_s(never), survives_share(never, 1e9)
    assert survival_s is not None
    assert 0.0 <= survival_s < 0.001
    assert share == 0.0
    assert survives_share(never, 0.0) == 1.0
    # One in a hundred stays for ever, the others for a hundred seconds: hardly more than a hundredth of the bound.
    mixed = ledger_of(*[pool(aged(0, 99e6, taken=9.9e6), aged(86_400, 1e6), num_hosts=10**8)] * 1_000)
    assert expected_survival_s(mixed) == pytest.approx(MAX_SURVIVAL_S / 100, rel=0.1)


def test_the_share_falls_with_the_time_asked_for_and_adds_up_to_the_mean() -> None:
    lifetimes, _ = weibull(HOUR_S / 4, 0.7)
    ledger = ledger_of(*fleet(lifetimes, seed=3).windows())
    step_s = 20.0
    shares = [survives_share(ledger, step_s * number) or 0.0 for number in range(5_000)]
    assert shares == sorted(shares, reverse=True)
    # The mean is the integral of the survival function.
    integral_s = step_s * (sum(shares) - shares[0] / 2)
    assert expected_survival_s(ledger) == pytest.approx(integral_s, rel=0.01)
