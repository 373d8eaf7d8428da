"""Value curves as pieces: concave, never falling, at their lower confidence bound.

Each point (w, v, e) of a curve counts as b(w) = max(0, v - z e), and a curve starts at (0, 0). What is planned with is
the least concave function above these points, cut at its top and flat from there: that is again a lower bound. For the
true value V is concave and never falls (work that does not pay is left undone), so at work in between, V lies above the
chord of two of its points, and so above the chord of their lower bounds (Jensen). Beyond the last point a curve is
flat: what nobody measured earns nothing.

All segments of a lever draw on the same work, and the best division of it takes the steepest piece first (equal
marginal values; the sup-convolution of concave functions: Rockafellar, Convex Analysis, 1970, theorem 16.4). So the
curves of a lever become one curve: their pieces together, in falling order of slope.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from schemas.records import ValueCurve
from streams.control.allocator.problem import MAX_QUANTITY


class Piece(NamedTuple):
    """A straight piece of a curve: this much work earns this much."""

    work_units_s: float
    value_s: float


def pieces_of(curve: ValueCurve, *, confidence: float) -> list[Piece]:
    """Pieces of one curve in falling order of positive slope, by the upper hull of its lower bounds."""
    hull = [(0.0, 0.0)]
    for point in curve.points:
        # In this order NaN counts as nothing, and a point out of its order as none.
        work, value = point.work_units_s, min(max(0.0, point.value_s - confidence * point.error_s), MAX_QUANTITY)
        if not hull[-1][0] < work <= MAX_QUANTITY:
            continue
        # A corner on or below the chord from the one before it to the new point is none.
        while len(hull) > 1:
            (before, before_value), (at, at_value) = hull[-2:]
            if (value - at_value) * (at - before) < (at_value - before_value) * (work - at):
                break
            hull.pop()
        hull.append((work, value))
    return [Piece(two[0] - one[0], two[1] - one[1]) for one, two in pairwise(hull) if two[1] > one[1]]


def merged(curves: Iterable[ValueCurve], *, confidence: float, max_work_units_s: float) -> tuple[Piece, ...]:
    """The one curve of a lever, cut at ``max_work_units_s``."""
    found = [piece for curve in curves for piece in pieces_of(curve, confidence=confidence)]
    # Pieces of the same slope are alike up to their order, which is made the same for any order of the curves.
    found.sort(key=lambda piece: (-piece.value_s / piece.work_units_s, piece.work_units_s))
    return cut(found, max_work_units_s)


def value_of(pieces: Iterable[Piece], work_units_s: float) -> float:
    """Value per second of so much work, best pieces first."""
    value, left = 0.0, work_units_s
    for work, gain in pieces:
        if work >= left:
            return value + gain * (max(0.0, left) / work)
        value += gain
        left -= work
    return value


def cut(pieces: Iterable[Piece], work_units_s: float) -> tuple[Piece, ...]:
    """The first pieces, as far as so much work goes; the last of them in part."""
    kept, left = [], work_units_s
    for piece in pieces:
        if left <= 0.0:
            break
        work, gain = piece
        kept.append(piece if work <= left else Piece(left, gain * (left / work)))
        left -= work
    return tuple(kept)
