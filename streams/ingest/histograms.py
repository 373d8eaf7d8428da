"""Histograms of intervals: believed one by one, merged within their bounds. Pure."""

from schemas.errors import RecordError
from schemas.histogram import ExponentialHistogram, check_packed
from schemas.records import HistogramFields

# Buckets are merged so many histograms at a time: what a merge costs hardly depends on how many there are. A window may
# hold a thousand reporters, each with as many waiting.
MAX_WAITING = 32


def believe_histogram(packed: HistogramFields, *, field: str, index: int = 0) -> None:
    """Raise RecordError naming ``field``, its ``{}`` being the index, unless a histogram can have the packed form."""
    try:
        check_packed(
            scale=packed.scale,
            offset=packed.offset,
            counts=packed.counts,
            zero_count=packed.zero_count,
            count=packed.count,
            sum_micro=packed.sum_micro,
        )
    except ValueError as error:
        raise RecordError("invalid_field", str(error), field=field.format(index)) from None


class Merged:
    """A histogram that leaves out, and remembers, what would take its totals beyond their bounds."""

    __slots__ = ("_histogram", "_waiting", "saturated")

    def __init__(self) -> None:
        self._histogram = ExponentialHistogram()
        self._waiting: list[HistogramFields] = []
        self.saturated = False

    @property
    def histogram(self) -> ExponentialHistogram:
        """All that was added."""
        self._merge()
        return self._histogram

    def add(self, packed: HistogramFields) -> None:
        """Merge one that ``believe_histogram`` has passed."""
        try:
            self._histogram.add_totals(packed.count, zero_count=packed.zero_count, sum_micro=packed.sum_micro)
        except ValueError:
            # Believed alone, so only the total can be too much; in the order of the log, so the same at each reading.
            self.saturated = True
            return
        if packed.count > packed.zero_count:
            self._waiting.append(packed)
            if len(self._waiting) >= MAX_WAITING:
                self._merge()

    def fields(self) -> HistogramFields:
        """Packed form of all that was added."""
        return HistogramFields(**self.histogram.to_fields())

    def _merge(self) -> None:
        waiting = self._waiting
        if waiting:
            self._histogram.add_checked_buckets(
                [packed.scale for packed in waiting],
                [packed.offset for packed in waiting],
                [packed.counts for packed in waiting],
            )
            self._waiting = []
