"""One reporter's values taken out of a histogram that was merged from several, where its own is not at hand. Pure.

Exact where its values and the others' do not overlap, as those of one that is off by a hundred times do not. Elsewhere
it errs upwards: of the low values as many go as it reported, of the high ones only those that no other can have had.

Shape suffix: B buckets.
"""

import math

import numpy as np
from numpy.typing import NDArray

from schemas.histogram import MICRO, ExponentialHistogram
from schemas.records import HistogramFields

_Counts = NDArray[np.int64]


def without_lowest(fields: HistogramFields, num_values: int) -> HistogramFields:
    """Histogram without its ``num_values`` smallest values."""
    num_zeros = min(num_values, fields.zero_count)
    counts_B = _counts(fields)
    gone_B = _first(counts_B, num_values - num_zeros)
    return _rest(fields, counts_B, gone_B, num_zeros=num_zeros)


def without_highest(fields: HistogramFields, num_values: int, *, above: float) -> HistogramFields:
    """Histogram without its ``num_values`` largest values, as far as they lie in buckets wholly above ``above``."""
    counts_B = _counts(fields)
    eligible_B = np.where(_edges(fields, len(counts_B)) >= above, counts_B, 0)
    return _rest(fields, counts_B, _first(eligible_B[::-1], num_values)[::-1], num_zeros=0)


def _counts(fields: HistogramFields) -> _Counts:
    return np.frombuffer(fields.counts, dtype="<i8").astype(np.int64)


def _edges(fields: HistogramFields, num_buckets: int) -> NDArray[np.float64]:
    """Lower edge of each bucket."""
    edges_B: NDArray[np.float64] = np.exp2((fields.offset + np.arange(num_buckets)) * 2.0**-fields.scale)
    return edges_B


def _first(counts_B: _Counts, num_values: int) -> _Counts:
    """How many of each bucket are among the first ``num_values``."""
    # More than there are could leave the range of int64.
    num_values = min(num_values, int(counts_B.sum()))
    before_B = np.cumsum(counts_B) - counts_B
    first_B: _Counts = np.clip(num_values - before_B, 0, counts_B)
    return first_B


def _rest(fields: HistogramFields, counts_B: _Counts, gone_B: _Counts, *, num_zeros: int) -> HistogramFields:
    # What is gone is known to its bucket only; so is the sum of what is left. Added up exactly: numpy's order of adding
    # depends on the processor, and so does the last digit, which ends in the state.
    width = 2.0**-fields.scale
    gone = math.fsum(
        num * 2.0 ** ((fields.offset + bucket + 0.5) * width) for bucket, num in enumerate(gone_B.tolist()) if num
    )
    gone_micro = round(gone * MICRO)
    left = ExponentialHistogram.from_fields(
        scale=fields.scale,
        offset=fields.offset,
        counts=(counts_B - gone_B).astype("<i8").tobytes(),
        zero_count=fields.zero_count - num_zeros,
        count=fields.count - num_zeros - int(gone_B.sum()),
        sum_micro=max(0, fields.sum_micro - gone_micro),
    )
    return HistogramFields(**left.to_fields())
