"""What each lever earned, alone and together, and by segment. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from ops.report.gains import WHOLE_CELL, effect_of, segments, whole_cells
from ops.report.headline import certainty_of, relative
from ops.report.model import SegmentGains
from ops.report.page.charts import ForestScale, Interval, forest_axis, forest_row
from ops.report.page.markup import Content, Markup, element, joined, table
from ops.report.words import DASH, and_list, figure, hours, moment, percent, signed, signed_percent
from schemas.records import Effect
from schemas.records.uplift import Contrast, Measure

CONTRASTS: Final[dict[Contrast, tuple[str, str]]] = {
    "both": ("Both levers", "against neither"),
    "rma_alone": ("RMA alone", "more ads, against neither"),
    "sbm_alone": ("SBM alone", "a better model, against neither"),
    "interaction": ("Together beyond the sum", "of each alone"),
    "rma": ("RMA", "all who may get it, against all others"),
    "sbm": ("SBM", "all who may get it, against all others"),
    "depth": ("All extra candidates", "drawn by request, against none"),
    "depth_half": ("Half of them", "drawn by request, against none"),
    "upgrade": ("The stronger model", "drawn by request, against not"),
}
_FIRST: Final[tuple[Contrast, ...]] = ("both", "rma_alone", "sbm_alone", "interaction")
_MEASURES: Final[dict[Measure, str]] = {
    "value": "value",
    "winsorised_value": "value, capped",
    "conversions": "conversions",
    "clicks": "clicks",
    "views": "views",
}
_PER: Final = 1_000.0
_MAX_SEGMENTS: Final = 20


def gains_section(gains: Sequence[SegmentGains]) -> Iterator[Content]:
    """Of whole cells."""
    cells = whole_cells(gains)
    if not cells:
        yield element("p", "Not known: see the end of this page.", class_="note")
        return
    yield element(
        "p",
        "Users are split by chance into those who get base work alone, those for whom one lever may work, and those "
        "for whom both may. The dot is the difference in value per 1,000 requests between groups as they were "
        "assigned; the line bounds it with 95 % certainty however often one looks, the thick part for a single look.",
        class_="lead",
    )
    for row in cells:
        if len(cells) > 1:
            yield element("h3", row.cell)
        yield _forest([(_name(contrast), row, contrast) for contrast in _FIRST])
        yield element("p", _origin(row), class_="note")
        yield _all_measures(row)


def segments_section(gains: Sequence[SegmentGains]) -> Iterator[Content]:
    """Of segments, by their requests."""
    rows = segments(gains)
    if not rows:
        yield element("p", "Not known: see the end of this page.", class_="note")
        return
    yield element(
        "p",
        "Gain of both levers against neither, per 1,000 requests of the segment. Equal shares of requests and of "
        "optional work mean that no group is left out; they differ where capacity goes to who gains most by it.",
        class_="lead",
    )
    for cell in sorted({row.cell for row in rows}):
        found = sorted((row for row in rows if row.cell == cell), key=lambda row: (-row.num_requests, row.segment))
        if len({row.cell for row in rows}) > 1:
            yield element("h3", cell)
        shown = found[:_MAX_SEGMENTS]
        yield _forest([(element("span", row.segment), row, "both") for row in shown])
        yield table(
            ("segment", "requests", "of requests", "of optional work", "both", "RMA alone", "SBM alone"),
            (
                (
                    row.segment,
                    f"{row.num_requests:,}",
                    percent(row.request_share),
                    percent(row.optional_share),
                    *(_short(effect_of(row, contrast, "value")) for contrast in ("both", "rma_alone", "sbm_alone")),
                )
                for row in shown
            ),
            label=f"Gains by segment in {cell}",
        )
        if len(found) > len(shown):
            yield element("p", f"{len(found) - len(shown)} smaller segments are in the JSON.", class_="note")


def _forest(rows: Sequence[tuple[Content, SegmentGains, Contrast]]) -> Markup:
    found = [(name, effect_of(row, contrast, "value")) for name, row, contrast in rows]
    intervals = [None if effect is None else _interval(effect) for _, effect in found]
    scale = ForestScale([each for each in intervals if each is not None])
    lines = [
        element(
            "div",
            element("div", name, class_="name"),
            forest_row(scale, interval, label=_said(effect)),
            element("div", *_beside(effect), class_="say"),
            class_="row",
        )
        for (name, effect), interval in zip(found, intervals, strict=True)
    ]
    if not any(intervals):
        return element("div", *lines, class_="forest")
    axis = element(
        "div", element("span"), forest_axis(scale, signed), element("span"), class_="row axis", aria_hidden="true"
    )
    return element("div", *lines, axis, class_="forest")


def _name(contrast: Contrast) -> Markup:
    name, detail = CONTRASTS[contrast]
    return joined([name, element("small", detail)])


def _interval(effect: Effect) -> Interval:
    assert effect.effect is not None
    assert effect.lower is not None
    assert effect.upper is not None
    return Interval(
        effect=_PER * effect.effect,
        lower=_PER * effect.lower,
        upper=_PER * effect.upper,
        fixed_lower=None if effect.fixed_lower is None else _PER * effect.fixed_lower,
        fixed_upper=None if effect.fixed_upper is None else _PER * effect.fixed_upper,
        tone=certainty_of(effect),
    )


def _beside(effect: Effect | None) -> tuple[Content, ...]:
    if effect is None:
        return (element("span", "too little is known", class_="open"),)
    size = relative(effect, effect.effect)
    share = "" if size is None else f" ({signed_percent(size)})"
    text = f"{signed(_thousand(effect.effect))}{share}"
    return (
        element("b", text, class_=certainty_of(effect)),
        element("small", f"{signed(_thousand(effect.lower))} to {signed(_thousand(effect.upper))}"),
    )


def _said(effect: Effect | None) -> str:
    if effect is None:
        return "too little is known"
    low, high = signed(_thousand(effect.lower)), signed(_thousand(effect.upper))
    return f"{signed(_thousand(effect.effect))} per 1,000 requests, 95 % between {low} and {high}"


def _short(effect: Effect | None) -> Markup:
    if effect is None:
        return element("span", DASH, class_="open")
    return joined(
        [
            element("span", signed(_thousand(effect.effect)), class_=certainty_of(effect)),
            element("small", f"{signed(_thousand(effect.lower))} to {signed(_thousand(effect.upper))}"),
        ]
    )


def _all_measures(row: SegmentGains) -> Markup:
    lines: list[tuple[Content, ...]] = []
    for contrast, (name, detail) in CONTRASTS.items():
        found = {measure: effect_of(row, contrast, measure) for measure in _MEASURES}
        seen = next((effect for effect in row.effects if effect.contrast == contrast), None)
        if seen is None:
            continue
        lines.append(
            (
                joined([name, element("small", detail)]),
                joined(
                    [
                        f"{seen.num_treated:,} / {seen.num_control:,}",
                        element("small", f"worth {figure(seen.effective_sample_size)}"),
                    ]
                ),
                *(_short(effect) for effect in found.values()),
                _delivered(found["value"]),
            )
        )
    return table(
        ("per 1,000 requests", "requests", *_MEASURES.values(), "value if served"),
        lines,
        label=f"All measures in {row.cell}",
        class_="dense",
    )


def _delivered(effect: Effect | None) -> Content:
    if effect is None or effect.delivered is None:
        return element("span", DASH, class_="open")
    low, high = signed(_thousand(effect.delivered_lower)), signed(_thousand(effect.delivered_upper))
    return joined([signed(_thousand(effect.delivered)), element("small", f"{low} to {high}")])


def _origin(row: SegmentGains) -> str:
    versions = and_list([each for each in (row.baseline_version, row.powerful_version) if each]) or "unnamed models"
    whole = "" if row.segment != WHOLE_CELL else "Whole cell, "
    told = "as published by its controller" if row.origin == "segment.uplift" else "computed from this range's windows"
    return (
        f"{whole}{row.num_requests:,} requests over {hours(row.hours)} with {versions}: {moment(row.since)} to "
        f"{moment(row.until)}, {told}. {row.pending_requests:,} more requests count once their outcomes can be in."
    )


def _thousand(value: float | None) -> float | None:
    return None if value is None else _PER * value
