"""Value curves at their lower bound: concave, never falling, and below every true curve that the bounds allow."""

import math
import random

import pytest

from schemas.records import CurvePoint, ValueCurve
from streams.control.allocator.curves import Piece, cut, merged, pieces_of, value_of
from tests.unit.streams.allocator_makers import curve


def made(points: list[tuple[float, float, float]]) -> ValueCurve:
    return ValueCurve(
        segment="all",
        points=[CurvePoint(work_units_s=work, value_s=value, error_s=error) for work, value, error in points],
    )


def test_a_curve_is_its_points_where_they_are_concave_and_certain():
    assert pieces_of(curve([(10.0, 5.0), (30.0, 8.0)]), confidence=2.0) == [Piece(10.0, 5.0), Piece(20.0, 3.0)]


@pytest.mark.parametrize(
    ("points", "pieces"),
    [
        # The second point is uncertain and falls below the chord: it is no corner any more.
        ([(10.0, 5.0, 0.0), (20.0, 8.0, 3.0), (30.0, 9.0, 0.0)], [Piece(10.0, 5.0), Piece(20.0, 4.0)]),
        # The last is below its neighbour: flat from there, as work need not be done.
        ([(10.0, 5.0, 0.0), (20.0, 6.0, 2.0)], [Piece(10.0, 5.0)]),
        # A bound below nothing is nothing.
        ([(10.0, 5.0, 9.0)], []),
        ([(10.0, 5.0, 9.0), (20.0, 6.0, 1.0)], [Piece(20.0, 4.0)]),
        # No curve is convex: a late start counts as a steady one.
        ([(10.0, 0.0, 0.0), (20.0, 6.0, 0.0)], [Piece(20.0, 6.0)]),
        ([], []),
    ],
)
def test_a_lower_bound_is_concave_and_never_falls(points, pieces):
    assert pieces_of(made(points), confidence=2.0) == pieces


@pytest.mark.parametrize("seed", range(200))
def test_no_true_curve_within_the_bounds_lies_below(seed):
    dice = random.Random(seed)
    rise, bend = dice.uniform(0.5, 5.0), dice.uniform(0.2, 1.0)

    def true_value(work: float) -> float:
        return rise * math.pow(work, bend)

    works = sorted(dice.uniform(1.0, 100.0) for _ in range(6))
    points = [
        # An estimate that is off by two errors at most either way.
        (work, max(0.0, true_value(work) + dice.uniform(-2.0, 2.0) * error), error)
        for work in works
        for error in [dice.uniform(0.0, 2.0)]
    ]
    pieces = pieces_of(made(points), confidence=2.0)
    slopes = [piece.value_s / piece.work_units_s for piece in pieces]
    assert slopes == sorted(slopes, reverse=True)
    assert all(slope > 0.0 for slope in slopes)
    for number in range(200):
        assert value_of(pieces, number) <= true_value(number) * (1.0 + 1e-12)
    # And nothing that is known is given away: every point's own bound is reached.
    for work, value, error in points:
        assert value_of(pieces, work) >= (value - 2.0 * error) * (1.0 - 1e-12)


def test_curves_of_a_lever_are_merged_steepest_first_and_cut():
    curves = [curve([(10.0, 10.0), (20.0, 15.0)]), curve([(5.0, 10.0), (15.0, 17.0)], segment="other")]
    pieces = merged(curves, confidence=0.0, max_work_units_s=22.0)
    assert pieces == (Piece(5.0, 10.0), Piece(10.0, 10.0), Piece(7.0, 7.0 * (7.0 / 10.0)))
    assert value_of(pieces, 7.0) == 12.0
    assert value_of(pieces, 1e9) == pytest.approx(24.9)
    assert value_of(pieces, 0.0) == value_of(pieces, -1.0) == 0.0
    assert cut(pieces, 5.0) == (Piece(5.0, 10.0),)
    assert cut(pieces, 0.0) == ()


def test_any_order_of_curves_makes_the_same_pieces():
    curves = [curve([(10.0, 10.0)]), curve([(20.0, 20.0)], segment="b"), curve([(5.0, 9.0)], segment="c")]
    assert merged(curves, confidence=0.0, max_work_units_s=1e9) == merged(
        curves[::-1], confidence=0.0, max_work_units_s=1e9
    )


@pytest.mark.parametrize("figure", [math.nan, math.inf, -math.inf, -1.0])
def test_what_is_no_quantity_makes_no_piece_that_is_none(figure):
    points = [CurvePoint(work_units_s=10.0, value_s=figure), CurvePoint(work_units_s=20.0, value_s=5.0, error_s=figure)]
    for piece in pieces_of(ValueCurve(segment="all", points=points), confidence=1.0):
        assert 0.0 < piece.work_units_s < math.inf
        assert 0.0 < piece.value_s < math.inf
