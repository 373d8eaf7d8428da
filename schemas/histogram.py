"""Base-2 exponential histograms whose merge is exact, associative and commutative.

The OpenTelemetry data model (opentelemetry.io/docs/specs/otel/metrics/data-model, "ExponentialHistogram"):

    base = 2 ** (2 ** -scale)
    bucket i holds the values in (base ** i, base ** (i + 1)]      upper-inclusive
    one scale down, two neighbours become one:  i -> i >> 1        exact, nothing is re-estimated

The scale is always min(scales seen, largest scale at which all non-empty buckets span at most MAX_BUCKETS).
Span grows with the scale and with the set of buckets, so that this scale, and with it every byte, depends on
what was recorded and not on the order or grouping. A histogram without buckets stands at MAX_SCALE: the
identity of merging.

Minimum and maximum are not kept: they are not part of the packed form, and a quantile that used them would
differ between a histogram and its own copy read from a topic.

Shape suffixes: B buckets, N values.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

MIN_SCALE: Final = -10
MAX_SCALE: Final = 20
MAX_BUCKETS: Final = 160
# Values are placed at this scale and shifted down from there, so that one table of edges serves all scales.
# Half a bucket here is 0.034 %.
RECORD_SCALE: Final = 10
MICRO: Final = 1_000_000
# Counts stay exact as float64, and 160 of them never wrap an int64.
MAX_COUNT: Final = 2**53
MAX_SUM_MICRO: Final = 2**63 - 1
# The largest value whose micro-units surely fit an int64.
MAX_VALUE: Final = 9e12
# 2 to this power is the first one above it.
MAX_EXPONENT: Final = math.frexp(MAX_VALUE)[1]

_Counts = NDArray[np.int64]
_PACKED: Final = np.dtype("<i8")


class PackedHistogram(TypedDict):
    """The packed form as records carry it; equal histograms have equal fields."""

    scale: int
    offset: int
    counts: bytes
    zero_count: int
    count: int
    sum_micro: int


def _bucket_edges() -> tuple[float, ...]:
    """Return 2 ** (j / 2**RECORD_SCALE) / 2 for j in [0, 2**RECORD_SCALE), rounded down to a double.

    Fixed-point integers make the table, and so each bucket index, the same on every machine; a logarithm is
    off by an ulp here and there. Rounding down keeps `value <= edge` exact for doubles, as all edges but the
    first are irrational.
    """
    guard_bits = 256
    root = 2 << guard_bits
    for _ in range(RECORD_SCALE):
        root = math.isqrt(root << guard_bits)
    edges, edge = [], 1 << guard_bits
    for _ in range(2**RECORD_SCALE):
        edges.append((edge >> (guard_bits - 52)) / 2.0**53)
        edge = (edge * root) >> guard_bits
    return tuple(edges)


_EDGES: Final = _bucket_edges()
_EDGES_ARRAY: Final = np.array(_EDGES)


class ExponentialHistogram:
    """Records non-negative values, merges with others, answers quantiles. Not thread-safe.

    The buckets lie in a ring: bucket i at slot i % MAX_BUCKETS. The span never exceeds the ring, so that a
    new lowest or highest bucket moves nothing.
    """

    __slots__ = ("_high", "_low", "_ring", "_scale", "count", "sum_micro", "zero_count")

    def __init__(self) -> None:
        self.count = 0
        self.zero_count = 0
        self.sum_micro = 0
        self._scale = MAX_SCALE
        # Indices of the lowest and highest non-empty bucket; high < low: there is none.
        self._low = 0
        self._high = -1
        self._ring: _Counts = np.zeros(MAX_BUCKETS, dtype=np.int64)

    @property
    def scale(self) -> int:
        """The scale; MAX_SCALE while there are no buckets."""
        return self._scale

    @property
    def offset(self) -> int:
        """Index of the first bucket, which is not empty; 0 while there are no buckets."""
        return self._low

    @property
    def relative_error(self) -> float:
        """Largest |quantile / true - 1|: sqrt(base) - 1, half a bucket on the log axis."""
        return math.expm1(math.log(2.0) * 2.0 ** -(self._scale + 1))

    def record(self, value: float) -> None:
        """Count one value. Raises ValueError for NaN, infinite, negative or more than MAX_VALUE.

        Totals are added in place, without `add_totals`: this is called once per request.
        """
        if not 0.0 <= value <= MAX_VALUE:
            raise ValueError(f"value: {value!r} is not in [0, {MAX_VALUE:g}]")
        sum_micro = self.sum_micro + round(value * MICRO)
        if sum_micro > MAX_SUM_MICRO:
            raise ValueError(f"sum_micro: more than {MAX_SUM_MICRO} in all")
        self.sum_micro = sum_micro
        self.count += 1
        if value == 0.0:
            self.zero_count += 1
            return
        fraction, exponent = math.frexp(value)
        index = ((exponent - 1) << RECORD_SCALE) + bisect_left(_EDGES, fraction) - 1
        shift = RECORD_SCALE - self._scale
        if shift >= 0:
            index >>= shift
            if self._low <= index <= self._high:
                self._ring[index % MAX_BUCKETS] += 1
                return
        self._add_buckets(min(RECORD_SCALE, self._scale), index, np.ones(1, dtype=np.int64))

    def record_many(self, values: ArrayLike) -> None:
        """Count an array of values, any shape; all or, when one is bad, none. Raises as `record` does."""
        values_N = np.asarray(values, dtype=np.float64).ravel()
        good_N = (values_N >= 0.0) & (values_N <= MAX_VALUE)
        if not good_N.all():
            first = int(np.argmin(good_N))
            raise ValueError(f"value: {float(values_N[first])!r} at {first} is not in [0, {MAX_VALUE:g}]")
        micro_N = np.rint(values_N * MICRO).astype(np.int64)
        # Two halves: one int64 sum could wrap unseen.
        sum_micro = (int((micro_N >> 32).sum()) << 32) + int((micro_N & 0xFFFFFFFF).sum())
        positive_N = values_N[values_N > 0.0]
        self.add_totals(len(values_N), zero_count=len(values_N) - len(positive_N), sum_micro=sum_micro)
        if not len(positive_N):
            return
        fraction_N, exponent_N = np.frexp(positive_N)
        index_N = (exponent_N.astype(np.int64) - 1) << RECORD_SCALE
        index_N += np.searchsorted(_EDGES_ARRAY, fraction_N, side="left") - 1
        low, high = int(index_N.min()), int(index_N.max())
        scale = _fitting_scale(RECORD_SCALE, low, high)
        shift = RECORD_SCALE - scale
        counts_B = np.bincount((index_N >> shift) - (low >> shift)).astype(np.int64, copy=False)
        self._add_buckets(scale, low >> shift, counts_B)

    def add(self, other: ExponentialHistogram) -> None:
        """Merge another histogram into this one, exactly. Raises ValueError when a total overflows."""
        counts_B = other._unrolled()
        self.add_totals(other.count, zero_count=other.zero_count, sum_micro=other.sum_micro)
        if len(counts_B):
            self._add_buckets(other._scale, other._low, counts_B)

    def add_fields(
        self, *, scale: int, offset: int, counts: bytes, zero_count: int, count: int, sum_micro: int
    ) -> None:
        """Merge a packed histogram into this one.

        Raises ValueError naming the field that cannot be believed; nothing is added then.
        """
        counts_B = check_packed(
            scale=scale, offset=offset, counts=counts, zero_count=zero_count, count=count, sum_micro=sum_micro
        )
        self.add_totals(count, zero_count=zero_count, sum_micro=sum_micro)
        if count == zero_count:
            return
        if not (counts_B[0] and counts_B[-1]):
            filled = np.flatnonzero(counts_B)
            offset += int(filled[0])
            counts_B = counts_B[filled[0] : filled[-1] + 1]
        self._add_buckets(scale, offset, counts_B)

    def add_totals(self, count: int, *, zero_count: int, sum_micro: int) -> None:
        """Add to the totals alone: ``add_checked_buckets`` is to follow. Raises ValueError when one overflows."""
        if self.count + count > MAX_COUNT:
            raise ValueError(f"count: more than {MAX_COUNT} in all")
        if self.sum_micro + sum_micro > MAX_SUM_MICRO:
            raise ValueError(f"sum_micro: more than {MAX_SUM_MICRO} in all")
        self.count += count
        self.zero_count += zero_count
        self.sum_micro += sum_micro

    def add_checked_buckets(self, scales: Sequence[int], offsets: Sequence[int], counts: Sequence[bytes]) -> None:
        """Add the buckets of many packed histograms that ``check_packed`` has passed, by a few numpy calls for all.

        Their totals are in by ``add_totals``. At least one bucket of them is not empty.
        """
        sizes = np.array([len(packed) for packed in counts]) // _PACKED.itemsize
        counts_N = np.frombuffer(b"".join(counts), dtype=_PACKED)
        index_N = np.arange(len(counts_N)) + np.repeat(np.array(offsets) - (np.cumsum(sizes) - sizes), sizes)
        shared = min(scales)
        if max(scales) > shared:
            index_N >>= np.repeat(np.array(scales) - shared, sizes)
        is_filled_N = counts_N > 0
        if not is_filled_N.all():
            index_N, counts_N = index_N[is_filled_N], counts_N[is_filled_N]
        low, high = int(index_N.min()), int(index_N.max())
        scale = _fitting_scale(shared, low, high)
        shift = shared - scale
        # Exact as float64: no sum of counts exceeds MAX_COUNT.
        counts_B = np.bincount((index_N >> shift) - (low >> shift), weights=counts_N).astype(np.int64)
        self._add_buckets(scale, low >> shift, counts_B)

    def quantile(self, q: float) -> float | None:
        """Return the value at rank ceil(q * count), at least 1; None when nothing was recorded.

        The answer is the log-midpoint base ** (i + 0.5) of the bucket that holds that rank, so it is off by
        at most `relative_error`, up or down; a zero is answered as 0.0. Raises ValueError when q is not in
        [0, 1].
        """
        if not 0.0 <= q <= 1.0:
            raise ValueError(f"q: {q!r} is not in [0, 1]")
        if self.count == 0:
            return None
        # The product may stand an ulp above the whole number it means (0.07 * 100): not the next rank.
        rank = max(1, math.ceil(q * self.count * (1.0 - 2.0**-51)))
        if rank <= self.zero_count:
            return 0.0
        bucket = int(np.searchsorted(np.cumsum(self._unrolled()), rank - self.zero_count, side="left"))
        return float(2.0 ** ((self._low + bucket + 0.5) * 2.0**-self._scale))

    def to_fields(self) -> PackedHistogram:
        """Return the canonical packed form: no empty bucket at either end, counts as little-endian int64."""
        return PackedHistogram(
            scale=self._scale,
            offset=self._low,
            counts=self._unrolled().astype(_PACKED, copy=False).tobytes(),
            zero_count=self.zero_count,
            count=self.count,
            sum_micro=self.sum_micro,
        )

    @classmethod
    def from_fields(
        cls, *, scale: int, offset: int, counts: bytes, zero_count: int, count: int, sum_micro: int
    ) -> ExponentialHistogram:
        """Return the histogram of a packed form. Raises ValueError naming the unbelievable field."""
        histogram = cls()
        histogram.add_fields(
            scale=scale,
            offset=offset,
            counts=counts,
            zero_count=zero_count,
            count=count,
            sum_micro=sum_micro,
        )
        return histogram

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExponentialHistogram) and self.to_fields() == other.to_fields()

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"ExponentialHistogram({self.to_fields()})"

    def _add_buckets(self, scale: int, offset: int, counts_B: _Counts) -> None:
        """Add buckets, the first and last of them not empty, at the largest scale that is shared and fits."""
        shared = min(scale, self._scale)
        low, high = offset >> (scale - shared), (offset + len(counts_B) - 1) >> (scale - shared)
        if self._high >= self._low:
            own = self._scale - shared
            low, high = min(low, self._low >> own), max(high, self._high >> own)
        fitting = _fitting_scale(shared, low, high)
        self._downscale(fitting)
        if scale > fitting:
            offset, counts_B = _rebinned(offset, counts_B, scale - fitting)
        slot = offset % MAX_BUCKETS
        end = min(slot + len(counts_B), MAX_BUCKETS)
        self._ring[slot:end] += counts_B[: end - slot]
        if end - slot < len(counts_B):
            self._ring[: len(counts_B) - (end - slot)] += counts_B[end - slot :]
        self._low, self._high = low >> (shared - fitting), high >> (shared - fitting)

    def _downscale(self, scale: int) -> None:
        """Merge neighbours until the histogram stands at the scale given."""
        if self._scale == scale:
            return
        counts_B = self._unrolled()
        if len(counts_B):
            self._low, counts_B = _rebinned(self._low, counts_B, self._scale - scale)
            self._high = self._low + len(counts_B) - 1
            self._ring[:] = 0
            self._ring[np.arange(self._low, self._high + 1) % MAX_BUCKETS] = counts_B
        self._scale = scale

    def _unrolled(self) -> _Counts:
        """Return a copy of the counts from the lowest to the highest non-empty bucket."""
        size = self._high - self._low + 1
        slot = self._low % MAX_BUCKETS
        end = min(slot + size, MAX_BUCKETS)
        return np.concatenate((self._ring[slot:end], self._ring[: size - (end - slot)]))


def merge(histograms: Iterable[ExponentialHistogram]) -> ExponentialHistogram:
    """Return the merge of any number of histograms, which are left as they are; of none: an empty one."""
    merged = ExponentialHistogram()
    for histogram in histograms:
        merged.add(histogram)
    return merged


def _fitting_scale(scale: int, low: int, high: int) -> int:
    """Return the largest scale, at most the one given, at which low to high span at most MAX_BUCKETS."""
    while high - low >= MAX_BUCKETS:
        low, high, scale = low >> 1, high >> 1, scale - 1
    return scale


def _rebinned(offset: int, counts_B: _Counts, shift: int) -> tuple[int, _Counts]:
    """Return offset and counts `shift` scales down: bucket i goes to i >> shift."""
    first, last = offset >> shift, (offset + len(counts_B) - 1) >> shift
    starts = (np.arange(first, last + 1) << shift) - offset
    starts[0] = 0
    return first, np.add.reduceat(counts_B, starts)


def check_packed(
    *, scale: int, offset: int, counts: bytes, zero_count: int, count: int, sum_micro: int
) -> NDArray[np.int64]:
    """Return the counts [B] of a packed histogram without a copy.

    Raises ValueError naming the field that cannot be believed.
    """
    counts_B = _checked_counts(scale=scale, offset=offset, counts=counts)
    if not 0 <= count <= MAX_COUNT:
        raise ValueError(f"count: {count} is not in [0, {MAX_COUNT}]")
    if not 0 <= zero_count <= count:
        raise ValueError(f"zero_count: {zero_count} is not in [0, count {count}]")
    if not 0 <= sum_micro <= MAX_SUM_MICRO:
        raise ValueError(f"sum_micro: {sum_micro} is not in [0, {MAX_SUM_MICRO}]")
    if len(counts_B):
        # Each at most `count` first, so that the sum cannot wrap to the right figure; read as unsigned, a negative
        # count is a huge one. `ufunc.reduce` is the quick spelling of `max` and `sum`.
        if np.maximum.reduce(counts_B.view(np.uint64)) > count:
            if counts_B.min() < 0:
                raise ValueError("counts: a bucket is negative")
            raise ValueError(f"count: {count} is less than one of counts")
        if zero_count + int(np.add.reduce(counts_B)) != count:
            raise ValueError(f"count: {count} is not zero_count {zero_count} plus the sum of counts")
    elif zero_count != count:
        raise ValueError(f"count: {count} is not zero_count {zero_count} plus no counts")
    return counts_B


def _checked_counts(*, scale: int, offset: int, counts: bytes) -> _Counts:
    """Return packed counts as an array without a copy. Raises ValueError naming the field."""
    if not MIN_SCALE <= scale <= MAX_SCALE:
        raise ValueError(f"scale: {scale} is not in [{MIN_SCALE}, {MAX_SCALE}]")
    if len(counts) % 8:
        raise ValueError(f"counts: {len(counts)} bytes is not a multiple of 8")
    num_buckets = len(counts) // 8
    if num_buckets > MAX_BUCKETS:
        raise ValueError(f"counts: {num_buckets} buckets, more than {MAX_BUCKETS}")
    # The buckets of the smallest double (2**-1074) and of MAX_VALUE (under 2**44): all between them fit MAX_BUCKETS at
    # scale -4, so that no merge falls below MIN_SCALE, and no quantile or sum is infinite.
    lowest = ((-1074 << scale) - 1) if scale >= 0 else (-1075 >> -scale)
    highest = ((MAX_EXPONENT << scale) - 1) if scale >= 0 else ((MAX_EXPONENT - 1) >> -scale)
    if num_buckets and not lowest <= offset <= highest - num_buckets + 1:
        raise ValueError(f"offset: {offset} is beyond all values at scale {scale} with {num_buckets} buckets")
    counts_B: _Counts = np.frombuffer(counts, dtype=_PACKED)
    return counts_B
