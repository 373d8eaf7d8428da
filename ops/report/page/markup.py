"""HTML and SVG by hand: what is text is escaped, what is made here is not. Pure."""

import re
from collections.abc import Iterable
from html import escape
from typing import Final

# A figure and its unit stay on one line.
_UNIT: Final = re.compile(r"(?<=\d) (?=(?:%|ms|s|min|h|days|units?|requests)(?!\w))")


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


Content = str | Markup


def element(tag: str, *content: Content, **attributes: str | float | None) -> Markup:
    """An element; attributes without a value are left out, ``_`` in names stands for ``-``, ``class_`` for class."""
    said = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(_text(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    inner = joined(content)
    if not inner and tag in ("line", "rect", "circle", "path", "polyline"):
        return Markup(f"<{tag}{said}/>")
    return Markup(f"<{tag}{said}>{inner}</{tag}>")


def joined(parts: Iterable[Content]) -> Markup:
    """Parts one after another."""
    return Markup(
        "".join(part if isinstance(part, Markup) else _UNIT.sub("\u00a0", escape(part, quote=False)) for part in parts)
    )


def at(share: float) -> str:
    """A place across the whole width."""
    return f"{100.0 * share:.2f}%"


def table(head: Iterable[Content], rows: Iterable[Iterable[Content]], *, label: str, class_: str = "") -> Markup:
    """A table that scrolls by itself where the page is narrower than it."""
    cells = element("tr", *(element("th", each, scope="col") for each in head))
    body = [element("tr", *(_cell(each) for each in row)) for row in rows]
    inner = element("table", element("thead", cells), element("tbody", *body), aria_label=label, class_=class_ or None)
    return element("div", inner, class_="scroll", tabindex="0", role="region", aria_label=label)


def _cell(content: Content) -> Markup:
    return content if isinstance(content, Markup) and content.startswith("<td") else element("td", content)


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:g}"
