"""Bad, missing, repeated and scarce measurements; changes of gains, limits and of who rules."""

import math
from collections.abc import Callable

import msgspec
import pytest

from schemas.records import ControlWindow
from streams.control.gains import Gains
from streams.control.settings import ControlSettings
from tests.loop.plants import LinearPlant, QueuePlant
from tests.loop.rig import LIMITS, SPAN, Rig, assert_refused
from tests.unit.streams.control_makers import latency_window

Windows = Callable[[Rig], list[ControlWindow]]


def running(**changes) -> Rig:
    rig = Rig(plant=QueuePlant(), **changes)
    rig.run(40)
    return rig


def no_reporter(rig: Rig) -> list[ControlWindow]:
    empty = latency_window(rig.index, num_requests=0, num_routers=0, offered=0, window_ms=rig.window_ms)
    return [rig.capacity(), empty]


def garbage_counts(rig: Rig) -> list[ControlWindow]:
    """Counts as large as a record can carry, whose sum is larger; the window waits in the state for its pair."""
    window = rig.latency()
    assert window.latency is not None
    (account,) = window.latency.accounts
    huge = msgspec.structs.replace(account, offered=2**62, admitted=0)
    latency = msgspec.structs.replace(window.latency, accounts=[huge] * 3)
    return [msgspec.structs.replace(window, latency=latency), rig.capacity()]


def zero_limit(rig: Rig) -> list[ControlWindow]:
    """A limit that nothing can keep, as small as a record can carry it."""
    window = rig.capacity()
    assert window.capacity is not None
    limits = msgspec.structs.replace(rig.limits, latency_limit_ms=0.0)
    capacity = msgspec.structs.replace(window.capacity, limits=limits)
    return [rig.latency(), msgspec.structs.replace(window, capacity=capacity)]


@pytest.mark.parametrize("fault", [no_reporter, garbage_counts, zero_limit])
def test_a_fault_never_raises_the_target_nor_stays_in_the_state(fault: Windows):
    rig = running()
    rest = rig.extras
    for _ in range(5):
        before = rig.extras
        rig.feed(fault(rig))
        assert rig.extras <= before
    assert rig.extras == 0
    series = rig.run(60)
    assert series[-1] == pytest.approx(rest, rel=0.02)
    assert math.isfinite(rig.state.loop.target)


@pytest.mark.parametrize("figure", ["latency_limit_ms", "rise_share", "utilisation"])
def test_a_window_that_carries_no_number_is_refused_and_only_skipped(figure):
    rig = running()
    rest = rig.extras
    window = rig.capacity()
    assert window.capacity is not None
    limits = msgspec.structs.replace(LIMITS, **{figure: math.nan})
    poisoned = msgspec.structs.replace(window, capacity=msgspec.structs.replace(window.capacity, limits=limits))
    assert_refused(poisoned)
    assert rig.feed([rig.latency()]) == []
    rig.index += 1
    assert abs(rig.tick().candidate_target - LIMITS.base_candidates - rest) <= 0.02 * SPAN
    assert "1 windows before this one were skipped" in rig.targets[-1].detail


def test_a_window_without_requests_holds_the_target():
    rig = running()
    rest = rig.extras
    for _ in range(20):
        quiet = latency_window(rig.index, num_requests=0, num_routers=1, offered=0, window_ms=rig.window_ms)
        rig.feed([rig.capacity(), quiet])
        assert (rig.extras, rig.targets[-1].reason) == (rest, "steady")
    assert abs(rig.run(1)[0] - rest) <= 0.02 * SPAN


def test_stale_and_repeated_windows_move_nothing():
    rig = Rig(plant=QueuePlant())
    log: list[ControlWindow] = []
    for _ in range(15):
        capacity, latency = rig.capacity(), rig.latency()
        log += [capacity, latency]
        # The pair, the pair again, and one from long ago: one tick, and the same record for what is said twice.
        made = rig.feed([capacity, latency, capacity, latency, *log[:2]])
        assert len({msgspec.json.encode(target) for target in made}) == 1
        del rig.targets[-len(made) + 1 :]
    assert [target.candidate_target for target in rig.targets] == [
        extras + LIMITS.base_candidates for extras in Rig(plant=QueuePlant()).run(15)
    ]


@pytest.mark.parametrize("rate_per_s", [0.1, 0.3])
def test_a_cell_with_a_request_now_and_then_leaves_base(rate_per_s):
    # One or three requests in a window, where fifty samples make a p99.
    plant = QueuePlant(rate_per_s=rate_per_s)
    plant.capacity_per_s *= rate_per_s / 10.0
    rig = Rig(plant=plant)
    series = rig.run(400)
    assert series[0] == 0
    assert series[-1] >= 30
    moved = next(target for target in rig.targets if target.candidate_target > LIMITS.base_candidates)
    # It names every window that its p99 was made from.
    assert len([ref for ref in moved.manifest if ref.kind == "latency"]) == math.ceil(50 / round(10 * rate_per_s))
    assert "samples of" in moved.detail


def test_scarce_samples_are_judged_together_not_one_by_one():
    # Windows of twenty requests, of which one in three is terrible: no window is enough to fall by, three are.
    rig = Rig(plant=LinearPlant())
    rig.run(60)
    rest = rig.extras
    for number in range(3):
        latency_ms = 2_000.0 if number == 1 else 40.0
        window = latency_window(
            rig.index, num_requests=20, latency_ms=latency_ms, offered=20 * rig.extras, window_ms=rig.window_ms
        )
        rig.feed([rig.capacity(), window])
        assert rig.extras == rest or number == 2
    assert rig.targets[-1].reason == "latency"
    assert rig.extras < rest / 2


GAINS = [
    Gains(proportional=0.5, integral=0.6, rise_integral=1.0, derivative=0.3),
    Gains(proportional=0.0, derivative=0.0, rise_integral=0.1),
    Gains(setpoint_share=0.5),
    Gains(derivative_filter_ticks=20.0, gain_floor=1.0),
]


@pytest.mark.parametrize("gains", GAINS)
@pytest.mark.parametrize("num_ticks", [8, 14, 40])
def test_new_gains_make_no_jump_on_the_ramp_nor_at_rest(gains, num_ticks):
    rig = Rig(plant=QueuePlant(noise=0.1))
    rig.run(num_ticks)
    before = rig.extras
    rig.settings = ControlSettings(gains=gains)
    assert abs(rig.run(1)[0] - before) <= 0.01 * SPAN


@pytest.mark.parametrize("num_ticks", [8, 14, 40])
@pytest.mark.parametrize(
    "changes",
    [
        {"latency_limit_ms": 60.0},
        {"latency_limit_ms": 1_000.0},
        {"max_candidates": 900},
        {"base_candidates": 90},
        {"rise_share": 1.0},
        {"shed_allowance": 0.5},
    ],
)
def test_new_limits_make_no_jump_and_rule_from_the_next_tick(changes, num_ticks):
    rig = Rig(plant=QueuePlant(noise=0.1))
    rig.run(num_ticks)
    before = rig.targets[-1].candidate_target
    rig.limits = msgspec.structs.replace(LIMITS, **changes)
    span = rig.limits.max_candidates - rig.limits.base_candidates
    assert abs(rig.tick().candidate_target - before) <= 0.01 * span
    assert "changed" in rig.targets[-1].detail
    rig.tick()
    assert "changed" not in rig.targets[-1].detail


@pytest.mark.parametrize("num_ticks", [8, 14, 40])
def test_a_freeze_and_its_end_make_no_jump(num_ticks):
    rig = Rig(plant=QueuePlant(noise=0.1))
    rig.run(num_ticks)
    before = rig.extras
    rig.command("freeze")
    assert rig.run(10) == [before] * 10
    rig.command("resume")
    assert abs(rig.run(1)[0] - before) <= 0.01 * SPAN


def test_an_override_and_its_end_leave_the_target_where_the_operator_put_it():
    rig = running()
    rig.command("override", candidate_target=LIMITS.base_candidates + 200)
    assert rig.run(5) == [200] * 5
    rig.command("resume")
    assert abs(rig.run(1)[0] - 200) <= 0.01 * SPAN
