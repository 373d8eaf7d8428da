"""Backing off, and which chunks stay when only a share may be sent."""

import numpy as np
import pytest

from ranking.router.pressure import Throttle, ValueGate
from ranking.router.value import DepthPrior, chunk_values_micro


def throttle_of(quota):
    throttle = Throttle(knee=0.5, recovery_per_s=0.1)
    throttle.answer(1.0 - 0.5 * quota, 0.0)
    assert throttle.quota(0.0) == pytest.approx(quota)
    return throttle


def test_quota_falls_at_once_and_rises_slowly():
    throttle = Throttle(knee=0.5, recovery_per_s=0.1)
    throttle.answer(0.5, 0.0)
    assert throttle.quota(0.0) == 1.0
    throttle.answer(1.0, 0.0)
    assert throttle.quota(0.0) == 0.0
    assert throttle.quota(1_000.0) == pytest.approx(0.1)
    throttle.answer(0.0, 1_000.0)
    assert throttle.quota(2_000.0) == pytest.approx(0.2)
    throttle.answer(0.95, 2_000.0)
    assert throttle.quota(2_000.0) == pytest.approx(0.1)
    assert throttle.quota(60_000.0) == 1.0


def admit_many(values_C, quota, num_requests=400, seed=3):
    gate, throttle = ValueGate(), throttle_of(quota)
    units_C = np.full(len(values_C), 100)
    rng = np.random.default_rng(seed)
    offered, admitted = [], []
    for _ in range(num_requests):
        values = rng.permutation(values_C) * rng.integers(1, 100)
        chosen = gate.admit(values, units_C, throttle, 0.0)
        offered += values.tolist()
        admitted += [value for value, is_sent in zip(values, chosen, strict=True) if is_sent]
    return offered, admitted


def test_a_share_is_kept_and_it_is_the_most_valuable():
    offered, admitted = admit_many(np.array([40, 30, 20, 10]), 0.25)
    assert 0.15 <= len(admitted) / len(offered) <= 0.26
    assert np.mean(admitted) > 2.0 * np.mean(offered)
    # But for the first few, offered before the gate knew what else there is.
    assert np.quantile(admitted, 0.05) > np.quantile(offered, 0.6)


def test_equal_values_are_held_to_the_share_as_well():
    gate, throttle = ValueGate(), throttle_of(0.3)
    values_C, units_C = np.full(4, 7), np.full(4, 100)
    sent = sum(sum(gate.admit(values_C, units_C, throttle, 0.0)) for _ in range(100))
    assert 100 <= sent <= 121


def test_within_a_request_the_admitted_are_a_prefix_in_value_per_cost():
    gate, throttle = ValueGate(), throttle_of(0.6)
    rng = np.random.default_rng(5)
    for _ in range(200):
        values_C, units_C = rng.integers(1, 1_000, 5), rng.integers(1, 128, 5)
        chosen = gate.admit(values_C, units_C, throttle, 0.0)
        density_C = values_C / units_C
        kept = [density for density, is_sent in zip(density_C, chosen, strict=True) if is_sent]
        dropped = [density for density, is_sent in zip(density_C, chosen, strict=True) if not is_sent]
        assert not kept or not dropped or min(kept) >= max(dropped)


def test_nothing_held_back_admits_all_and_a_closed_replica_nothing():
    values_C, units_C = np.array([1, 2]), np.array([10, 10])
    assert ValueGate().admit(values_C, units_C, Throttle(knee=0.5, recovery_per_s=1.0), 0.0) == [True, True]
    assert ValueGate().admit(values_C, units_C, throttle_of(0.0), 0.0) == [False, False]


def test_prior_is_concave_and_in_proportion_to_bids():
    bids_X = np.ones(1_000, dtype=np.float32)
    curve = DepthPrior(clicks_at_top=0.01, depth=100.0)
    values_C = chunk_values_micro(bids_X, first_position=0, chunk_size=250, curve=curve)
    assert values_C.dtype == np.int64
    assert len(values_C) == 4
    assert all(np.diff(values_C) < 0)
    assert all(np.diff(np.diff(values_C)) > 0)
    expected = sum(0.01 / (1 + position / 100) for position in range(250)) * 1e6
    assert values_C[0] == pytest.approx(expected, rel=1e-6)
    doubled_C = chunk_values_micro(2 * bids_X, first_position=0, chunk_size=250, curve=curve)
    assert doubled_C.tolist() == pytest.approx((2 * values_C).tolist(), abs=1)
    with pytest.raises(ValueError, match="depth"):
        DepthPrior(depth=0.0)


def test_the_last_chunk_may_be_short():
    values_C = chunk_values_micro(np.ones(130, dtype=np.float32), first_position=10, chunk_size=128, curve=DepthPrior())
    assert len(values_C) == 2
    assert values_C[1] < values_C[0] / 50
