"""Shares: they sum up to the coverage, keep the floor, follow the order of estimates, and never leave [0, 1]."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.segments import OTHER_SEGMENT
from streams.control.coverage.mix import Traffic
from streams.control.coverage.shares import MIX_ERROR, Shares, reach, shares_for

# As well known as a mix can be: the order counts in full.
KNOWN = 1e12
ROUNDED = 1e-6
NAMES = ("a", "b", "c", "d", OTHER_SEGMENT)


def traffic(*segments: tuple[str, float, float]) -> tuple[Traffic, ...]:
    return tuple(Traffic(segment=name, weight=weight, allowed_share=allowed) for name, weight, allowed in segments)


@st.composite
def mixes(draw: st.DrawFn) -> tuple[Traffic, ...]:
    names = sorted(draw(st.sets(st.sampled_from(NAMES), min_size=1)))
    parts = [draw(st.integers(0, 1_000)) for _ in names]
    parts[draw(st.integers(0, len(names) - 1))] += 1
    return traffic(
        *((name, part / sum(parts), draw(st.floats(0.0, 1.0))) for name, part in zip(names, parts, strict=True))
    )


ESTIMATES = st.dictionaries(
    st.sampled_from([*NAMES, "unseen"]), st.floats(allow_nan=True) | st.sampled_from([0.0, 1.0, 2.0])
)
SHARES = st.floats(0.0, 1.0)


def assigned(shares: Shares, mix: tuple[Traffic, ...]) -> float:
    return math.fsum(segment.weight * segment.allowed_share * shares.of(segment.segment) for segment in mix)


@settings(max_examples=500)
@given(coverage=SHARES, mix=mixes(), floor=SHARES, estimates=ESTIMATES, known=st.floats(0.0, KNOWN))
def test_shares_sum_up_to_the_coverage_or_to_all_there_is(coverage, mix, floor, estimates, known):
    shares = shares_for(coverage, mix, exploration_share=floor, estimates=estimates, num_effective=known)
    assert assigned(shares, mix) == pytest.approx(min(coverage, reach(mix)), abs=ROUNDED)
    assert shares.reached == pytest.approx(assigned(shares, mix), abs=1e-12)
    everyone = [share for _, share in shares.by_segment] + [shares.other]
    assert all(0.0 <= share <= 1.0 for share in everyone)
    assert [name for name, _ in shares.by_segment] == sorted(
        segment.segment for segment in mix if segment.segment != OTHER_SEGMENT
    )


@settings(max_examples=300)
@given(coverage=SHARES, mix=mixes(), floor=SHARES, estimates=ESTIMATES, known=st.floats(0.0, KNOWN))
def test_every_segment_keeps_its_floor(coverage, mix, floor, estimates, known):
    shares = shares_for(coverage, mix, exploration_share=floor, estimates=estimates, num_effective=known)
    equal = 1.0 if coverage >= reach(mix) else coverage / reach(mix)
    assert all(share >= floor * equal - ROUNDED for share in [*dict(shares.by_segment).values(), shares.other])


@settings(max_examples=300)
@given(coverage=SHARES, mix=mixes(), floor=SHARES, estimates=ESTIMATES, known=st.floats(0.0, KNOWN))
def test_no_better_segment_that_asks_has_less_and_the_worse_get_nothing_before_the_better_are_full(
    coverage, mix, floor, estimates, known
):
    shares = shares_for(coverage, mix, exploration_share=floor, estimates=estimates, num_effective=known)
    rated = [
        segment
        for segment in mix
        if segment.segment != OTHER_SEGMENT
        and math.isfinite(estimates.get(segment.segment, math.nan))
        and segment.weight * segment.allowed_share > 1e-9
    ]
    for better in rated:
        for worse in rated:
            if estimates[better.segment] >= estimates[worse.segment]:
                assert shares.of(better.segment) >= shares.of(worse.segment) - ROUNDED


def test_without_estimates_all_are_alike():
    mix = traffic(("a", 0.7, 0.9), ("b", 0.3, 0.5))
    shares = shares_for(0.39, mix, exploration_share=0.05, estimates={}, num_effective=KNOWN)
    # 0.7 x 0.9 + 0.3 x 0.5 = 0.78
    assert shares.by_segment == (("a", 0.5), ("b", 0.5))
    assert shares.other == 0.5


def test_the_best_are_filled_first_above_the_floor():
    mix = traffic(("a", 0.2, 1.0), ("b", 0.3, 1.0), ("c", 0.5, 1.0))
    shares = shares_for(0.4, mix, exploration_share=0.1, estimates={"a": 1.0, "b": 3.0, "c": 2.0}, num_effective=KNOWN)
    # Floor 0.04 each, ceiling 0.94; 0.36 left: b takes 0.3 x 0.9 = 0.27, c the other 0.09 of its 0.5.
    assert dict(shares.by_segment) == {"a": 0.04, "b": 0.94, "c": pytest.approx(0.04 + 0.09 / 0.5, abs=ROUNDED)}


@settings(max_examples=200)
@given(coverage=SHARES, mix=mixes(), explored=SHARES, estimates=ESTIMATES)
def test_who_is_measured_keeps_somebody_who_is_not_upgraded(coverage, mix, explored, estimates):
    shares = shares_for(coverage, mix, exploration_share=explored, estimates=estimates, num_effective=KNOWN)
    equal = 1.0 if coverage >= reach(mix) else coverage / reach(mix)
    most = 1.0 - explored * (1.0 - equal)
    assert all(share <= most + ROUNDED for share in [*dict(shares.by_segment).values(), shares.other])


def test_who_is_owed_a_part_of_an_equal_share_has_it_whatever_it_earns():
    mix = traffic(("a", 0.5, 1.0), ("b", 0.5, 1.0))
    shares = shares_for(
        0.4, mix, exploration_share=0.05, estimates={"a": 1.0, "b": 3.0}, num_effective=KNOWN, owed={"a": 0.5, "b": 2.0}
    )
    # b is owed no more than an equal share: what is left goes by the order.
    assert dict(shares.by_segment) == {"a": 0.2, "b": pytest.approx(0.6, abs=ROUNDED)}


def test_equals_share_alike_and_what_nothing_is_known_of_has_its_equal_part():
    mix = traffic(("a", 0.25, 1.0), ("b", 0.25, 1.0), ("c", 0.25, 1.0), (OTHER_SEGMENT, 0.25, 1.0))
    estimates = {"a": 2.0, "b": 2.0, "c": math.inf, OTHER_SEGMENT: 9.0}
    shares = shares_for(0.4, mix, exploration_share=0.0, estimates=estimates, num_effective=KNOWN)
    assert dict(shares.by_segment) == {"a": 0.4, "b": 0.4, "c": 0.4}
    assert shares.other == 0.4


def test_an_order_that_a_barely_known_mix_could_not_bear_counts_less():
    mix = traffic(("a", 0.5, 1.0), ("b", 0.5, 1.0))
    estimates = {"a": 2.0, "b": 1.0}
    by_known = [
        dict(shares_for(0.5, mix, exploration_share=0.0, estimates=estimates, num_effective=known).by_segment)
        for known in (0.0, 2_500.0, 10_000.0, KNOWN)
    ]
    assert by_known[0] == {"a": 0.5, "b": 0.5}
    # d = 0.5: k = 0.005 x 50 / 0.5 = 0.5.
    assert by_known[1] == {"a": 0.75, "b": 0.25}
    assert by_known[2] == by_known[3] == {"a": 1.0, "b": 0.0}
    assert MIX_ERROR * math.sqrt(2_500.0) / 0.5 == 0.5


def test_nobody_seen_yet_has_the_coverage_itself():
    shares = shares_for(0.3, (), exploration_share=0.05, estimates={"a": 1.0}, num_effective=0.0)
    assert (shares.by_segment, shares.other, shares.reached) == ((), 0.3, 0.3)


def test_more_than_can_be_reached_is_everything():
    mix = traffic(("a", 0.5, 0.8), ("b", 0.5, 0.6))
    shares = shares_for(0.9, mix, exploration_share=0.05, estimates={"a": 1.0, "b": 2.0}, num_effective=KNOWN)
    assert dict(shares.by_segment) == {"a": 1.0, "b": 1.0}
    assert shares.reached == pytest.approx(0.7)
