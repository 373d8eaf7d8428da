"""When a pool is offered: at once away, slowly back, and nothing that flaps around a limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.agent.policy import (
    NOTHING_LEFT,
    OWNER_BUSY,
    PRESSURE,
    SOURCE_SILENT,
    WAITING,
    Needs,
    PolicySettings,
    PoolPolicy,
    Wish,
)
from ops.agent.readings import Reading

S = 1_000_000_000
SETTINGS = PolicySettings(idle_for_s=10.0, stale_after_s=5.0, idle_below=0.1, busy_above=0.4)


def device(owner: float = 0.0, **fields: object) -> Reading:
    return Reading(pool="h200-0", accelerator="h200", units=1.0, owner_units=owner, **fields)  # type: ignore[arg-type]


def cores(owner: float, units: float = 16.0, **fields: object) -> Reading:
    return Reading(pool="cpu", accelerator="cpu", units=units, owner_units=owner, divisible=True, **fields)  # type: ignore[arg-type]


def watched(settings: PolicySettings, readings: list[Reading]) -> list[Wish]:
    """One reading a second."""
    policy = PoolPolicy(settings)
    wishes = []
    for second, reading in enumerate(readings):
        policy.see(reading, second * S)
        wishes.append(policy.wish(second * S))
    return wishes


def offered(wishes: list[Wish]) -> list[bool]:
    return [wish.offer is not None for wish in wishes]


def test_nothing_is_offered_before_it_was_idle_for_long_enough() -> None:
    wishes = watched(SETTINGS, [device()] * 12)
    assert offered(wishes) == [False] * 10 + [True] * 2
    assert {wish.reason for wish in wishes[:10]} == {WAITING}


def test_the_first_busy_reading_takes_it_back_and_the_wait_begins_anew() -> None:
    wishes = watched(SETTINGS, [device()] * 11 + [device(0.5)] + [device()] * 11)
    assert offered(wishes) == [False] * 10 + [True] + [False] * 11 + [True]
    assert wishes[11].reason == OWNER_BUSY


def test_between_the_limits_what_is_offered_stays_and_what_is_not_is_not() -> None:
    wishes = watched(SETTINGS, [device()] * 11 + [device(0.3)] * 30)
    assert offered(wishes) == [False] * 10 + [True] * 31
    assert not any(offered(watched(SETTINGS, [device(0.3)] * 40)))
    # A reading in between is not an idle one: the wait begins anew.
    assert offered(watched(SETTINGS, [device()] * 5 + [device(0.3)] + [device()] * 11)) == [False] * 16 + [True]


@given(st.lists(st.floats(0.1, 0.4), min_size=50, max_size=50))
def test_a_load_that_swings_between_the_limits_flips_nothing(loads: list[float]) -> None:
    wishes = watched(SETTINGS, [device()] * 11 + [device(load) for load in loads])
    assert all(offered(wishes)[10:])


@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)), max_size=80))
def test_never_offered_while_busy_nor_before_the_wait_is_over(readings: list[tuple[float, float]]) -> None:
    wishes = watched(SETTINGS, [device(owner, pressure=pressure) for owner, pressure in readings])
    for index, (wish, (owner, pressure)) in enumerate(zip(wishes, readings, strict=True)):
        if wish.offer is not None:
            assert owner <= SETTINGS.busy_above
            assert pressure <= SETTINGS.pressure_above
            assert index >= 10


def test_pressure_takes_back_and_must_fall_before_it_is_offered_again() -> None:
    high, middle = device(pressure=0.25), device(pressure=0.15)
    wishes = watched(SETTINGS, [device()] * 11 + [middle, high] + [middle] * 20)
    assert offered(wishes) == [False] * 10 + [True, True] + [False] * 21
    assert wishes[12].reason == PRESSURE


def test_a_fault_takes_back_with_its_own_reason() -> None:
    wishes = watched(SETTINGS, [device()] * 11 + [device(fault="uncorrected_ecc_errors")])
    assert wishes[-1] == Wish(None, "uncorrected_ecc_errors")


def test_without_readings_it_is_taken_back_and_the_wait_begins_anew() -> None:
    policy = PoolPolicy(SETTINGS)
    assert policy.wish(0) == Wish(None, SOURCE_SILENT)
    for second in range(11):
        policy.see(device(), second * S)
    assert policy.wish(10 * S).offer is not None
    assert policy.wish(15 * S).offer is not None
    assert policy.wish(16 * S) == Wish(None, SOURCE_SILENT)
    policy.see(device(), 17 * S)
    assert policy.wish(17 * S).reason == WAITING
    # Also where nobody asked while it was blind.
    policy.see(device(), 40 * S)
    assert policy.wish(40 * S).offer is None


def test_of_cores_that_much_is_offered_as_the_busiest_reading_left_less_the_reserve() -> None:
    settings = PolicySettings(idle_for_s=3.0, idle_below=0.5, busy_above=0.8, reserve_units=2.0)
    wishes = watched(settings, [cores(4.0), cores(6.2), cores(1.0), cores(1.0), cores(9.0), *[cores(1.0)] * 5])
    units = [wish.offer.units if wish.offer else None for wish in wishes]
    # At once down to what 9 busy cores leave, and back only when they are out of the last three seconds.
    assert units == [None, None, None, 7.0, 5.0, 5.0, 5.0, 5.0, 13.0, 13.0]


def test_a_reserve_that_leaves_nothing_offers_nothing() -> None:
    settings = PolicySettings(idle_for_s=0.0, idle_below=0.9, busy_above=0.95, reserve_units=15.0)
    assert watched(settings, [cores(1.5)])[-1] == Wish(None, NOTHING_LEFT)


@pytest.mark.parametrize(
    ("needs", "reading", "reason"),
    [
        (Needs(accelerators=("h100",)), device(), "model_format"),
        (Needs(device_memory_bytes=10), device(device_memory_bytes=9), "memory"),
        (Needs(device_memory_bytes=10), device(), None),
        (Needs(cpu_cores=2.0), device(cpu_cores=1.0), "missing_cpu"),
        (Needs(lasts_s=61.0), device(), "too_short"),
        (Needs(lasts_s=60.0), device(), None),
        (Needs(), device(unusable="model_format"), "model_format"),
    ],
)
def test_what_lacks_something_is_offered_as_unusable_with_the_reason(
    needs: Needs, reading: Reading, reason: str | None
) -> None:
    policy = PoolPolicy(PolicySettings(idle_for_s=0.0, needs=needs))
    policy.see(reading, 0)
    offer = policy.wish(0, lasts_s=60.0).offer
    assert offer is not None
    assert offer.unusable == reason


def test_cores_beside_a_device_are_no_more_than_the_host_has_idle() -> None:
    policy = PoolPolicy(PolicySettings(idle_for_s=0.0, cpu_cores=8.0, memory_bytes=100, needs=Needs(cpu_cores=4.0)))
    policy.see(device(), 0)
    plenty, few = policy.wish(0, host_cores=20.0).offer, policy.wish(0, host_cores=3.0).offer
    assert plenty is not None
    assert few is not None
    assert (plenty.cpu_cores, plenty.memory_bytes, plenty.unusable) == (8.0, 100, None)
    assert (few.cpu_cores, few.unusable) == (3.0, "missing_cpu")


def test_a_readings_own_words_override_the_settings() -> None:
    policy = PoolPolicy(PolicySettings(idle_for_s=0.0, idle_cause="off_peak", provider="own"))
    policy.see(device(idle_cause="not_ported", provider="cloud"), 0)
    offer = policy.wish(0).offer
    assert offer is not None
    assert (offer.idle_cause, offer.provider) == ("not_ported", "cloud")


@pytest.mark.parametrize(
    ("limits", "named"),
    [({"idle_below": 0.5, "busy_above": 0.5}, "idle_below"), ({"pressure_below": 0.3}, "pressure_below")],
)
def test_limits_that_leave_no_room_for_hysteresis_are_refused(limits: dict[str, float], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        PolicySettings(**limits)  # type: ignore[arg-type]
