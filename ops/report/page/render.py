"""The whole page: one file that needs no network and runs no script. Pure."""

from collections.abc import Iterable
from typing import Final

from ops.report.model import Figure, Report
from ops.report.page.capacity_section import balance_section, budget_section, idle_section, preemptions_section
from ops.report.page.gains_section import gains_section, segments_section
from ops.report.page.markup import Content, Markup, element
from ops.report.page.serving_section import latency_section, shedding_section, use_section
from ops.report.page.style import STYLE
from ops.report.page.trust_section import guardrails_section, split_section, unknown_section
from ops.report.words import and_list, hours, moment

_TITLE: Final = "Intertidal: what borrowed capacity earned"
# Nothing may be fetched, and nothing may run, whatever stands in a record.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def render(report: Report) -> str:
    """HTML of a report."""
    sections: list[tuple[str, str, Iterable[Content]]] = [
        ("gains", "What each lever earned", gains_section(report.gains)),
        ("segments", "Who gained", segments_section(report.gains)),
        ("idle", "Idle capacity, and what became of it", idle_section(report.idle)),
        ("preemptions", "What was taken back", preemptions_section(report)),
        ("balance", "CPU beside accelerators", balance_section(report.balance)),
        ("latency", "Latency with and without", latency_section(report)),
        ("use", "How much each lever was used", use_section(report)),
        ("dropped", "Optional work that was dropped", shedding_section(report.shedding)),
        ("budget", "Spend of the budget", budget_section(report.budget)),
        ("split", "Whether the split can be trusted", split_section(report)),
        ("guardrails", "Guardrails", guardrails_section(report.gains)),
        ("unknown", "What is not known", unknown_section(report.not_known)),
    ]
    links = [element("a", title, href=f"#{name}") for name, title, _ in sections]
    body = element(
        "body",
        element(
            "header",
            element("p", *_kicker(report), class_="kicker"),
            element("h1", report.headline.sentence),
            element("div", *_figures(report), class_="figures"),
            element("nav", *links, aria_label="Contents"),
        ),
        element(
            "main",
            *(element("section", element("h2", title), *content, id=name) for name, title, content in sections),
        ),
        element("footer", _footer(report)),
    )
    head = element(
        "head",
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        element("title", _TITLE),
        element("style", Markup(STYLE)),
    )
    return "<!doctype html>\n" + element("html", head, body, lang="en") + "\n"


def _kicker(report: Report) -> list[Markup]:
    covered = report.covered
    cells = and_list(covered.cells) or "no cell"
    span = f"{moment(covered.since)} to {moment(covered.until)}"
    return [
        element("span", element("b", "Intertidal disclosure report")),
        element("span", cells),
        element("span", span),
    ]


def _figures(report: Report) -> list[Markup]:
    tones = [report.headline.certainty, "", ""]
    return [_figure(figure, tone) for figure, tone in zip(report.headline.figures, tones, strict=True)]


def _figure(figure: Figure, tone: str) -> Markup:
    classes = "unknown" if not figure.is_known else tone
    return element(
        "div",
        element("div", figure.value, class_="value"),
        element("div", figure.label, class_="label"),
        element("div", figure.detail, class_="detail"),
        class_=f"figure {classes}".strip(),
    )


def _footer(report: Report) -> str:
    covered = report.covered
    where = f" of {covered.namespace}" if covered.namespace else ""
    return (
        f"From {covered.num_windows:,} closed windows{where} over {hours(covered.hours)}: {covered.num_requests:,} "
        f"requests, {covered.num_results:,} results, {covered.num_outcomes:,} outcomes "
        f"({covered.num_late_outcomes:,} late). Effects are by what was assigned, never by what was delivered: what "
        "is shed is not shed by chance."
    )
