"""Exponential histograms: exact edges, exact merging, bounded quantiles, which packed forms are believed."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.histogram import (
    MAX_BUCKETS,
    MAX_COUNT,
    MAX_SCALE,
    MAX_SUM_MICRO,
    MAX_VALUE,
    MIN_SCALE,
    RECORD_SCALE,
    ExponentialHistogram,
    PackedHistogram,
    merge,
)

values = st.one_of(
    st.just(0.0),
    st.floats(min_value=0.0, max_value=MAX_VALUE / 1000, allow_nan=False),
    st.floats(min_value=0.5, max_value=500.0),
    st.integers(min_value=-1074, max_value=30).map(lambda exponent: math.ldexp(1.0, exponent)),
)


def recorded(*parts: float) -> ExponentialHistogram:
    histogram = ExponentialHistogram()
    for value in parts:
        histogram.record(value)
    return histogram


def packed(scale: int, offset: int, counts: list[int], zero_count: int = 0) -> dict[str, Any]:
    return {
        "scale": scale,
        "offset": offset,
        "counts": np.array(counts, dtype="<i8").tobytes(),
        "zero_count": zero_count,
        "count": sum(counts) + zero_count,
        "sum_micro": 7 * sum(counts),
    }


@st.composite
def packed_histograms(draw: st.DrawFn) -> ExponentialHistogram:
    """A histogram as another program may have made it: any scale, any place, empty buckets anywhere."""
    scale = draw(st.integers(MIN_SCALE, MAX_SCALE))
    lowest = ((-1074 << scale) - 1) if scale >= 0 else (-1075 >> -scale)
    highest = ((44 << scale) - 1) if scale >= 0 else (43 >> -scale)
    num_buckets = draw(st.integers(0, min(MAX_BUCKETS, highest - lowest + 1)))
    offset = draw(st.integers(lowest, highest - num_buckets + 1))
    counts = draw(st.lists(st.sampled_from([0, 0, 1, 5]), min_size=num_buckets, max_size=num_buckets))
    return ExponentialHistogram.from_fields(**packed(scale, offset, counts, draw(st.integers(0, 3))))


def merged_as_a_tree(histograms: list[ExponentialHistogram], rng: random.Random) -> ExponentialHistogram:
    """Merge in a random order and a random grouping."""
    parts = list(histograms)
    while len(parts) > 1:
        group = [parts.pop(rng.randrange(len(parts))) for _ in range(rng.randint(2, min(4, len(parts))))]
        parts.append(merge(group))
    return merge(parts)


@given(st.lists(st.one_of(st.lists(values, max_size=8), packed_histograms()), max_size=8), st.randoms())
@settings(max_examples=300, deadline=None)
def test_any_order_and_grouping_of_merging_gives_the_same_bytes(
    parts: list[list[float] | ExponentialHistogram], rng: random.Random
) -> None:
    histograms = [part if isinstance(part, ExponentialHistogram) else recorded(*part) for part in parts]
    before = [histogram.to_fields() for histogram in histograms]

    expected = merge(histograms).to_fields()

    assert merged_as_a_tree(histograms, rng).to_fields() == expected
    assert [histogram.to_fields() for histogram in histograms] == before
    accumulator = ExponentialHistogram()
    for fields in rng.sample(before, len(before)):
        accumulator.add_fields(**fields)
    assert accumulator.to_fields() == expected


@given(st.lists(values, max_size=60), st.randoms())
@settings(max_examples=200, deadline=None)
def test_recording_one_by_one_in_arrays_or_apart_is_the_same(parts: list[float], rng: random.Random) -> None:
    expected = recorded(*parts)
    at_once = ExponentialHistogram()
    at_once.record_many(np.array(parts))
    cut = rng.randint(0, len(parts))
    shuffled = rng.sample(parts, len(parts))

    assert at_once == expected
    assert merge([recorded(*shuffled[:cut]), recorded(*shuffled[cut:])]) == expected
    assert expected.sum_micro == sum(round(value * 1_000_000) for value in parts)
    assert expected.count == len(parts)


@given(st.lists(values, max_size=40))
def test_the_packed_form_is_canonical_and_comes_back_equal(parts: list[float]) -> None:
    fields = recorded(*parts).to_fields()
    counts = np.frombuffer(fields["counts"], dtype="<i8")

    assert ExponentialHistogram.from_fields(**fields).to_fields() == fields
    assert len(counts) <= MAX_BUCKETS
    if len(counts):
        assert counts[0] > 0
        assert counts[-1] > 0
    else:
        assert (fields["scale"], fields["offset"]) == (MAX_SCALE, 0)


def test_empty_buckets_at_the_ends_change_nothing() -> None:
    plain = ExponentialHistogram.from_fields(**packed(3, 10, [4, 0, 2]))
    padded = ExponentialHistogram.from_fields(**packed(3, 7, [0, 0, 0, 4, 0, 2, 0]))

    assert padded.to_fields() == plain.to_fields()
    # Else it would cost resolution: 7 to 170 spans more than MAX_BUCKETS, 10 to 169 does not.
    far = ExponentialHistogram.from_fields(**packed(3, 169, [1, 0]))
    assert merge([padded, far]).scale == 3


def test_a_histogram_without_buckets_is_the_identity_whatever_its_scale() -> None:
    fine = recorded(1.5)
    empty = ExponentialHistogram.from_fields(**packed(-5, 0, [0, 0], zero_count=2))

    assert merge([empty, fine]).scale == fine.scale == RECORD_SCALE
    assert merge([]).to_fields() == ExponentialHistogram().to_fields()


@pytest.mark.parametrize("exponent", [-1074, -1022, -10, -1, 0, 1, 2, 10, 40])
def test_a_power_of_two_is_the_upper_edge_of_its_bucket(exponent: int) -> None:
    """Bucket i is (base ** i, base ** (i + 1)], so that 2 ** e at scale s lies in bucket e * 2 ** s - 1."""
    edge = math.ldexp(1.0, exponent)

    assert recorded(edge).offset == (exponent << RECORD_SCALE) - 1
    assert recorded(math.nextafter(edge, math.inf)).offset >= exponent << RECORD_SCALE
    many = ExponentialHistogram()
    many.record_many([edge, math.nextafter(edge, math.inf)])
    assert many == recorded(edge, math.nextafter(edge, math.inf))


@given(st.floats(min_value=1e-300, max_value=MAX_VALUE))
def test_each_value_lies_within_the_exact_edges_of_its_bucket(value: float) -> None:
    """base ** i < v <= base ** (i + 1) in whole numbers: v ** (2 ** scale) against powers of two."""
    scale = 4
    index = recorded(value).offset >> (RECORD_SCALE - scale)
    power = Fraction(value) ** (2**scale)

    assert Fraction(2) ** index < power <= Fraction(2) ** (index + 1)


def test_edges_at_the_finest_recorded_scale_are_exact() -> None:
    """The double below an edge lies under it and the next one above, for edges of every kind of index."""
    num_steps = 2**RECORD_SCALE
    for step in [1, 2, 3, 511, 512, 513, 1022, 1023]:
        edge = math.exp2(step / num_steps)
        for value in [math.nextafter(edge, 0), edge, math.nextafter(edge, 4)]:
            # v <= 2 ** (step / n)  <=>  v ** n <= 2 ** step, exactly.
            at_most = Fraction(value) ** num_steps <= Fraction(2) ** step
            assert recorded(value).offset == (step - 1 if at_most else step)


def test_a_span_of_160_buckets_fits_and_161_halves_the_resolution() -> None:
    fits, does_not = [1] + [0] * 158 + [1], [1] + [0] * 159 + [1]
    histogram = ExponentialHistogram.from_fields(**packed(5, 100, fits))
    assert (histogram.scale, len(histogram.to_fields()["counts"])) == (5, 8 * MAX_BUCKETS)

    one_more = merge([histogram, ExponentialHistogram.from_fields(**packed(5, 100 + len(does_not) - 1, [1]))])
    assert (one_more.scale, one_more.offset) == (4, 50)
    assert len(one_more.to_fields()["counts"]) == 8 * 81


def test_golden_fields() -> None:
    histogram = recorded(0.0, 1.0, 1.5, 2.0, 3.0, 4.0, 1e-3, 250.0)

    assert histogram.to_fields() == PackedHistogram(
        scale=3,
        offset=-80,
        counts=np.array(
            [1] + [0] * 78 + [1] + [0] * 4 + [1] + [0] * 2 + [1] + [0] * 4 + [1] + [0] * 2 + [1] + [0] * 47 + [1],
            dtype="<i8",
        ).tobytes(),
        zero_count=1,
        count=8,
        sum_micro=261_501_000,
    )


@given(st.integers(0, 2**32 - 1), st.integers(1, 3000), st.sampled_from([0.1, 0.6, 3.0]))
@settings(max_examples=60, deadline=None)
def test_quantiles_keep_their_relative_error_bound(seed: int, num_values: int, sigma: float) -> None:
    samples = np.random.default_rng(seed).lognormal(2.0, sigma, num_values)
    samples[: num_values // 10] = 0.0
    histogram = ExponentialHistogram()
    histogram.record_many(samples)
    assert histogram.relative_error == pytest.approx(2.0 ** (0.5 * 2.0**-histogram.scale) - 1.0)

    for q in [0.0, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0]:
        true = float(np.quantile(samples, q, method="inverted_cdf"))
        estimate = histogram.quantile(q)
        assert estimate is not None
        assert abs(estimate - true) <= true * histogram.relative_error * (1 + 1e-9)


def test_latencies_over_four_decades_keep_p99_within_five_percent() -> None:
    assert recorded(0.1, 1000.0).relative_error < 0.05


def test_quantile_takes_the_rank_that_is_meant() -> None:
    """0.07 * 100 is 7.000000000000001 in doubles, and the seventh of 1 to 100 is meant."""
    histogram = recorded(*[float(value) for value in range(1, 101)])
    estimate = histogram.quantile(0.07)
    assert estimate is not None
    assert abs(estimate - 7.0) <= 7.0 * histogram.relative_error


def test_quantile_of_nothing_is_none_and_of_zeros_zero() -> None:
    assert ExponentialHistogram().quantile(0.99) is None
    assert recorded(0.0, -0.0).quantile(0.99) == 0.0
    assert recorded(0.0, 0.0, 8.0).quantile(0.5) == 0.0
    for q in [-0.1, 1.1, math.nan]:
        with pytest.raises(ValueError, match=r"^q:"):
            recorded(1.0).quantile(q)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1e-300, MAX_VALUE * 1.01])
def test_a_value_that_cannot_be_is_refused_and_nothing_is_recorded(bad: float) -> None:
    histogram = recorded(3.0)
    before = histogram.to_fields()

    with pytest.raises(ValueError, match=r"^value:"):
        histogram.record(bad)
    with pytest.raises(ValueError, match=r"^value:.* at 1 "):
        histogram.record_many([1.0, bad])
    assert histogram.to_fields() == before


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("scale", {"scale": MIN_SCALE - 1}),
        ("scale", {"scale": MAX_SCALE + 1}),
        ("offset", {"offset": 2**40}),
        ("offset", {"offset": -(2**40)}),
        ("offset", {"offset": (44 << 3) - 1}),
        ("counts", {"counts": b"1234567"}),
        ("counts", {"counts": bytes(8 * (MAX_BUCKETS + 1))}),
        ("counts", {"counts": np.array([-1, 4], dtype="<i8").tobytes()}),
        ("count", {"count": 4}),
        ("count", {"count": -1}),
        ("count", {"count": MAX_COUNT + 1}),
        ("count", {"counts": np.array([2**62, 2**62, 2**62, 2**62 + 3], dtype="<i8").tobytes()}),
        ("count", {"counts": b""}),
        ("zero_count", {"zero_count": -1}),
        ("zero_count", {"zero_count": 4}),
        ("sum_micro", {"sum_micro": -1}),
        ("sum_micro", {"sum_micro": MAX_SUM_MICRO + 1}),
    ],
)
def test_a_packed_form_that_cannot_be_is_refused_by_field(field: str, changes: dict[str, Any]) -> None:
    fields = packed(3, 5, [1, 2])
    accumulator = recorded(3.0)
    before = accumulator.to_fields()
    accumulator.add_fields(**fields)
    assert accumulator.count == 4

    with pytest.raises(ValueError, match=rf"^{field}:"):
        ExponentialHistogram.from_fields(**(fields | changes))
    accumulator = recorded(3.0)
    with pytest.raises(ValueError, match=rf"^{field}:"):
        accumulator.add_fields(**(fields | changes))
    assert accumulator.to_fields() == before


def test_totals_that_would_overflow_are_refused_whole() -> None:
    full = ExponentialHistogram.from_fields(**(packed(0, 0, [1]) | {"sum_micro": MAX_SUM_MICRO}))
    many = ExponentialHistogram.from_fields(**packed(0, 0, [0, 0], zero_count=MAX_COUNT))
    before = full.to_fields()

    for attempt in [lambda: full.record(1.0), lambda: full.record_many([1.0]), lambda: full.add(full)]:
        with pytest.raises(ValueError, match=r"^sum_micro:"):
            attempt()
    assert full.to_fields() == before
    with pytest.raises(ValueError, match=r"^count:"):
        many.add(recorded(0.0))
    wrapping = ExponentialHistogram()
    with pytest.raises(ValueError, match=r"^sum_micro:"):
        wrapping.record_many(np.full(3, MAX_VALUE))
    assert wrapping == ExponentialHistogram()


def test_adding_a_histogram_to_itself_doubles_it() -> None:
    histogram = recorded(0.0, 1.0, 300.0)
    histogram.add(histogram)
    assert histogram == recorded(0.0, 1.0, 300.0, 0.0, 1.0, 300.0)
