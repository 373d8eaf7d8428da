"""What is measured of a cell: cohorts wait for their outcomes, count once, and belong to a model version."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from schemas.records import CellLimits
from schemas.segments import MAX_SEGMENTS, OTHER_SEGMENT
from streams.control.uplift import cohorts, layout
from streams.control.uplift.cohorts import MAX_PENDING_BYTES, matured
from streams.control.uplift.layout import column
from streams.control.uplift.publish import pending_requests, ticked_measurement, uplift_records
from streams.control.uplift.state import (
    ALL,
    MeasurementState,
    SumsError,
    decode_sums,
    encode_sums,
)
from streams.control.uplift.summary import summary
from streams.control.uplift.taking_in import take_in
from streams.control.uplift.versions import era_of
from tests.unit.streams.uplift_makers import (
    ATTRIBUTION_MS,
    COHORT_MS,
    WINDOW_MS,
    Said,
    outcomes_window,
    results_window,
    world,
)

# Cohort 10 is [20 s, 22 s); its attribution window ends at 32 s, and windows have three more windows to come.
COHORT = 10
LIMITS = CellLimits(base_candidates=100, max_candidates=600, latency_limit_ms=150.0)
DUE_MS = (COHORT + 1) * COHORT_MS + ATTRIBUTION_MS + cohorts.GRACE_WINDOWS * WINDOW_MS
# Its outcomes, and one window by which the log of outcomes has got beyond its attribution window.
OUTCOMES_AT = 13
BEYOND_AT = DUE_MS // WINDOW_MS - 1
NOBODY: list[Said] = []
NOTHING = MeasurementState()


def taken(*windows, state=NOTHING):
    for window in windows:
        state = take_in(state, window)
    return state


def one_cohort(said, **kwargs):
    return taken(
        results_window(COHORT, said, **kwargs),
        outcomes_window(OUTCOMES_AT, said, cohort=COHORT, is_aa=kwargs.get("is_aa", False)),
        results_window(BEYOND_AT, NOBODY),
        outcomes_window(BEYOND_AT, NOBODY, cohort=0),
    )


def effect(record, contrast, measure="clicks"):
    return next(each for each in record.effects if (each.contrast, each.measure) == (contrast, measure))


def records(state, now_ms):
    index = now_ms // WINDOW_MS - 1
    state = ticked_measurement(state, window_index=index, window_end_ms=now_ms)
    return state, {each.segment: each for each in uplift_records(state, window_index=index, window_end_ms=now_ms)}


def test_an_effect_is_the_difference_of_the_means_of_what_was_assigned():
    said = world(1)
    _, found = records(one_cohort(said), DUE_MS)
    assert sorted(found) == [ALL, "news", "shop"]
    for segment in (ALL, "news", "shop"):
        own = [each for each in said if segment in (ALL, each.segment)]
        with_sbm, without = ([each for each in own if each.arm in arms] for arms in (("sbm", "both"), ("none", "rma")))
        means = [
            sum(each.clicks for each in side) / sum(each.num_requests for each in side) for side in (with_sbm, without)
        ]
        sbm = effect(found[segment], "sbm")
        assert sbm.effect == pytest.approx(means[0] - means[1], rel=1e-12)
        assert sbm.lower < sbm.fixed_lower < sbm.effect < sbm.fixed_upper < sbm.upper
        assert found[segment].num_requests == sum(each.num_requests for each in own)
        assert found[segment].pending_requests == 0


def test_what_was_drawn_is_weighted_by_its_propensity():
    said = [
        replace(each, propensity=0.8 if each.upgrade == "yes" and each.bucket < 32 else each.propensity)
        for each in world(2)
    ]
    _, found = records(one_cohort(said), DUE_MS)
    sides = []
    for drawn in ("yes", "no"):
        own = [each for each in said if each.upgrade == drawn]
        clicks = sum(each.clicks / each.propensity for each in own)
        sides.append(clicks / sum(each.num_requests / each.propensity for each in own))
    upgrade = effect(found[ALL], "upgrade")
    assert upgrade.effect == pytest.approx(sides[0] - sides[1], rel=1e-4)
    # Four in five of the upgrades were served (rounded down in each bucket).
    assert upgrade.delivered == pytest.approx(upgrade.effect / 0.79, rel=0.02)


def test_a_cohort_waits_until_all_that_can_come_of_it_has_come():
    state = one_cohort(world(3))
    early, found = records(state, DUE_MS - WINDOW_MS)
    assert found == {}
    assert pending_requests(early.of("shop")) == sum(each.num_requests for each in world(3) if each.segment == "shop")
    assert not early.of("shop").claims
    late, found = records(early, DUE_MS)
    assert found["shop"].num_requests > 0
    assert late.of("shop").pending == ()


def test_outcomes_that_stand_still_are_not_taken_for_users_who_do_nothing():
    said = world(4)
    state = taken(
        results_window(COHORT, said),
        outcomes_window(OUTCOMES_AT, said, cohort=COHORT),
        results_window(BEYOND_AT, NOBODY),
    )
    for now_ms in range(DUE_MS, DUE_MS + 100 * WINDOW_MS, 10 * WINDOW_MS):
        state, found = records(state, now_ms)
        assert found == {}
    state = take_in(state, outcomes_window(BEYOND_AT + 90, NOBODY, cohort=0))
    _, found = records(state, DUE_MS + 100 * WINDOW_MS)
    assert found["shop"].num_requests > 0


def test_a_partition_that_is_behind_is_waited_for_by_one_more_attribution_window():
    state = one_cohort(world(5))
    # Another partition of outcomes has said nothing since the cohort began.
    state = take_in(state, outcomes_window(COHORT, NOBODY, cohort=0, partition=1))
    state, found = records(state, DUE_MS + ATTRIBUTION_MS - WINDOW_MS)
    assert found == {}
    _, found = records(state, DUE_MS + ATTRIBUTION_MS)
    assert found["shop"].num_requests > 0


def test_what_comes_of_a_matured_cohort_is_counted_and_not_summed():
    said = world(6)
    state, found = records(one_cohort(said), DUE_MS)
    before = state.of("shop").claims
    state = take_in(state, outcomes_window(BEYOND_AT + 1, said, cohort=COHORT))
    state = matured(state, DUE_MS + 50 * WINDOW_MS)
    assert state.of("shop").claims == before
    num_late = sum(each.clicks for each in said if each.segment == "shop")
    assert state.of("shop").num_late_outcomes == num_late
    assert found["shop"].num_late_outcomes == 0


def test_a_window_counts_once_and_order_within_an_attribution_window_does_not_matter():
    said = world(7)
    windows = [
        results_window(COHORT, said),
        results_window(COHORT, said[:100], partition=3),
        outcomes_window(OUTCOMES_AT, said, cohort=COHORT),
        outcomes_window(OUTCOMES_AT, said[:50], cohort=COHORT, partition=2),
    ]
    closing = [results_window(BEYOND_AT, NOBODY), outcomes_window(BEYOND_AT, NOBODY, cohort=0)]
    once = taken(*windows, *closing)
    assert taken(*windows, *windows, *closing) == once
    # Outcomes may be in the log before the results that they are of.
    swapped = taken(*reversed(windows), *closing)
    assert matured(swapped, DUE_MS + 2 * ATTRIBUTION_MS).of(ALL).claims == (
        matured(once, DUE_MS + 2 * ATTRIBUTION_MS).of(ALL).claims
    )


def test_a_new_model_version_starts_anew_and_the_old_one_is_kept_as_a_prior():
    said = world(8)
    state = one_cohort(said)
    state, found = records(state, DUE_MS)
    assert (found["shop"].baseline_version, found["shop"].powerful_version) == ("b1", "p1")
    old = state.of("shop").steering
    # A cohort of which half is of the new version changes nothing; a later one is of the new version alone.
    mixed, new = BEYOND_AT + 2, BEYOND_AT + 4
    state = taken(
        results_window(mixed, said[:320], version="p1"),
        results_window(mixed, said[:320], version="p2", partition=1),
        results_window(new, said, version="p2"),
        results_window(new, NOBODY, partition=1),
        results_window(new + 12, NOBODY, version="p2"),
        results_window(new + 12, NOBODY, partition=1),
        outcomes_window(new + 12, NOBODY, cohort=0),
        state=state,
    )
    assert [era.powerful_version for era in state.eras] == ["p1", "p2"]
    assert state.eras[-1].from_cohort == new
    state = matured(state, (new + 13) * WINDOW_MS)
    shop = state.of("shop")
    assert era_of(state.eras, shop.era).powerful_version == "p2"
    assert layout.unpacked(shop.claims)[:, column("arm both", "num_requests")].sum() == sum(
        each.num_requests for each in said if (each.segment, each.arm) == ("shop", "both")
    )
    assert shop.since_ms == new * COHORT_MS
    assert shop.prior != b""
    assert old != shop.steering


def test_what_steers_fades_by_half_in_a_half_life_and_what_claims_does_not():
    said = world(9)
    later = COHORT + cohorts.HALF_LIFE_COHORTS
    state = matured(one_cohort(said), DUE_MS)
    state = taken(
        results_window(later, said),
        results_window(later + 12, NOBODY),
        outcomes_window(later + 12, NOBODY, cohort=0),
        state=state,
    )
    shop = matured(state, (later + 13) * WINDOW_MS).of("shop")
    at = column("arm none", "num_requests")
    num = sum(each.num_requests for each in said if (each.segment, each.arm) == ("shop", "none"))
    assert layout.unpacked(shop.claims)[:, at].sum() == 2 * num
    assert layout.unpacked_faded(shop.steering)[:, at].sum() == pytest.approx(1.5 * num)


def test_a_a_cohorts_are_kept_apart_and_narrow_what_comes_after():
    said = world(10)
    state = matured(one_cohort(said, is_aa=True), DUE_MS)
    assert state.of("shop").claims == b""
    state, found = records(one_cohort(said, is_aa=True), DUE_MS)
    assert found["shop"].is_aa
    assert found["shop"].num_requests == sum(each.num_requests for each in said if each.segment == "shop")
    later = BEYOND_AT + 2
    state = taken(
        results_window(later, said),
        outcomes_window(later + 3, said, cohort=later),
        results_window(later + 12, NOBODY),
        outcomes_window(later + 12, NOBODY, cohort=0),
        state=state,
    )
    _, found = records(state, (later + 13) * WINDOW_MS)
    assert not found["shop"].is_aa
    # The same users did the same in the past: next to nothing of the difference is left to chance.
    plain = effect(records(one_cohort(said), DUE_MS)[1]["shop"], "sbm")
    narrowed = effect(found["shop"], "sbm")
    assert narrowed.fixed_upper - narrowed.fixed_lower < 0.1 * (plain.fixed_upper - plain.fixed_lower)


def test_segments_beyond_the_bound_are_told_together_and_the_whole_is_whole():
    names = [f"s{number:03}" for number in range(MAX_SEGMENTS + 20)]
    said = [Said(segment=name, arm="both", bucket=number % 64) for number, name in enumerate(names)]
    state = taken(results_window(1, said[:40]), results_window(2, said[40:]), results_window(3, said))
    assert len(state.names) == MAX_SEGMENTS + 1
    assert OTHER_SEGMENT in state.names
    assert sorted(state.segments) == sorted([*state.names, ALL])
    assert pending_requests(state.of(ALL)) == 2 * 10 * len(names)
    assert sum(pending_requests(sums) for name, sums in state.segments.items() if name != ALL) == 2 * 10 * len(names)


def test_pending_cohorts_are_bounded_and_lose_nothing():
    said = world(11, segments=("shop",))
    state = MeasurementState()
    num_cohorts = 60
    for cohort in range(num_cohorts):
        state = take_in(state, results_window(cohort, said))
    shop = state.of("shop")
    assert sum(one.size_bytes for one in shop.pending) <= MAX_PENDING_BYTES
    assert 1 < len(shop.pending) < num_cohorts
    assert [one.last for one in shop.pending] == sorted(one.last for one in shop.pending)
    assert pending_requests(shop) == num_cohorts * sum(each.num_requests for each in said)
    # A cohort told together with a later one matures no earlier than that.
    first = shop.pending[0]
    state = take_in(state, outcomes_window(num_cohorts + 100, NOBODY, cohort=0))
    state = take_in(state, results_window(num_cohorts + 100, NOBODY))
    due_ms = (first.last + 1) * COHORT_MS + ATTRIBUTION_MS + cohorts.GRACE_WINDOWS * WINDOW_MS
    assert matured(state, due_ms - 1).of("shop").claims == b""
    assert matured(state, due_ms).of("shop").claims != b""


def test_an_entry_is_canonical_and_has_room_in_a_record_however_full_it_is():
    rng = np.random.default_rng(12)
    said = world(12)
    state, _ = records(one_cohort(said), DUE_MS)
    full = layout.packed(rng.integers(2**50, layout.MAX_SUM, size=(64, layout.NUM_COLUMNS)))
    for cohort in range(BEYOND_AT + 1, BEYOND_AT + 60):
        state = take_in(state, results_window(cohort, said))
    sums = msgspec.structs.replace(state.of("shop"), claims=full, steering=full, prior=full, aa=full)
    data = encode_sums(sums)
    assert decode_sums(data) == sums
    assert encode_sums(decode_sums(data)) == data
    assert len(data) < 1 << 20
    for broken in (b"", b"\x00", b"\x02" + data[1:], data[:-1], b"\x01\xff"):
        with pytest.raises(SumsError):
            decode_sums(broken)


def test_sums_are_held_at_a_bound_and_never_wrap():
    most = layout.empty() + layout.MAX_SUM
    assert (layout.added(most, most) == layout.MAX_SUM).all()
    assert (layout.added(-most, -most) == -layout.MAX_SUM).all()


def test_windows_of_another_length_are_counted_once_as_well():
    said = world(13)
    state = taken(results_window(COHORT, said), outcomes_window(OUTCOMES_AT, said, cohort=COHORT))
    # Twice as long from here on: window 5 of them ends with window 11 of the others.
    again = take_in(state, results_window(4, said, cohort=COHORT, window_ms=2 * WINDOW_MS))
    assert pending_requests(again.of("shop")) == pending_requests(state.of("shop"))
    more = take_in(again, results_window(6, said, cohort=12, window_ms=2 * WINDOW_MS))
    assert pending_requests(more.of("shop")) == 2 * pending_requests(state.of("shop"))


def test_a_split_that_is_off_is_told():
    fair = [each for each in world(14, segments=("shop",)) if each.arm != "holdout"]
    lopsided = [replace(each, num_requests=each.num_requests // (2 if each.arm == "sbm" else 1)) for each in fair]
    # Weights are those of arms of a fifth each.
    even = [replace(each, num_requests=30) for each in world(14, segments=("shop",))]
    _, found = records(one_cohort(even), DUE_MS)
    assert found["shop"].sample_ratio is not None
    assert not found["shop"].sample_ratio.is_mismatch
    _, found = records(one_cohort(lopsided), DUE_MS)
    assert found["shop"].sample_ratio is not None
    assert found["shop"].sample_ratio.is_mismatch


def test_what_steers_is_there_for_each_segment_and_nothing_before_anything_was_measured():
    assert summary(MeasurementState()).estimates == {}
    state, _ = records(one_cohort(world(15)), DUE_MS)
    measured = summary(state, limits=LIMITS)
    assert sorted(measured.estimates) == ["news", "shop"]
    assert [value.segment for value in measured.upgrade_values] == ["news", "shop"]
    assert len(measured.taken) == 4


def test_a_segment_without_outcomes_is_of_no_harm():
    said = [Said(segment="rare", arm="none", bucket=3, num_requests=1, clicks=0)]
    _, found = records(one_cohort(said), DUE_MS)
    assert found["rare"].effects == []
    assert found["rare"].num_requests == 1
