"""Runs of one scenario beside each other, as a table for a person and as markdown."""

from collections.abc import Mapping, Sequence

from ops.twin.metrics import Totals

_HEADER = ("", "idle, unit-hours", "used", "taken back", "shed", "coverage", "worst p99, ms", "earned", "of the oracle")


def comparison(totals: Mapping[str, Totals], *, oracle: str) -> list[tuple[str, ...]]:
    """A header, and a row for each controller: what it made of the idle capacity and what that earned.

    ``earned`` is the value beyond that of base work, currency; its share is of what ``oracle`` earned.
    """
    most = sum(totals[oracle].earned.values()) if oracle in totals else 0.0
    return [_HEADER, *(_row(name, each, most) for name, each in totals.items())]


def plain(rows: Sequence[Sequence[str]]) -> str:
    """Rows in columns; the first column to the left, figures to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Rows as a markdown table."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + " --- |" + " ---: |" * (len(rows[0]) - 1))
    return "\n".join(lines)


def _row(name: str, totals: Totals, most: float) -> tuple[str, ...]:
    earned = sum(totals.earned.values())
    offered = sum(totals.offered.values())
    shed = sum(units for reasons in totals.shed.values() for units in reasons.values())
    p99_ms = totals.worst_p99_ms
    return (
        name,
        f"{totals.usable_unit_h:,.1f}",
        f"{totals.used_share:.1%}",
        f"{totals.num_reclaims:,}",
        f"{shed / offered:.2%}" if offered else "-",
        f"{totals.coverage:.1%}",
        f"{p99_ms:.0f}" if p99_ms is not None else "-",
        f"{earned:,.0f}",
        f"{earned / most:.1%}" if most > 0.0 else "-",
    )
