"""New, rare and silent segments, and new models: what is not known is tried, and what was known before is a prior."""

from dataclasses import replace

import msgspec

from streams.control.uplift.cohorts import HALF_LIFE_COHORTS
from streams.control.uplift.exploration import segment_gains, upper_bounds
from tests.loop.measured_rig import ClosedLoop
from tests.measured_world import MeasuredWorld, Segment, WorldSettings

SETTINGS = WorldSettings(num_requests=8_000, num_users=9_000, cohorts_per_tick=30, tail=0.5, max_delay=0, attribution=1)
FINANCE = Segment(name="finance", weight=0.5, worth=2.0, upgrade=0.02, click_rate=2.0)
TRAVEL = Segment(name="travel", weight=0.5, worth=1.0, upgrade=0.4, click_rate=2.0)
RARE = Segment(name="rare", weight=0.02, worth=1.0, upgrade=0.3, click_rate=2.0)


def _loop(*segments: Segment, seed: int = 2) -> ClosedLoop:
    return ClosedLoop(MeasuredWorld(segments, seed=seed, settings=SETTINGS), coverage=0.25)


def test_a_new_segment_has_its_equal_part_until_it_is_known_and_then_what_it_earns():
    new = Segment(name="new", weight=0.0, worth=1.0, upgrade=0.9, click_rate=2.0)
    loop = _loop(FINANCE, TRAVEL, new)
    assert "new" not in loop.run(10)[-1].measured.estimates
    loop.world.segments[2] = replace(new, weight=0.25)
    after = loop.run(14)
    # Nothing of it has matured yet: an equal part, neither the floor nor everything.
    assert 0.25 < after[0].next_shares["new"] < 0.4
    known = next(at for at, step in enumerate(after) if "new" in step.measured.estimates)
    trusted = next(at for at, step in enumerate(after) if step.next_shares["new"] > 0.8)
    print(f"a new segment is known after {known} ticks and has what it earns after {trusted}")
    assert known <= 6
    assert trusted <= known + 6


def test_of_a_rare_segment_is_known_what_is_known_of_all_and_it_keeps_its_floor():
    loop = _loop(FINANCE, TRAVEL, RARE)
    steps = loop.run(12)
    gains = segment_gains(loop.state)
    errors = {name: gain.standard_error for name, gain in gains.items()}
    # Its error is that of the spread between segments at most, not that of its few requests alone.
    others = [gains["finance"].effect, gains["travel"].effect]
    assert errors["finance"] < errors["rare"] < max(others)
    assert min(others) - errors["rare"] < gains["rare"].effect < max(others) + errors["rare"]
    assert all(step.next_shares["rare"] >= 0.05 * 0.25 for step in steps)


def test_a_segment_that_falls_silent_is_known_less_and_less_and_so_is_one_that_draws_no_more():
    loop = _loop(FINANCE, TRAVEL, RARE)
    loop.run(10)
    state = loop.state
    index = upper_bounds(segment_gains(state))["finance"]
    finance = state.segments["finance"]
    bounds, errors = [index], [segment_gains(state)["finance"].standard_error]
    for half_lives in (2, 4, 6):
        silent = msgspec.structs.replace(
            finance, matured_cohort=max(0, finance.matured_cohort - half_lives * HALF_LIFE_COHORTS)
        )
        gains = segment_gains(msgspec.structs.replace(state, segments={**state.segments, "finance": silent}))
        bounds.append(upper_bounds(gains)["finance"])
        errors.append(gains["finance"].standard_error)
    assert bounds == sorted(bounds)
    assert errors == sorted(errors)
    assert bounds[-1] > bounds[0]
    # No draw for a while, as at full coverage: the same sums, ever more of whose requests were not drawn.
    before = segment_gains(loop.state)["travel"].standard_error
    for _ in range(12):
        loop.take(loop.world.tick({}))
    assert segment_gains(loop.state)["travel"].standard_error > before


def test_a_new_model_starts_anew_with_what_was_known_as_a_prior():
    loop = _loop(FINANCE, TRAVEL)
    loop.run(14)
    before = segment_gains(loop.state)
    assert before["travel"].effect > 4.0 * before["travel"].standard_error
    loop.world.settings = replace(loop.world.settings, powerful="p-2")
    finance, travel = loop.world.segments
    loop.world.segments = [replace(finance, upgrade=0.3), replace(travel, upgrade=0.02)]
    steps = loop.run(12)
    sums = loop.state.segments["travel"]
    assert sums.prior
    followed = next(at for at, step in enumerate(steps) if step.next_shares["finance"] > 0.5)
    print(f"shares follow a new model after {followed} ticks")
    # Within a half-life: nothing of the old model has to fade first.
    assert followed <= HALF_LIFE_COHORTS // SETTINGS.cohorts_per_tick
