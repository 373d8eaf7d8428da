"""Only what is finished, with everything before it, may be committed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.kafka.offsets import OffsetTracker


def test_nothing_is_committable_before_the_first_record() -> None:
    assert OffsetTracker().committable() is None


def test_an_open_record_holds_back_those_behind_it() -> None:
    tracker = OffsetTracker()
    for offset in (5, 6, 9):
        tracker.begin(offset)
    tracker.finish(6)
    tracker.finish(9)
    assert tracker.committable() == 5
    tracker.finish(5)
    assert tracker.committable() == 10


def test_offsets_must_rise() -> None:
    tracker = OffsetTracker()
    tracker.begin(5)
    with pytest.raises(ValueError, match="offset 5 after 5"):
        tracker.begin(5)


@given(st.lists(st.integers(0, 30), unique=True, min_size=1).map(sorted), st.randoms(use_true_random=False))
def test_committable_is_the_lowest_open_offset_in_any_order(offsets: list[int], random: object) -> None:
    tracker = OffsetTracker()
    for offset in offsets:
        tracker.begin(offset)
    order = list(offsets)
    random.shuffle(order)  # type: ignore[attr-defined]
    still_open = set(offsets)
    for offset in order:
        tracker.finish(offset)
        still_open.discard(offset)
        assert tracker.committable() == (min(still_open) if still_open else offsets[-1] + 1)
        assert tracker.num_open == len(still_open)
