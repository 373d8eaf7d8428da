"""The small parts of ingest: numbering, progress, marks, silence."""

import pytest

from streams.ingest.commit_marks import CommitMarks
from streams.ingest.progress import Progress, ProgressError, from_metadata, to_metadata
from streams.ingest.sequence import SequenceFilter
from streams.ingest.silence import SilenceWatch


def test_a_sequence_is_remembered_for_exactly_the_look_back() -> None:
    for later_ms, duplicate in ((0, True), (100, True), (101, False)):
        sequences = SequenceFilter(100)
        assert not sequences.seen("a", (0, 5), 1_050)
        assert sequences.seen("a", (0, 5), 1_050 + later_ms) is duplicate


def test_a_duplicate_keeps_its_source_remembered() -> None:
    sequences = SequenceFilter(100)
    assert [sequences.seen("a", (0, 5), at_ms) for at_ms in (1_000, 1_080, 1_160, 1_261)] == [False, True, True, False]


def test_a_lower_number_is_shadowed_only_while_the_higher_one_is_remembered() -> None:
    sequences = SequenceFilter(100)
    records = ((9, 1_000), (3, 1_050), (4, 1_100), (4, 1_101))
    assert [sequences.seen("a", (0, seq), at_ms) for seq, at_ms in records] == [False, True, True, True]
    # 9 is forgotten, 4 at 1_101 is not.
    assert [sequences.seen("a", (0, seq), 1_150) for seq in (4, 5)] == [True, False]


def test_epochs_come_before_numbers() -> None:
    sequences = SequenceFilter(100)
    assert [sequences.seen("a", order, 1_000) for order in ((1, 9), (2, 0), (1, 10))] == [False, False, True]


def test_sources_that_fell_silent_are_forgotten() -> None:
    sequences = SequenceFilter(100)
    for number in range(1_000):
        sequences.seen(number, (0, 1), 1_000)
    sequences.seen("late", (0, 1), 1_100)
    assert len(sequences) == 1_001
    sequences.seen("late", (0, 2), 1_200)
    assert len(sequences) == 1


def test_progress_survives_its_metadata() -> None:
    for progress in (
        Progress(offset=7),
        Progress(offset=7, before_ms=10, last_offset=99, largest_ms=2**50, next_window=0),
        Progress(offset=0, last_offset=4, largest_ms=5, next_window=3),
    ):
        assert from_metadata(progress.offset, to_metadata(progress, window_ms=100), window_ms=100) == progress


@pytest.mark.parametrize(
    ("metadata", "complaint"),
    [
        (None, "no metadata"),
        ("", "no metadata"),
        ("moved by hand", "cannot be read"),
        ('{"v":1}', "cannot be read"),
        ('{"v":1,"w":100,"n":1,"c":2,"o":3,"b":null,"x":1}', "cannot be read"),
        ('{"v":2,"w":100,"n":1,"c":2,"o":3,"b":null}', "version 2"),
        ('{"v":1,"w":900,"n":1,"c":2,"o":3,"b":null}', "windows of 900 ms"),
        ('{"v":1,"w":100,"n":1,"c":null,"o":3,"b":null}', "contradicts itself"),
        ('{"v":1,"w":100,"n":1,"c":2,"o":3,"b":4}', "contradicts itself"),
    ],
)
def test_metadata_of_another_hand_is_refused_with_a_reason(metadata: str | None, complaint: str) -> None:
    with pytest.raises(ProgressError, match=complaint):
        from_metadata(7, metadata, window_ms=100)


def test_marks_give_the_latest_safe_place() -> None:
    marks = CommitMarks(0, None, spacing_ms=10)
    for offset, before_ms in ((1, 100), (2, 105), (3, 110), (4, 140)):
        marks.note(offset, before_ms)
    assert marks.latest_before(100) == (0, None)
    assert marks.latest_before(101) == (1, 100)
    # The record at offset 2 came too soon after the mark before it.
    assert marks.latest_before(110) == (1, 100)
    assert marks.latest_before(111) == (3, 110)
    assert marks.latest_before(9_999) == (4, 140)


def test_silence_is_told_once_a_period_and_only_at_the_end() -> None:
    watch = SilenceWatch(silence_s=1.0, now_s=0.0)
    assert not watch.needs_clock(5.0)
    watch.end_reached()
    assert watch.needs_clock(5.0)
    assert not watch.needs_clock(5.9)
    assert watch.needs_clock(6.0)
    watch.records_read(clock_moved=True, now_s=6.5)
    assert not watch.needs_clock(9.0)
    watch.end_reached()
    assert watch.needs_clock(7.5)


def test_refused_records_are_no_sound() -> None:
    watch = SilenceWatch(silence_s=1.0, now_s=0.0)
    for now_s in (0.4, 0.8, 1.2):
        watch.records_read(clock_moved=False, now_s=now_s)
        watch.end_reached()
    assert watch.needs_clock(1.2)
