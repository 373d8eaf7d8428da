"""The correction of what is asked for: it follows what routers do not apply, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.records import SegmentShare, SegmentTraffic
from streams.control.coverage.calibration import GAIN, MIN_REQUESTS, MOST, Asked, corrected


def asked(other: float = 0.0, *, saturated: bool = False, **shares: float) -> Asked:
    listed = tuple(SegmentShare(segment=name, share=share) for name, share in sorted(shares.items()))
    return Asked(shares=listed, other_share=other, saturated=saturated)


def met(segment: str, share: float, num: int = 100, num_allowed: int = 90) -> SegmentTraffic:
    """Requests each of which was assigned by that probability."""
    return SegmentTraffic(
        segment=segment, num_requests=num, num_allowed=num_allowed, probability_micro=round(num_allowed * share * 1e6)
    )


def test_what_is_applied_as_asked_for_is_no_error_whatever_the_mix():
    target = asked(0.2, a=0.9, b=0.1)
    for window in ([met("a", 0.9), met("b", 0.1)], [met("b", 0.1)], [met("c", 0.2), met("b", 0.1, 7, 0)]):
        assert corrected(1.0, window, [target]) == pytest.approx(1.0)


def test_what_is_not_applied_is_asked_for_on_top_until_the_target_is_met():
    correction = 1.0
    for _ in range(40):
        target = asked(min(1.0, 0.4 * correction))
        correction = corrected(correction, [met("a", 0.8 * target.other_share)], [target, target])
    assert correction == pytest.approx(1.0 / 0.8, rel=1e-4)
    # Applied in full again, it goes back.
    for _ in range(40):
        target = asked(0.4 * correction)
        correction = corrected(correction, [met("a", target.other_share)], [target, target])
    assert correction == pytest.approx(1.0, abs=1e-4)


def test_one_window_moves_it_by_its_gain():
    assert corrected(1.0, [met("a", 0.3)], [asked(0.4)]) == pytest.approx(1.0 + GAIN * 0.25)


def test_a_target_on_the_move_is_no_error():
    newest, before = asked(0.5), asked(0.2)
    for share in (0.2, 0.35, 0.5):
        assert corrected(1.0, [met("a", share)], [newest, before]) == 1.0
    assert corrected(1.0, [met("a", 0.1)], [newest, before]) > 1.0
    assert corrected(1.0, [met("a", 0.6)], [newest, before]) < 1.0


def test_nothing_is_learned_from_a_few_requests_or_next_to_no_coverage():
    assert corrected(1.2, [met("a", 0.0, MIN_REQUESTS - 1, 5)], [asked(0.4)]) == 1.2
    assert corrected(1.2, [met("a", 0.0)], [asked(0.0005)]) == 1.2
    assert corrected(1.2, [met("a", 0.0)], []) == 1.2
    assert corrected(1.2, [met("a", 0.0, 100, 0)], [asked(0.4)]) == 1.2


def test_it_does_not_grow_where_every_share_is_one_but_may_shrink():
    full = asked(1.0, saturated=True)
    assert corrected(1.1, [met("a", 0.5)], [full]) == 1.1
    assert corrected(1.1, [met("a", 1.0)], [full]) < 1.1


@given(
    st.floats(1.0 / MOST, MOST),
    st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(0, 10**6), st.integers(0, 10**6)), max_size=4),
    st.lists(st.floats(0.0, 1.0), max_size=2),
)
def test_it_never_leaves_its_bounds(correction, traffic, shares):
    window = [met(f"s{number}", share, num, min(num, allowed)) for number, (share, num, allowed) in enumerate(traffic)]
    made = corrected(correction, window, [asked(share) for share in shares])
    assert 1.0 / MOST <= made <= MOST
