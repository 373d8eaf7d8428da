"""The page and the document of a report: whole, self-contained, honest about what is missing, and safe to open."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import jsonschema
import pytest

from ops.report.document import json_schema, to_json
from ops.report.model import Report, Row
from ops.report.page.charts import Line, line_chart, linear, nines
from ops.report.page.markup import Markup, element
from ops.report.page.render import render
from ops.report.words import figure, hours, percent, signed
from tests.unit.ops.report_makers import capacity, full_range, full_uplift, outcomes, pool, report_of, uplift

SCHEMA = Path(__file__).parents[3] / "docs" / "report.schema.json"
SECTIONS = [
    "gains", "segments", "idle", "preemptions", "balance", "latency", "use", "dropped", "budget", "split",
    "guardrails", "unknown",
]  # fmt: skip
VOID = {"meta"}


class Page(HTMLParser):
    """Reads a page as a browser does: text by section, and every tag closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.sections: dict[str, str] = {}
        self._section = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "section":
            self._section = str(dict(attrs)["id"])
            self.sections[self._section] = ""
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._section:
            self.sections[self._section] += data


@pytest.fixture(scope="module")
def full() -> Report:
    return report_of(full_range(), full_uplift())


@pytest.fixture(scope="module")
def page(full: Report) -> Page:
    return Page(render(full))


def test_the_schema_in_the_docs_is_that_of_the_types() -> None:
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == json_schema()


def test_a_report_is_what_the_schema_says(full: Report) -> None:
    for report in (full, report_of([])):
        jsonschema.validate(json.loads(to_json(report)), json_schema())


def test_every_row_is_filled_from_a_full_range(full: Report, page: Page) -> None:
    assert full.idle is not None
    assert full.preemptions is not None
    assert full.balance is not None
    assert all((full.gains, full.latency, full.phases, full.arms, full.shedding, full.budget, full.series.moments))
    assert list(page.sections) == SECTIONS
    assert not [name for name, text in page.sections.items() if "Not known" in text]
    for name, words in {
        "gains": ["Both levers", "RMA alone", "SBM alone", "Together beyond the sum", "+17.4", "+11.4 to +23.4"],
        "segments": ["retail", "+31", "travel", "−9", "games", "too little is known"],
        "idle": ["put to work", "ahead of models", "no CPU beside it"],
        "latency": ["holdout", "without optional work", "during"],
        "dropped": ["gate closed", "windows that dropped"],
        "split": ["All 4 checks pass", "80.19\xa0%"],
        "guardrails": ["1 of 3 are crossed", "shed share"],
    }.items():
        for word in words:
            assert word in page.sections[name], (name, word)


def test_an_empty_range_names_every_row_as_not_known() -> None:
    report = report_of([])
    page = Page(render(report))

    named = {missing.row for missing in report.not_known}
    # Of a range with windows alone: records that were lost, and estimates.
    assert named == set(get_args(Row))
    assert list(page.sections) == SECTIONS
    assert [figure.is_known for figure in report.headline.figures] == [False, False, False]
    for missing in report.not_known:
        assert missing.reason in page.sections["unknown"]


def test_what_was_lost_is_told() -> None:
    report = report_of([capacity(1), outcomes(1, num_expired=7)], num_unreadable=3, num_deleted=1)

    reasons = " ".join(missing.reason for missing in report.not_known)
    for words in ("3 records", "1 record deleted", "7 outcomes came after"):
        assert words in reasons


def test_a_split_that_cannot_be_trusted_is_told_first_in_its_section() -> None:
    text = Page(render(report_of(full_range(2), [uplift(is_mismatch=True)]))).sections["split"]

    assert "1 of 1 checks fail" in text
    assert "mismatch" in text


def test_the_page_needs_nothing_else(full: Report, page: Page) -> None:
    html = render(full)

    assert page.open == []
    assert not {"script", "link", "img", "iframe", "object", "embed", "image", "use"} & {tag for tag, _ in page.tags}
    for _, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")]
        assert not {"src", "xlink:href", "srcset", "action"} & attributes.keys()
        assert str(attributes.get("href", "#")).startswith("#")
    assert not re.search(r"url\(|@import|https?://", html)
    assert html == render(full)


def test_names_in_records_are_text_never_markup() -> None:
    evil = '"><script>alert(1)</script>'
    windows = [capacity(1, pool(evil, causes={evil: 4.0}, unusable={evil: 1.0}))]
    page = Page(render(report_of(windows, [uplift(baseline_version=evil), uplift(evil)])))

    assert "script" not in {tag for tag, _ in page.tags}
    assert evil in page.sections["idle"]
    assert evil in page.sections["segments"]


def test_drawings_say_what_they_show(page: Page) -> None:
    drawings = [attributes for tag, attributes in page.tags if tag == "svg" and attributes.get("role") == "img"]

    assert len(drawings) > 12
    assert all(attributes["aria-label"] for attributes in drawings)


def test_no_figure_is_drawn_that_is_no_number() -> None:
    html = render(report_of(full_range(1), [uplift()]))

    assert not re.search(r"\b(nan|inf|None)\b", html)


def test_a_gap_in_time_is_a_gap_in_the_line() -> None:
    points = [(0.0, 1.0), (0.2, 2.0), (0.3, None), (0.8, 3.0)]
    drawn = line_chart(
        [Line(label="a", tone="sea", points=points)], linear([3.0], figure), label="a", across=[], height_px=138
    )

    (path,) = re.findall(r'd="([^"]+)"', drawn)
    # 100 px of plot below 18: nothing at 118, the top tick at 18. A point alone is a short stroke.
    assert path == "M0 84.67L200 51.33M800 18L801 18"


def test_scales_end_at_round_values_and_nines_are_evenly_apart() -> None:
    assert [text for _, text in linear([7.3], figure).ticks] == ["0", "2", "4", "6", "8"]
    assert linear([], figure).place(0.0) == 0.0
    scale = nines(1e-4)
    assert [scale.place(share) for share in (0.0, 0.9, 0.99, 0.999, 1.0)] == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0])


def test_text_is_escaped_and_a_figure_stays_with_its_unit() -> None:
    assert element("p", "a < b & 5 ms", title='"') == '<p title="&quot;">a &lt; b &amp; 5\xa0ms</p>'
    assert element("p", Markup("<b>x</b>")) == "<p><b>x</b></p>"


def test_figures_are_short() -> None:
    assert [figure(value) for value in (0.0, 0.01234, 1.234, 12.34, 1234.5, -0.5, None)] == [
        "0", "0.0123", "1.23", "12.3", "1,234", "−0.5", "—"
    ]  # fmt: skip
    assert [signed(value) for value in (1.0, -1.0, 0.0, -0.0)] == ["+1", "−1", "0", "0"]
    assert [percent(share) for share in (0.0, 0.012, 0.5, 1.0)] == ["0 %", "1.2 %", "50 %", "100 %"]
    assert [hours(length) for length in (0.01, 0.5, 5.0, 100.0)] == ["36 s", "30 min", "5 h", "4.2 days"]
