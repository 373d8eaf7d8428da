"""Drawings as inline SVG. Places across are shares of the width, so that text keeps its size on every screen. Pure."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ops.report.page.markup import Markup, at, element, joined

_WIDE: Final = 1_000
_TOP_PX: Final = 18
_BOTTOM_PX: Final = 20
_NUM_TICKS: Final = 4


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line: points in [0, 1] across and a value up (None: a gap); ``tone`` names a colour of the style."""

    label: str
    tone: str
    points: Sequence[tuple[float, float | None]]
    dash: str = ""
    is_filled: bool = False


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Ticks up, as value and text; ``place`` gives the share of the height of a value."""

    place: Callable[[float], float]
    ticks: Sequence[tuple[float, str]]


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a bar."""

    label: str
    tone: str
    amount: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An effect with its bounds at every look and at a single one."""

    effect: float
    lower: float
    upper: float
    fixed_lower: float | None
    fixed_upper: float | None
    tone: str


def linear(values: Sequence[float], text: Callable[[float], str]) -> Scale:
    """From nothing to a round number above all values."""
    step = _round_step(max([*values, 0.0]) / _NUM_TICKS)
    num_steps = max(1, math.ceil(max([*values, 0.0]) / step - 1e-9))
    top = step * num_steps
    return Scale(
        place=lambda value: value / top, ticks=[(step * number, text(step * number)) for number in range(num_steps + 1)]
    )


def nines(smallest_rest: float) -> Scale:
    """Shares from 0 by what is left to all: half, a tenth, a hundredth stand as far apart as they are rare."""
    most = max(2.0, -math.log10(max(smallest_rest, 1e-6)))
    shares = [(0.0, "0"), (0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (0.9999, "99.99 %")]

    def place(share: float) -> float:
        return min(1.0, -math.log10(max(1.0 - share, 10.0**-most)) / most)

    return Scale(place=place, ticks=[tick for tick in shares if tick[0] == 0.0 or place(tick[0]) < 0.999])


def line_chart(
    lines: Sequence[Line],
    scale: Scale,
    *,
    label: str,
    across: Sequence[tuple[float, str]],
    marks: Sequence[float] = (),
    height_px: int = 190,
) -> Markup:
    """Lines over a grid; ``marks`` are upright lines, ``across`` the ticks below."""
    plot_px = height_px - _TOP_PX - _BOTTOM_PX

    def y_px(value: float) -> float:
        return round(_TOP_PX + plot_px * (1.0 - scale.place(value)), 2)

    parts = [
        element("line", x1="0", x2="100%", y1=y_px(value), y2=y_px(value), class_="zero" if value == 0.0 else "grid")
        for value, _ in scale.ticks
    ]
    parts += [
        element("line", x1=at(mark), x2=at(mark), y1=_TOP_PX, y2=height_px - _BOTTOM_PX, class_="mark")
        for mark in marks
    ]
    drawn = joined(_drawn(line, y_px) for line in lines)
    parts.append(
        element(
            "svg",
            drawn,
            x="0",
            y="0",
            width="100%",
            height=height_px,
            viewBox=f"0 0 {_WIDE} {height_px}",
            preserveAspectRatio="none",
        )
    )
    parts += [element("text", text, x="0", y=y_px(value) - 4) for value, text in scale.ticks if value != 0.0]
    parts += [_tick(share, text, y_px=height_px - 4) for share, text in across]
    return element(
        "svg",
        element("title", label),
        *parts,
        width="100%",
        height=height_px,
        role="img",
        aria_label=label,
        font_size="12",
    )


def legend(lines: Sequence[Line], *, marks: str = "") -> Markup:
    """What each line is."""
    keys = [
        _key(element("line", x1="0", x2="22", y1="5", y2="5", class_=_line_class(line)), line.label) for line in lines
    ]
    if marks:
        keys.append(_key(element("line", x1="11", x2="11", y1="0", y2="10", class_="mark"), marks))
    return element("ul", *keys, class_="legend")


def stacked_bar(parts: Sequence[Part], *, label: str, height_px: int = 30) -> Markup:
    """Parts of a whole beside one another, and what they are."""
    total = sum(part.amount for part in parts)
    rects, left = [], 0.0
    for part in parts:
        share = part.amount / total if total > 0.0 else 0.0
        if share > 0.0:
            rects.append(
                element("rect", x=at(left), y="0", width=at(share), height=height_px, class_=f"fill tone-{part.tone}")
            )
        left += share
    told = f"{label}: " + "; ".join(f"{part.label} {part.text}" for part in parts)
    svg = element("svg", element("title", told), *rects, width="100%", height=height_px, role="img", aria_label=told)
    keys = [
        _key(
            element("rect", x="4", y="-1", width="12", height="12", rx="2", class_=f"fill tone-{part.tone}"),
            f"{part.label}: {part.text}",
        )
        for part in parts
    ]
    return joined([svg, element("ul", *keys, class_="legend")])


def bars(parts: Sequence[Part], *, label: str) -> Markup:
    """One bar a row, its label above it."""
    most = max((part.amount for part in parts), default=0.0)
    rows = []
    for number, part in enumerate(parts):
        top_px = 40 * number
        share = part.amount / most if most > 0.0 else 0.0
        rows += [
            element("text", part.label, x="0", y=top_px + 12),
            element("text", part.text, x="100%", y=top_px + 12, text_anchor="end"),
            element("rect", x="0", y=top_px + 18, width="100%", height="9", rx="2", fill="var(--faint)"),
            element("rect", x="0", y=top_px + 18, width=at(share), height="9", rx="2", class_=f"fill tone-{part.tone}"),
        ]
    told = f"{label}: " + "; ".join(f"{part.label} {part.text}" for part in parts)
    return element(
        "svg", element("title", told), *rows, width="100%", height=40 * len(parts), role="img", aria_label=told
    )


class ForestScale:
    """One scale for the rows of a forest plot, with nothing always in it."""

    def __init__(self, intervals: Sequence[Interval]) -> None:
        values = [bound for each in intervals for bound in (each.lower, each.upper)]
        low, high = min([*values, 0.0]), max([*values, 0.0])
        margin = 0.06 * (high - low) or 1.0
        self._low, self._high = low - margin, high + margin
        self._step = _round_step((self._high - self._low) / 5)

    def place(self, value: float) -> float:
        """Share of the width."""
        return (value - self._low) / (self._high - self._low)

    def ticks(self) -> list[float]:
        """Round values within the scale."""
        first = math.ceil(self._low / self._step)
        last = math.floor(self._high / self._step)
        return [number * self._step for number in range(first, last + 1)]


def forest_row(scale: ForestScale, interval: Interval | None, *, label: str) -> Markup:
    """An interval on its scale: thin at every look, thick at a single one, and the effect."""
    parts = [
        element("line", x1=at(scale.place(0.0)), x2=at(scale.place(0.0)), y1="0", y2="26", class_="zero"),
    ]
    if interval is not None:
        tone = f"stroke tone-{interval.tone}"
        parts.append(_span(scale, interval.lower, interval.upper, class_=f"{tone} wide"))
        if interval.fixed_lower is not None and interval.fixed_upper is not None:
            parts.append(_span(scale, interval.fixed_lower, interval.fixed_upper, class_=f"{tone} thick"))
        place = at(scale.place(interval.effect))
        parts.append(element("circle", cx=place, cy="13", r="5", class_=f"fill tone-{interval.tone}"))
    return element("svg", element("title", label), *parts, width="100%", height="26", role="img", aria_label=label)


def forest_axis(scale: ForestScale, text: Callable[[float], str]) -> Markup:
    """Ticks of a forest plot."""
    parts = [_tick(scale.place(value), text(value), y_px=13) for value in scale.ticks()]
    return element("svg", *parts, width="100%", height="18", aria_hidden="true")


def _span(scale: ForestScale, low: float, high: float, *, class_: str) -> Markup:
    return element("line", x1=at(scale.place(low)), x2=at(scale.place(high)), y1="13", y2="13", class_=class_)


def _drawn(line: Line, y_px: Callable[[float], float]) -> Markup:
    """A path with gaps where nothing is known; a point alone becomes a short stroke."""
    runs: list[list[tuple[float, float]]] = [[]]
    for across, value in line.points:
        if value is None:
            runs.append([])
        else:
            runs[-1].append((round(across * _WIDE, 1), y_px(value)))
    runs = [run if len(run) > 1 else [run[0], (run[0][0] + 1.0, run[0][1])] for run in runs if run]
    path = "".join("M" + "L".join(f"{x:g} {y:g}" for x, y in run) for run in runs)
    drawn = [element("path", d=path, class_=_line_class(line))]
    if line.is_filled:
        bottom = y_px(0.0)
        area = "".join(
            f"M{run[0][0]:g} {bottom:g}L" + "L".join(f"{x:g} {y:g}" for x, y in run) + f"L{run[-1][0]:g} {bottom:g}Z"
            for run in runs
        )
        drawn.insert(0, element("path", d=area, class_=f"area fill tone-{line.tone}"))
    return joined(drawn)


def _line_class(line: Line) -> str:
    return f"line stroke tone-{line.tone}" + (f" dash-{line.dash}" if line.dash else "")


def _key(drawing: Markup, text: str) -> Markup:
    return element("li", element("svg", drawing, width="22", height="10", aria_hidden="true"), text)


def _tick(share: float, text: str, *, y_px: float) -> Markup:
    # What stands at an edge must not hang over it.
    anchor = "start" if share < 0.04 else "end" if share > 0.96 else "middle"
    return element("text", text, x=at(share), y=y_px, text_anchor=anchor)


def _round_step(size: float) -> float:
    """The next of 1, 2, 2.5 and 5 times a power of ten."""
    if size <= 0.0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(size))
    return next(power * factor for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if power * factor >= size * (1.0 - 1e-9))
