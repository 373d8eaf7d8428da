"""Sums by stratum: however many there are, a window has room for them, and nothing is lost."""

import random
from collections import Counter

import pytest

from schemas.framing import MAX_RECORD_BYTES, encode
from schemas.records import ControlWindow, OutcomesWindow
from schemas.records.measurement import OUTCOME_SUMS, REQUEST_SUMS
from schemas.segments import MAX_SEGMENTS, OTHER_SEGMENT
from streams.ingest import strata
from streams.ingest.bounds import MAX_COUNT
from streams.ingest.strata import MERGED_COHORTS, MERGED_SEGMENTS, Fitted, Segments, Strata, Stratum


def stratum(segment: str, *, cohort: int = 0) -> Stratum:
    return Stratum(segment, "both", "half", "yes", cohort, False)


def num_numbers(fitted: Fitted) -> int:
    return sum(len(each.sums) for each in fitted.strata)


def test_a_window_has_room_whatever_comes_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: Counter[str] = Counter()
    fewest_segments = MAX_SEGMENTS
    for seed in range(60):
        rng = random.Random(seed)
        monkeypatch.setattr(strata, "MAX_NUMBERS", rng.choice([8, 60, 400]))
        held, newest, total = Strata(2), 0, [0, 0]
        for _ in range(rng.choice([2, 40, 150])):
            cohort, row = rng.randrange(90), (1, rng.randrange(-9, 9))
            held.add(stratum(f"s{rng.randrange(9)}", cohort=cohort), rng.randrange(2), row)
            newest, total = max(newest, cohort), [total[0] + row[0], total[1] + row[1]]
        fitted = held.fitted(["s0", "has guards alone"])
        assert held.fitted(["has guards alone", "s0"]) == fitted
        assert num_numbers(fitted) <= strata.MAX_NUMBERS
        assert [sum(sum(each.sums[column::2]) for each in fitted.strata) for column in (0, 1)] == total
        assert {each.segment for each in fitted.strata} <= {*fitted.segments, OTHER_SEGMENT}
        # Those told together are of a cohort that there is: an outcome never counts before its time.
        assert max(each.cohort for each in fitted.strata) == newest
        notes[fitted.note] += 1
        fewest_segments = min(fewest_segments, len(fitted.segments))
    assert set(notes) == {"", MERGED_COHORTS, MERGED_SEGMENTS}
    assert fewest_segments == 0


def test_cohorts_are_told_together_as_the_newest_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strata, "MAX_NUMBERS", 3)
    held = Strata(1)
    for cohort in (10, 11, 12, 14, 16):
        held.add(stratum("games", cohort=cohort), 0, (1,))
    fitted = held.fitted()
    assert [(each.cohort, each.sums) for each in fitted.strata] == [(11, [2]), (14, [2]), (16, [1])]
    assert (set(fitted.segments), fitted.note) == ({"games"}, MERGED_COHORTS)


def test_segments_of_the_fewest_rows_are_the_first_to_be_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strata, "MAX_NUMBERS", 7)
    held = Strata(1)
    for name, num_buckets in (("a", 1), ("b", 3), ("c", 2), ("d", 2), ("e", 1)):
        for bucket in range(num_buckets):
            held.add(stratum(name), bucket, (1,))
    fitted = held.fitted()
    # Half of five are two; the others have three buckets, two and one of which are the same.
    assert [(each.segment, each.sums) for each in fitted.strata] == [
        (OTHER_SEGMENT, [3, 1]),
        ("b", [1, 1, 1]),
        ("c", [1, 1]),
    ]
    assert fitted.note == MERGED_SEGMENTS


def test_more_segments_than_are_told_apart_are_no_surprise() -> None:
    held, names = Strata(1), Segments()
    for number in range(1_100):
        held.add(stratum(names.name(f"s{number:04}")), 0, (1,))
    fitted = held.fitted()
    assert (len(fitted.segments), fitted.note) == (MAX_SEGMENTS, "")
    assert sum(each.sums[0] for each in fitted.strata if each.segment == OTHER_SEGMENT) == 1_100 - MAX_SEGMENTS


def test_all_that_chance_can_draw_has_room_in_one_cohort() -> None:
    """Five arms, four depths, three upgrades, A/A or not, 64 buckets: what is left when all else is told together."""
    assert 5 * 4 * 3 * 2 * 64 * max(len(OUTCOME_SUMS), len(REQUEST_SUMS)) <= strata.MAX_NUMBERS


def test_the_largest_window_is_a_record() -> None:
    held = Strata(len(OUTCOME_SUMS))
    num_rows = strata.MAX_NUMBERS // len(OUTCOME_SUMS)
    for number in range(num_rows):
        # Hundreds of thousands in micro-units, the weighted ones too.
        row = [2**38] * len(OUTCOME_SUMS)
        held.add(stratum(f"segment-of-usual-length-{number % 64}", cohort=number // 4_096), number // 64 % 64, row)
    fitted = held.fitted()
    assert (fitted.note, num_numbers(fitted)) == ("", num_rows * len(OUTCOME_SUMS))
    window = OutcomesWindow(
        strata=fitted.strata,
        num_outcomes=num_rows,
        num_duplicates=0,
        num_late=0,
        num_expired=0,
        cohort_ms=60_000,
        attribution_ms=3_600_000,
        value_cap_micro=10_000_000,
    )
    record = ControlWindow(
        cell="us-east", kind="outcomes", source_partition=0, window_index=0, start_ms=0, end_ms=1, outcomes=window
    )
    assert 600_000 < len(encode(record)) < MAX_RECORD_BYTES


def test_sums_stay_within_what_a_record_holds() -> None:
    held = Strata(2)
    held.add(stratum("games"), 0, (2**70, -(2**70)))
    assert held.fitted().strata[0].sums == [MAX_COUNT, -MAX_COUNT]
