"""Latency with and without optional work, the use of both levers over time, and what was dropped. Pure."""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from ops.report.latency import NUM_AFTER, NUM_BEFORE
from ops.report.model import Latency, Report, Series, Shedding
from ops.report.page.capacity_section import LEVERS, NOT_KNOWN
from ops.report.page.charts import Line, Part, bars, legend, line_chart, linear, nines
from ops.report.page.markup import Content, Markup, element, joined, table
from ops.report.page.times import across, gapped, reclaim_marks
from ops.report.words import DASH, figure, milliseconds, percent

ARMS: Final = {
    "holdout": "holdout",
    "none": "neither lever",
    "rma": "RMA",
    "sbm": "SBM",
    "both": "both",
    "without": "without optional work",
    "with": "with optional work",
}
_PHASES: Final = {"before": "before", "during": "during", "other": "other times", "all": "all"}
_LOWEST: Final = 0.01
_LOG_STEPS: Final = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)


def latency_section(report: Report) -> Iterator[Content]:
    """By arm, and before and during reclaims."""
    rows = report.latency
    arms = [row for row in rows if row.phase == "all" and row.group not in ("with", "without")]
    if not arms:
        yield element("p", NOT_KNOWN, class_="note")
        return
    yield element(
        "p",
        "From a request's intake to its result. Arms get optional work by chance, so they differ by it alone. The "
        "height says what share of requests was done by then.",
        class_="lead",
    )
    yield _distributions(arms)
    yield table(
        ("arm", "requests", "mean", "p50", "p90", "p95", "p99"),
        ((ARMS[row.group], *_figures(row)) for row in arms),
        label="Latency by arm",
    )
    phased = [row for row in rows if row.group in ("with", "without") and row.phase != "all"]
    yield element("h3", "When capacity is taken back")
    yield element(
        "p",
        f"During: the windows in which something was taken back, and {NUM_AFTER} after them. Before: the {NUM_BEFORE} "
        "windows before those.",
        class_="note",
    )
    yield table(
        ("arms", "", "requests", "mean", "p50", "p90", "p95", "p99"),
        ((ARMS[row.group], _PHASES[row.phase], *_figures(row)) for row in phased),
        label="Latency before and during reclaims",
    )
    yield table(
        ("base work", "windows", "requests", "base answers late", "errors"),
        (
            (
                _PHASES[row.phase],
                f"{row.num_windows:,}",
                f"{row.num_requests:,}",
                f"{row.num_base_late:,}",
                f"{row.num_errors:,}",
            )
            for row in report.phases
        ),
        label="Base work before and during reclaims",
    )
    yield _over_time(
        report.series,
        Line(
            label="p99 of all requests, ms",
            tone="sea",
            points=gapped(report.series, [step.p99_ms for step in report.series.moments]),
        ),
    )


def use_section(report: Report) -> Iterator[Content]:
    """How much of each lever requests were assigned, over time."""
    series = report.series
    if not series.moments:
        yield element("p", NOT_KNOWN, class_="note")
        return
    extras = [step.extra_candidates for step in series.moments]
    coverage = [None if step.coverage is None else 100.0 * step.coverage for step in series.moments]
    yield element("p", "What requests were assigned, as the routers told it, whatever became of it.", class_="lead")
    yield element(
        "div",
        _over_time(series, Line(label="RMA: extra candidates a request", tone="rma", points=gapped(series, extras))),
        _over_time(series, Line(label="SBM: % of requests upgraded", tone="sbm", points=gapped(series, coverage))),
        class_="pair",
    )


def shedding_section(rows: Sequence[Shedding]) -> Iterator[Content]:
    """What of the optional work was dropped, why, and what it would have been worth."""
    if not rows:
        yield element("p", NOT_KNOWN, class_="note")
        return
    yield element("p", joined(f"{_dropped(row)} " for row in rows), class_="lead")
    yield element("div", *(_reasons(row) for row in rows), class_="pair")
    yield table(
        ("lever", "offered", "served", "shed", "late", "lost", "dropped", "value lost", "windows that dropped"),
        (
            (
                LEVERS.get(row.lever, row.lever),
                f"{row.offered_units:,}",
                f"{row.admitted_units:,}",
                f"{sum(row.sheds.values()):,}",
                f"{row.late_units:,}",
                f"{row.lost_units:,}",
                percent(row.dropped_share),
                percent(row.value_lost_share),
                f"{row.num_windows_shedding:,} of {row.num_windows:,}",
            )
            for row in rows
        ),
        label="Optional work by lever",
    )
    yield element(
        "p", "Values are what routers expected of the work when they weighed it, not outcomes.", class_="note"
    )


def _figures(row: Latency) -> tuple[str, ...]:
    quantiles = (row.mean_ms, row.p50_ms, row.p90_ms, row.p95_ms, row.p99_ms)
    return f"{row.num_requests:,}", *(milliseconds(value) for value in quantiles)


def _distributions(arms: Sequence[Latency]) -> Markup:
    edges = [point.at_ms for row in arms for point in row.cdf if point.share >= _LOWEST and point.at_ms > 0.0]
    low, high = math.log10(min(edges)), math.log10(max(edges))
    span = high - low or 1.0
    lines = [
        Line(
            label=ARMS[row.group],
            tone=row.group,
            points=[
                (min(1.0, max(0.0, (math.log10(max(point.at_ms, 1e-3)) - low) / span)), point.share)
                for point in row.cdf
                # The slowest of all stands for nobody's share.
                if _LOWEST <= point.share < 1.0
            ],
            dash=row.group if row.group in ("none", "holdout") else "",
        )
        for row in arms
    ]
    ticks = [
        ((math.log10(step * 10.0**power) - low) / span, f"{figure(step * 10.0**power)} ms")
        for power in range(math.floor(low), math.ceil(high) + 1)
        for step in _LOG_STEPS
        if low <= math.log10(step * 10.0**power) <= high
    ]
    # What is drawn of one request says nothing of a share.
    scale = nines(1.0 / max(row.num_requests for row in arms))
    return element(
        "figure",
        line_chart(lines, scale, label="Share of requests done by arm", across=_thinned(ticks), height_px=260),
        legend(lines),
        class_="chart",
    )


def _thinned(ticks: list[tuple[float, str]]) -> list[tuple[float, str]]:
    kept: list[tuple[float, str]] = []
    for tick in ticks:
        if not kept or tick[0] - kept[-1][0] > 0.1:
            kept.append(tick)
    return kept


def _over_time(series: Series, line: Line) -> Markup:
    values = [value for _, value in line.points if value is not None]
    if not values:
        return element("p", f"{line.label}: not known.", class_="note")
    chart = line_chart(
        [line],
        linear(values, figure),
        label=f"{line.label}, over time",
        across=across(series),
        marks=reclaim_marks(series),
        height_px=150,
    )
    return element("figure", chart, legend([line], marks="capacity taken back"), class_="chart")


def _dropped(row: Shedding) -> str:
    lever = LEVERS.get(row.lever, row.lever)
    lost = (
        "" if row.value_lost_share is None else f", and with it {percent(row.value_lost_share)} of the expected value"
    )
    return f"{lever}: {percent(row.dropped_share)} of the work offered was dropped{lost}."


def _reasons(row: Shedding) -> Markup:
    amounts = {**row.sheds, "late": row.late_units, "lost": row.lost_units}
    dropped = sum(amounts.values())
    parts = [
        Part(
            label=reason.replace("_", " "),
            tone="rma" if row.lever == "rma" else "sbm",
            amount=amount,
            text=f"{amount:,} units ({percent(amount / dropped)})",
        )
        for reason, amount in sorted(amounts.items(), key=lambda each: -each[1])
        if amount
    ]
    title = element("h3", f"{LEVERS.get(row.lever, row.lever)}: why")
    if not parts:
        return element("div", title, element("p", f"{DASH} nothing was dropped", class_="note"))
    return element("div", title, bars(parts, label=f"{row.lever}: units dropped by reason"))
