"""Who asks: what is remembered of a mix, for how long, and from how many requests."""

import math

import pytest

from schemas.records import SegmentTraffic
from schemas.segments import OTHER_SEGMENT
from streams.control.coverage.mix import MAX_SEGMENTS, Mix, num_effective, traffic_of, updated


def window(allowed: float = 0.9, **counts: int) -> tuple[SegmentTraffic, ...]:
    return tuple(
        SegmentTraffic(segment=name, num_requests=num, num_allowed=round(allowed * num))
        for name, num in sorted(counts.items())
    )


def weights(mix: Mix) -> dict[str, float]:
    return {traffic.segment: traffic.weight for traffic in traffic_of(mix)}


def test_weights_are_those_of_the_requests_and_sum_up_to_one():
    mix = updated(Mix(), window(a=30, b=10))
    assert weights(mix) == {"a": 0.75, "b": 0.25}
    assert [traffic.allowed_share for traffic in traffic_of(mix)] == pytest.approx([0.9, 0.9])
    assert num_effective(mix) == pytest.approx(40.0)


def test_ten_windows_after_a_shift_a_hundredth_is_left_of_what_was():
    mix = Mix()
    for _ in range(100):
        mix = updated(mix, window(a=500))
    for _ in range(10):
        mix = updated(mix, window(b=500))
    assert weights(mix)["a"] == pytest.approx(0.65**10, rel=1e-9)
    assert weights(mix)["b"] > 0.98


def test_who_is_allowed_is_remembered_for_longer():
    mix = Mix()
    for _ in range(200):
        mix = updated(mix, window(0.9, a=500))
    mix = updated(mix, window(0.0, a=500))
    (traffic,) = traffic_of(mix)
    assert traffic.allowed_share == pytest.approx(0.9 * (1.0 - 0.02), abs=0.001)


def test_a_handful_of_requests_does_not_make_a_mix():
    mix = Mix()
    for _ in range(50):
        mix = updated(mix, window(a=100, b=100))
    mix = updated(mix, window(b=2))
    assert weights(mix)["b"] == pytest.approx(0.5, abs=0.01)
    # Windows of two requests each come to rest at what two windows of fifty know.
    for _ in range(1_000):
        mix = updated(mix, window(b=2))
    assert num_effective(mix) > 100.0
    assert updated(mix, ()) == mix
    assert updated(mix, window(a=0)) == mix


def test_the_mix_is_known_from_as_many_requests_as_a_faded_sum_holds():
    mix = Mix()
    for _ in range(200):
        mix = updated(mix, window(a=100))
    # n (1 + f) / (1 - f) with f = 0.65.
    assert num_effective(mix) == pytest.approx(100 * 1.65 / 0.35, rel=1e-6)


def test_a_small_segment_leans_on_the_cell_for_who_is_allowed():
    mix = updated(Mix(), (*window(0.8, a=1_000), SegmentTraffic(segment="b", num_requests=1, num_allowed=0)))
    small = {traffic.segment: traffic.allowed_share for traffic in traffic_of(mix)}["b"]
    assert small == pytest.approx((0 + 20 * 800 / 1_001) / 21)


def test_segments_without_end_are_kept_together_and_the_forgotten_let_go():
    mix = Mix()
    for number in range(300):
        mix = updated(mix, window(**{f"s{number:03d}": 50 + number, "always": 500}))
    assert len(mix.segments) == MAX_SEGMENTS + 1
    assert [memory.segment for memory in mix.segments] == sorted(memory.segment for memory in mix.segments)
    assert OTHER_SEGMENT in weights(mix)
    assert math.fsum(weights(mix).values()) == pytest.approx(1.0)
    for _ in range(2_000):
        mix = updated(mix, window(always=500))
    assert list(weights(mix)) == ["always"]


def test_no_one_has_asked():
    assert traffic_of(Mix()) == ()
    assert num_effective(Mix()) == 0.0
