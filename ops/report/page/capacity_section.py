"""Idle capacity, what was taken back, how CPU and accelerators fitted, and the spend of the budget. Pure."""

from collections.abc import Iterator
from typing import Final

from ops.report.model import Balance, Idle, Preemptions, Report, Spend, Use
from ops.report.page.charts import Line, Part, bars, legend, line_chart, linear, stacked_bar
from ops.report.page.markup import Content, Markup, element, table
from ops.report.page.times import across, gapped, reclaim_marks
from ops.report.words import DASH, figure, percent

NOT_KNOWN: Final = "Not known: see the end of this page."
_CAUSES: Final = {
    "off_peak": "off peak",
    "ahead_of_models": "ahead of models",
    "region_imbalance": "regions out of balance",
    "not_ported": "not ported",
}
_REASONS: Final = {
    "model_format": "no bundle for it",
    "memory": "too little memory",
    "missing_cpu": "no CPU beside it",
    "too_short": "gone too soon",
}
LEVERS: Final = {"rma": "RMA (more ads)", "sbm": "SBM (better model)", "precompute": "precompute"}


def idle_section(idle: Idle | None) -> Iterator[Content]:
    """How much was idle, and what became of it."""
    if idle is None:
        yield element("p", NOT_KNOWN, class_="note")
        return
    total = idle.total
    used_h = min(total.used_unit_h or 0.0, total.usable_unit_h)
    parts = [
        Part(label="put to work", tone="sea", amount=used_h, text=_of(used_h, total)),
        Part(
            label="usable, not busy",
            tone="sand",
            amount=total.usable_unit_h - used_h,
            text=_of(total.usable_unit_h - used_h, total),
        ),
    ]
    parts += [
        Part(label=f"unusable, {_REASONS.get(reason, reason)}", tone="stone", amount=amount, text=_of(amount, total))
        for reason, amount in idle.unusable.items()
    ]
    yield element(
        "p",
        f"{figure(total.idle_unit_h)} unit-hours were idle. One busy second of an opportunistic replica counts as one "
        "unit-second put to work.",
        class_="lead",
    )
    yield element("div", stacked_bar(parts, label="Idle capacity"), class_="chart")
    yield table(
        ("why it was idle", "unit-hours", "usable", "put to work", "of the idle"),
        (_use_row(use, _CAUSES.get(use.label, use.label)) for use in idle.by_cause),
        label="Idle capacity by cause",
    )
    yield table(
        ("pool", "unit-hours", "usable", "put to work", "of the idle"),
        (_use_row(use, use.label) for use in idle.by_pool),
        label="Idle capacity by pool",
    )
    if any(use.is_estimate for use in idle.by_cause):
        yield element("p", "≈: shared out in proportion, as hosts say it of whole pools only.", class_="note")


def preemptions_section(report: Report) -> Iterator[Content]:
    """What was taken back, when, how much, how old."""
    found = report.preemptions
    if found is None:
        yield element("p", NOT_KNOWN, class_="note")
        return
    yield element("p", _preempted(found), class_="lead")
    series = report.series
    lines = [
        Line(
            label="idle units",
            tone="muted",
            points=gapped(series, [step.idle_units for step in series.moments]),
            dash="none",
        ),
        Line(
            label="usable units",
            tone="sea",
            points=gapped(series, [step.usable_units for step in series.moments]),
            is_filled=True,
        ),
    ]
    values = [value for line in lines for _, value in line.points if value is not None]
    yield element(
        "figure",
        line_chart(
            lines,
            linear(values, figure),
            label="Idle and usable units over time, with the times at which some were taken back",
            across=across(series),
            marks=reclaim_marks(series),
        ),
        legend(lines, marks="taken back"),
        class_="chart",
    )
    if found.num_windows:
        yield element("div", _sizes(found), _ages(found), class_="pair")


def balance_section(balance: Balance | None) -> Iterator[Content]:
    """How often CPU fitted the accelerators."""
    if balance is None:
        yield element("p", NOT_KNOWN, class_="note")
        return
    parts = [
        Part(
            label=label,
            tone=tone,
            amount=count,
            text=f"{percent(count / balance.num_windows)} ({count:,} windows)",
        )
        for label, tone, count in (
            ("balanced", "sea", balance.num_balanced),
            ("CPU short", "sbm", balance.num_cpu_short),
            ("CPU left over", "sand", balance.num_cpu_ample),
        )
    ]
    yield element(
        "p",
        f"CPU and accelerators fitted each other in {percent(balance.balanced_share)} of the windows with idle "
        "accelerators. Short: more than 5 % of idle units lack the CPU that they need. Left over: a quarter more "
        "than all of them need for RMA, which can be told only where its terms name cores a unit "
        f"({balance.num_with_need:,} of {balance.num_windows:,} windows). Balanced: neither.",
        class_="lead",
    )
    yield element("div", stacked_bar(parts, label="Windows"), class_="chart")


def budget_section(budget: list[Spend]) -> Iterator[Content]:
    """What levers spent of what they could plan with."""
    if not budget:
        yield element("p", NOT_KNOWN, class_="note")
        return
    yield element(
        "p",
        "A budget plans with the usable units of the lever's pools, times the utilisation that the cell allows. Levers "
        "on the same pool share one plan.",
        class_="lead",
    )
    yield table(
        ("lever", "pools", "planned unit-hours", "busy unit-hours", "spent", "work units done", "a busy second"),
        (
            (
                LEVERS.get(row.lever, row.lever),
                ", ".join(row.pools) or DASH,
                figure(row.planned_unit_h),
                figure(row.busy_unit_h),
                percent(row.spent_share),
                f"{row.units_done:,}",
                figure(row.units_per_busy_s),
            )
            for row in budget
        ),
        label="Spend of the budget",
    )


def _of(amount: float, total: Use) -> str:
    return percent(amount / total.idle_unit_h) if total.idle_unit_h else DASH


def _use_row(use: Use, label: str) -> tuple[Content, ...]:
    about = "≈ " if use.is_estimate else ""
    used = DASH if use.used_unit_h is None else about + figure(use.used_unit_h)
    share = DASH if use.used_share is None else about + percent(use.used_share)
    return label, figure(use.idle_unit_h), about + percent(use.usable_share), used, share


def _preempted(found: Preemptions) -> str:
    num = found.num_reclaims + found.num_hosts_silent
    if not num:
        return "Nothing was taken back."
    times = f"Hosts were taken back {num:,} times" if num != 1 else "A host was taken back once"
    silent = f", {found.num_hosts_silent:,} of them by falling silent" if found.num_hosts_silent else ""
    size = (
        ""
        if found.median_units is None
        else f" Half of the times it was at most {figure(found.median_units)} usable units of a pool at once "
        f"({percent(found.median_pool_share)} of it), at most {figure(found.largest_units)}."
    )
    return (
        f"{times}{silent}: {figure(found.per_hour)} an hour, {figure(found.units_taken)} usable units in all "
        f"({figure(found.units_per_hour)} an hour).{size}"
    )


def _sizes(found: Preemptions) -> Markup:
    parts = [
        Part(
            label=f"more than {figure(size.from_units)}, up to {figure(size.to_units)} units",
            tone="sea",
            amount=size.num_preemptions,
            text=f"{size.num_preemptions:,}×",
        )
        for size in found.sizes
    ]
    return element("div", element("h3", "How much at once"), bars(parts, label="Preemptions by size"))


def _ages(found: Preemptions) -> Markup:
    ages = found.ages
    ends: list[int | None] = [*(age.from_age_s for age in ages[1:]), None]
    parts = [
        Part(
            label=f"{age.from_age_s:,} to {end:,} s" if end is not None else f"{age.from_age_s:,} s or more",
            tone="sand",
            amount=age.units,
            text=f"{figure(age.units)} units",
        )
        for age, end in zip(ages, ends, strict=True)
    ]
    return element("div", element("h3", "How long it had been offered"), bars(parts, label="Units taken back by age"))
