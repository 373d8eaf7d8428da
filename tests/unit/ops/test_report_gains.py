"""Which measured uplift a report tells, and the main result that it makes of it."""

import pytest

from ops.report.gains import LatestUplift, segment_gains
from ops.report.headline import headline
from ops.report.model import Headline
from schemas.records import SegmentUplift
from tests.unit.ops.report_makers import WINDOW_MS, capacity, effect, guard, latency, pool, report_of, results, uplift


def latest(records: list[SegmentUplift], *, until: int | None = None, cells: tuple[str, ...] = ()) -> LatestUplift:
    found = LatestUplift(until_ms=None if until is None else until * WINDOW_MS, cells=frozenset(cells))
    for record in records:
        found.add(record)
    return found


def said(*records: SegmentUplift) -> Headline:
    gains = segment_gains(records, origin="segment.uplift")
    return headline(gains, idle=None, preemptions=None, latency=[], phases=[])


def test_the_last_record_by_the_end_of_the_range_counts() -> None:
    records = [uplift(window_index=index, num_requests=index) for index in (3, 7, 5, 9)]

    assert [record.num_requests for record in latest(records).records()] == [9]
    assert [record.num_requests for record in latest(records, until=8).records()] == [7]
    nothing = latest(records, until=3)
    assert nothing.records() == []
    assert "after the range's end" in nothing.missing()


def test_cells_and_segments_come_in_order_the_whole_cell_first() -> None:
    records = [uplift("b"), uplift("(all)", cell="us-west"), uplift("Z"), uplift(), uplift("b", cell="us-west")]

    in_order = [(record.cell, record.segment) for record in latest(records).records()]
    assert in_order == [
        ("us-east", "(all)"), ("us-east", "Z"), ("us-east", "b"), ("us-west", "(all)"), ("us-west", "b")
    ]  # fmt: skip
    assert {record.cell for record in latest(records, cells=("us-west",)).records()} == {"us-west"}


@pytest.mark.parametrize(
    ("size", "certainty", "words"),
    [
        (0.02, "gain", "a request earned 20 % more value"),
        (-0.02, "loss", "a request earned 20 % less value"),
        (0.005, "open", "not certain yet: +5 % (−5 % to +15 %)"),
    ],
)
def test_the_sentence_claims_no_more_than_the_interval(size: float, certainty: str, words: str) -> None:
    # Bounds of +-0.01 around it, of a mean of 0.1.
    found = said(uplift(effects=[effect(size=size, half_width=0.01)]))

    assert found.certainty == certainty
    assert words in found.sentence
    assert "in us-east, over 17 min and 40,000 requests" in found.sentence


def test_what_is_within_a_single_look_but_not_every_look_is_not_certain() -> None:
    assert said(uplift(effects=[effect(size=0.008, half_width=0.01)])).certainty == "open"


def test_without_a_mean_to_compare_with_the_difference_itself_is_told() -> None:
    found = said(uplift(effects=[effect(mean_control=0.0)]))

    assert (found.figures[0].value, found.certainty) == ("+0.02", "gain")


@pytest.mark.parametrize(
    "records", [[], [uplift("retail")], [uplift(effects=[effect(size=None)])], [uplift(effects=[effect("depth")])]]
)
def test_nothing_is_claimed_without_bounds_on_a_whole_cell(records: list[SegmentUplift]) -> None:
    found = said(*records)

    assert (found.certainty, found.figures[0].is_known, found.figures[0].value) == ("open", False, "—")
    assert "not known" in found.sentence


def test_where_too_few_are_without_any_lever_one_lever_over_all_arms_is_told() -> None:
    found = said(uplift(effects=[effect("both", size=None), effect("sbm"), effect("rma", size=0.03)]))

    assert "With more candidates (RMA) a request earned 30 % more value" in found.sentence
    assert (found.figures[0].label, found.figures[0].value) == ("value a request, RMA against none of it", "+30 %")


def test_how_few_there_are_to_compare_is_told() -> None:
    assert (
        "4,800 requests without it are too few to compare 5,000 with"
        in said(uplift(effects=[effect(size=None)])).sentence
    )


def test_many_cells_each_have_their_own_certainty() -> None:
    found = said(
        uplift(effects=[effect(size=0.02)], num_requests=30_000),
        uplift(cell="us-west", effects=[effect(size=-0.02)], num_requests=10_000),
        uplift(cell="eu", effects=[effect(size=0.0)], num_requests=0),
    )

    assert "for certain in 1 of 3 cells" in found.sentence
    assert "lost value for certain in us-west" in found.sentence
    # Thirty thousand requests at +20 %, ten thousand at -20 %.
    assert (found.certainty, found.figures[0].value) == ("loss", "+10 %")


def test_an_a_a_test_is_told_as_one() -> None:
    assert "A/A test shows no difference" in said(uplift(is_aa=True, effects=[effect(size=0.0)])).sentence
    assert "where there is none" in said(uplift(is_aa=True)).sentence


def test_the_third_figure_says_what_a_reclaim_did_to_latency() -> None:
    taken = capacity(2, pool(units=1.0, taken={0: 3.0}, num_reclaims=1))
    report = report_of(
        [
            capacity(1),
            results(1, guard("both", [40.0] * 9)),
            latency(1),
            taken,
            results(2, guard("both", [60.0] * 9)),
            latency(2, num_base_late=2),
        ]
    )

    assert report.headline.figures[2].value == "180"
    assert report.headline.figures[2].detail == "p99 40 ms before, 60 ms during, with 2 base answers late"
