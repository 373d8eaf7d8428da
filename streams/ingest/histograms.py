"""Histograms of intervals: believed one by one, merged within their bounds. Pure."""

from typing import Any

from schemas.errors import RecordError
from schemas.histogram import ExponentialHistogram
from schemas.records import HistogramFields


def believe_histogram(packed: HistogramFields, *, field: str) -> None:
    """Raise RecordError naming ``field`` unless the packed form is one that a histogram can have."""
    try:
        ExponentialHistogram.from_fields(**_fields(packed))
    except ValueError as error:
        raise RecordError("invalid_field", str(error), field=field) from None


class Merged:
    """A histogram that leaves out, and remembers, what would take its totals beyond their bounds."""

    __slots__ = ("histogram", "saturated")

    def __init__(self) -> None:
        self.histogram = ExponentialHistogram()
        self.saturated = False

    def add(self, packed: HistogramFields) -> None:
        try:
            self.histogram.add_fields(**_fields(packed))
        except ValueError:
            # Believed alone, so only the total can be too much; in the order of the log, so the same at each reading.
            self.saturated = True

    def fields(self) -> HistogramFields:
        return HistogramFields(**self.histogram.to_fields())


def _fields(packed: HistogramFields) -> dict[str, Any]:
    return {name: getattr(packed, name) for name in packed.__struct_fields__}
