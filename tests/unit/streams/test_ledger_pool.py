"""The ledger of a pool from window to window, its churn and its age."""

import msgspec
import pytest

from schemas.age_classes import AGE_CLASSES_S
from streams.control.ledger.churn import churn_per_unit_h, mean_age_s
from streams.control.ledger.pool_ledger import MAX_QUANTITY, MEMORY_S, PoolLedger, updated
from tests.unit.streams.ledger_makers import WINDOW_MS, aged, ledger_of, pool, unusable


def test_exposure_and_losses_are_summed_up_by_age_and_the_mix_is_todays() -> None:
    fade = 1.0 - 10.0 / MEMORY_S
    ledger = ledger_of(
        pool(aged(0, 2.0), aged(600, 4.0, taken=1.5), num_hosts=3), pool(aged(0, 0.5, taken=1.0), num_hosts=1)
    )
    assert ledger.exposure_unit_s[0] == pytest.approx(20.0 * fade + 5.0)
    assert ledger.exposure_unit_s[AGE_CLASSES_S.index(600)] == pytest.approx(40.0 * fade)
    assert ledger.lost_units[AGE_CLASSES_S.index(600)] == pytest.approx(1.5 * fade)
    assert ledger.lost_units[0] == pytest.approx(1.0)
    assert ledger.units_micro == (500_000, *[0] * (len(AGE_CLASSES_S) - 1))
    assert ledger.host_units == 0.5


def test_the_length_of_a_window_is_counted_not_the_number_of_windows() -> None:
    short = ledger_of(*[pool(aged(0, 1.0))] * 5, window_ms=2_000)
    assert short.exposure_unit_s[0] == pytest.approx(ledger_of(pool(aged(0, 1.0))).exposure_unit_s[0], rel=0.001)


def test_evidence_fades_and_the_ratio_stays() -> None:
    ledger = ledger_of(*[pool(aged(0, 10.0, taken=1.0))] * 50)
    faded = ledger
    for _ in range(int(MEMORY_S / 10)):
        faded = updated(faded, pool(num_hosts=0), window_ms=WINDOW_MS)
    assert faded.exposure_unit_s[0] == pytest.approx(ledger.exposure_unit_s[0] * 0.3678, rel=0.001)
    assert churn_per_unit_h(faded) == pytest.approx(churn_per_unit_h(ledger))
    # A window longer than the memory leaves only itself.
    assert updated(ledger, pool(aged(0, 1.0)), window_ms=10**9).exposure_unit_s[0] == 1e6


def test_the_same_windows_give_the_same_bytes_also_through_a_stored_state() -> None:
    windows = [pool(aged(0, 0.1 * number), aged(30, 1 / 3, taken=0.7), num_hosts=number % 5) for number in range(200)]
    whole = ledger_of(*windows)
    stored = None
    for window in windows:
        stored = updated(stored, window, window_ms=WINDOW_MS)
        stored = msgspec.msgpack.decode(msgspec.msgpack.encode(stored), type=PoolLedger)
    assert stored is not None
    assert msgspec.msgpack.encode(stored) == msgspec.msgpack.encode(whole)


def test_a_wild_pool_leaves_a_state_that_can_be_read() -> None:
    most = 2**62 / 1e6
    ledger = ledger_of(*[pool(aged(0, most, taken=most), aged(10, most), units_micro=2**62)] * 1_000)
    assert max(ledger.exposure_unit_s) == MAX_QUANTITY
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(ledger), type=PoolLedger) == ledger


def test_a_class_of_another_release_counts_where_it_begins() -> None:
    assert ledger_of(pool(aged(45, 1.0))).units_micro[AGE_CLASSES_S.index(30)] == 1_000_000


def test_churn_is_units_lost_per_unit_hour() -> None:
    # An hour of ten units, of which one goes (and another comes) every six minutes.
    windows = [pool(aged(0, 10.0, taken=float(number % 36 == 0))) for number in range(360)]
    assert churn_per_unit_h(ledger_of(*windows)) == pytest.approx(1.0, rel=0.02)
    assert churn_per_unit_h(ledger_of(pool(aged(0, 10.0)))) == 0.0
    assert churn_per_unit_h(ledger_of(pool(aged(0, taken=1.0), num_hosts=0))) is None


def test_the_mean_age_is_of_usable_units() -> None:
    # 2 units of 30 s, 6 of 10 s; 12 more are of no use now.
    window = pool(aged(30, 2.0), aged(10, 6.0), age_unit_ms=120_000, units_micro=20_000_000,
                  unusable=[unusable("memory", 12.0)])  # fmt: skip
    assert mean_age_s(window) == 15.0
    assert mean_age_s(pool(num_hosts=0)) is None
    assert mean_age_s(pool(units_micro=1_000_000, unusable=[unusable("memory", 1.0)])) is None
    assert mean_age_s(pool(aged(0, 1e-6), age_unit_ms=2**62)) == MAX_QUANTITY
    # As ingest of an earlier release wrote it.
    assert mean_age_s(pool(units_micro=1_000_000)) is None
