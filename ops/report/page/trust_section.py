"""Whether the split can be trusted, guardrails, arms side by side, and what is not known. Pure."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from ops.report.gains import WHOLE_CELL
from ops.report.model import ArmCounts, NotKnown, Report, Row, SegmentGains
from ops.report.page.capacity_section import NOT_KNOWN
from ops.report.page.markup import Content, Markup, element, table
from ops.report.page.serving_section import ARMS
from ops.report.words import DASH, figure, percent
from schemas.records import SampleRatio

_ROWS: Final[dict[Row, str]] = {
    "range": "The range",
    "outcomes": "Outcomes",
    "gains": "Gains",
    "gains_by_segment": "Gains by segment",
    "idle": "Idle capacity",
    "idle_by_cause": "Idle by cause",
    "preemptions": "Preemptions",
    "preemption_sizes": "Their sizes",
    "balance": "CPU and accelerators",
    "latency_by_arm": "Latency by arm",
    "latency_in_reclaims": "Latency in reclaims",
    "shedding": "Dropped work",
    "budget": "Budget",
    "sample_ratio": "The split",
    "guardrails": "Guardrails",
    "fairness": "Fairness",
}


def split_section(report: Report) -> Iterator[Content]:
    """The sample-ratio check of each cell and segment, and the arms side by side."""
    checked = [(row, row.sample_ratio) for row in report.gains if row.sample_ratio is not None]
    wrong = [(row, ratio) for row, ratio in checked if ratio.is_mismatch]
    if not checked:
        yield element("p", NOT_KNOWN, class_="note")
    else:
        verdict = (
            f"{len(wrong)} of {len(checked)} checks fail: there the arms are not what chance drew, and no gain of "
            "theirs can be believed."
            if wrong
            else f"All {len(checked)} checks pass: arms have the shares that were drawn. p is valid at every look."
        )
        yield element("p", verdict, class_="lead loss" if wrong else "lead")
        whole = [(row, ratio) for row, ratio in checked if row.segment == WHOLE_CELL]
        shown = whole + [each for each in wrong if each not in whole]
        yield table(
            ("cell, segment", "arm", "expected", "observed", "p", "check"),
            (line for row, ratio in shown or checked[:1] for line in _ratio(row, ratio)),
            label="Sample-ratio check",
        )
    if report.arms:
        yield element("h3", "What each arm met")
        yield _arms(report.arms)


def guardrails_section(gains: Sequence[SegmentGains]) -> Iterator[Content]:
    """Every guardrail that is crossed, and those of whole cells."""
    found = [(row, guardrail) for row in gains for guardrail in row.guardrails]
    if not found:
        yield element("p", NOT_KNOWN, class_="note")
        return
    crossed = [each for each in found if each[1].is_crossed]
    told = f"{len(crossed)} of {len(found)} are crossed: the lever is back to base there."
    yield element("p", told if crossed else f"None of {len(found)} is crossed.", class_="lead")
    shown = crossed + [each for each in found if each[0].segment == WHOLE_CELL and each not in crossed]
    yield table(
        ("cell, segment", "guardrail", "lever", "figure", "limit", "state", "detail"),
        (
            (
                f"{row.cell}, {row.segment}",
                guardrail.name.replace("_", " "),
                guardrail.lever.upper(),
                figure(guardrail.figure),
                figure(guardrail.limit),
                _pill("crossed", "loss") if guardrail.is_crossed else _pill("kept", "gain"),
                element("td", guardrail.detail or DASH, class_="text"),
            )
            for row, guardrail in shown
        ),
        label="Guardrails",
    )


def unknown_section(missing: Sequence[NotKnown]) -> Iterator[Content]:
    """What the logs do not tell, by row."""
    if not missing:
        yield element("p", "Every row of this report is filled.", class_="lead")
        return
    ordered = sorted(missing, key=lambda each: list(_ROWS).index(each.row))
    yield element(
        "ul",
        *(
            element(
                "li",
                element("b", _ROWS[row]),
                element("div", *(element("div", f"{each.reason}.") for each in of_row)),
            )
            for row, of_row in groupby(ordered, key=lambda each: each.row)
        ),
        class_="unknown-list",
    )


def _ratio(row: SegmentGains, ratio: SampleRatio) -> Iterator[tuple[Content, ...]]:
    for number, (arm, expected, observed) in enumerate(zip(ratio.arms, ratio.expected, ratio.observed, strict=True)):
        is_first = number == 0
        yield (
            f"{row.cell}, {row.segment}" if is_first else "",
            ARMS[arm],
            f"{100 * expected:.2f} %",
            f"{100 * observed:.2f} %",
            figure(ratio.p_value) if is_first else "",
            (_pill("mismatch", "loss") if ratio.is_mismatch else _pill("passes", "gain")) if is_first else "",
        )


def _arms(arms: Sequence[ArmCounts]) -> Markup:
    return table(
        ("arm", "requests", "late", "degraded", "errors", "optional items", "served", "shed", "ads changed by SBM"),
        (
            (
                ARMS[row.arm],
                f"{row.num_requests:,}",
                f"{row.num_late:,}",
                f"{row.num_degraded:,}",
                f"{row.num_errors:,}",
                f"{row.num_items:,}",
                percent(row.num_items_admitted / row.num_items) if row.num_items else DASH,
                percent(row.num_items_shed / row.num_items) if row.num_items else DASH,
                percent(row.num_flipped / row.num_compared) if row.num_compared else DASH,
            )
            for row in arms
        ),
        label="Arms side by side",
    )


def _pill(text: str, tone: str) -> Markup:
    return element("span", text, class_=f"pill {tone}")
