"""Steps of time across a drawing. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from ops.report.model import Series

# More would run into one another on a phone.
_NUM_TICKS: Final = 3
# Marks closer than this share of the width are one.
_MARK_SHARE: Final = 0.004


def place(series: Series, at: datetime) -> float:
    """Share of the width of a time."""
    first, last = series.moments[0].start, series.moments[-1].start
    span_s = (last - first).total_seconds()
    return (at - first).total_seconds() / span_s if span_s else 0.0


def gapped(series: Series, values: Sequence[float | None]) -> list[tuple[float, float | None]]:
    """Points of a line, with gaps where steps are missing."""
    points: list[tuple[float, float | None]] = []
    step = timedelta(seconds=1.5 * series.step_s)
    for number, (moment, value) in enumerate(zip(series.moments, values, strict=True)):
        if number and moment.start - series.moments[number - 1].start > step:
            points.append((place(series, moment.start), None))
        points.append((place(series, moment.start), value))
    return points


def reclaim_marks(series: Series) -> list[float]:
    """Where something was taken back."""
    marks: list[float] = []
    for moment in series.moments:
        at = place(series, moment.start)
        if moment.num_reclaims and (not marks or at - marks[-1] > _MARK_SHARE):
            marks.append(at)
    return marks


def across(series: Series) -> list[tuple[float, str]]:
    """Ticks: times of day, or dates where a range is longer than two days."""
    if not series.moments:
        return []
    first, last = series.moments[0].start, series.moments[-1].start
    span = last - first
    form = "%d %b %H:%M" if span > timedelta(days=2) else "%H:%M" if span > timedelta(hours=1) else "%H:%M:%S"
    shares = [number / (_NUM_TICKS - 1) for number in range(_NUM_TICKS)] if span else [0.0]
    return [(share, (first + share * span).strftime(form)) for share in shares]
