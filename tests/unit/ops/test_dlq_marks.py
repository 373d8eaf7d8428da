"""Which dead letters are done: the same after any way through a commit, whatever the selection."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.dlq.marks import MAX_RANGES, Marks, MarksError, Run, marks_of

OFFSETS = st.lists(st.integers(0, 60), max_size=80)


@given(OFFSETS, st.integers(0, 60), st.integers(0, 60))
def test_marks_say_what_a_set_would(offsets: list[int], low: int, end: int) -> None:
    marks, done = Marks(), set[int]()
    for offset in offsets:
        marks.mark(offset)
        done.add(offset)
        again = marks_of(marks.position, marks.metadata())
        assert again == marks
    assert [marks.is_done(offset) for offset in range(70)] == [offset in done for offset in range(70)]
    assert marks.position == next(offset for offset in range(70) if offset not in done)
    assert marks.num_open(low, end) == sum(offset not in done for offset in range(low, end))
    marks.forget_before(low)
    assert [marks.is_done(offset) for offset in range(70)] == [offset < low or offset in done for offset in range(70)]
    assert marks_of(marks.position, marks.metadata()) == marks


def test_a_run_under_way_is_kept_with_the_marks() -> None:
    marks = Marks(5, Run("20260501T120000Z-1f", 1_800_000_000_000), [(7, 9)])
    assert marks_of(5, marks.metadata()) == marks
    assert marks.metadata() == "1;20260501T120000Z-1f;1800000000000;2-4"


def test_without_a_commit_nothing_is_done() -> None:
    assert marks_of(None, None) == Marks()


@pytest.mark.parametrize("metadata", [None, "", "2;;;", "1;;;3", "1;;;3-2", "1;;;5-6,1-2", "1;r;x;", "1;;;0-1", "1;;"])
def test_metadata_of_somebody_else_is_not_taken_for_ours(metadata: str | None) -> None:
    with pytest.raises(MarksError):
        marks_of(3, metadata)


def test_ranges_are_bounded_so_that_a_commit_can_hold_them() -> None:
    marks = Marks(position=2**40)
    offset = 2**40 + 1
    while marks.can_mark(offset):
        marks.mark(offset)
        offset += 2**30
    assert len(marks.ranges) == MAX_RANGES
    assert len(marks.metadata()) < 4_096
    # What touches a range, or is the first open one, needs no new one.
    assert marks.can_mark(marks.position)
    assert marks.can_mark(marks.ranges[3][1])
    assert marks.can_mark(marks.ranges[3][0] - 1)
