"""What a benchmark hands over, and the table that it becomes. Pure."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_NONE = "–"


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Values of one thing from several turns, in ``unit``, and those of its reference from the same turns.

    ``goal`` is what the project wants of the ratio, or of the value where there is no reference. Raises ValueError
    where there is no value, or not one reference value per value.
    """

    name: str
    unit: str
    values: Sequence[float]
    reference: str = ""
    reference_values: Sequence[float] = ()
    goal: str = ""

    def __post_init__(self) -> None:
        if not self.values or len(self.reference_values) not in (0, len(self.values)):
            raise ValueError(f"{self.name}: {len(self.values)} values, {len(self.reference_values)} of the reference")

    @property
    def median(self) -> float:
        """Median of the values."""
        return statistics.median(self.values)

    @property
    def reference_median(self) -> float | None:
        """Median of the reference's values; None without a reference."""
        return statistics.median(self.reference_values) if self.reference_values else None

    @property
    def ratios(self) -> list[float]:
        """Value / reference of each turn, ascending; empty without a reference."""
        return sorted(value / other for value, other in zip(self.values, self.reference_values, strict=False))

    @property
    def ratio(self) -> float | None:
        """Median of the ratios; None without a reference."""
        return statistics.median(self.ratios) if self.reference_values else None

    def to_dict(self) -> dict[str, Any]:
        """Everything measured, as JSON data."""
        return {
            "name": self.name,
            "unit": self.unit,
            "median": self.median,
            "values": list(self.values),
            "reference": self.reference or None,
            "reference_median": self.reference_median,
            "reference_values": list(self.reference_values),
            "ratio": self.ratio,
            "ratios": self.ratios,
            "goal": self.goal or None,
        }


def markdown(machine: dict[str, str], measurements: Sequence[Measurement]) -> str:
    """The machine and the measurements as markdown; beside each median stand the lowest and the highest."""
    lines = ["| machine | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in machine.items()), ""]
    lines.append("| measurement | unit | median (lowest to highest) | compared with | its median | ratio | goal |")
    lines.append("| --- | --- | ---: | --- | ---: | ---: | --- |")
    for found in measurements:
        values = _spread(found.median, found.values, _number)
        ratio = _NONE if found.ratio is None else _spread(found.ratio, found.ratios, "{:.2f}".format)
        cells = (found.name, found.unit, values, found.reference or _NONE, _number(found.reference_median), ratio)
        lines.append(f"| {' | '.join(cells)} | {found.goal or _NONE} |")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    """Three significant digits, and every digit before the point."""
    if value is None:
        return _NONE
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _spread(median: float, values: Sequence[float], written: Callable[[float], str]) -> str:
    if len(values) == 1:
        return written(median)
    return f"{written(median)} ({written(min(values))} to {written(max(values))})"
