"""Histograms that wait and are merged together come to the same as those merged one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.histogram import MAX_BUCKETS, MAX_SCALE, MAX_SUM_MICRO, MIN_SCALE, ExponentialHistogram
from schemas.records import HistogramFields
from streams.ingest import histograms
from streams.ingest.histograms import MAX_WAITING, Merged, believe_histogram


def packed(scale: int, offset: int, counts: list[int], zero_count: int, sum_micro: int = 7) -> HistogramFields:
    return HistogramFields(
        scale=scale,
        offset=offset,
        counts=np.array(counts, dtype="<i8").tobytes(),
        zero_count=zero_count,
        count=sum(counts) + zero_count,
        sum_micro=sum_micro,
    )


@st.composite
def packed_histograms(draw: st.DrawFn) -> HistogramFields:
    """As another program may send it: any scale, any place, empty buckets anywhere, its ends included."""
    scale = draw(st.integers(MIN_SCALE, MAX_SCALE))
    lowest = ((-1074 << scale) - 1) if scale >= 0 else (-1075 >> -scale)
    highest = ((44 << scale) - 1) if scale >= 0 else (43 >> -scale)
    num_buckets = draw(st.integers(0, min(MAX_BUCKETS, highest - lowest + 1)))
    offset = draw(st.integers(lowest, highest - num_buckets + 1))
    counts = draw(st.lists(st.sampled_from([0, 0, 1, 5]), min_size=num_buckets, max_size=num_buckets))
    return packed(scale, offset, counts, draw(st.integers(0, 3)))


@given(st.lists(packed_histograms(), max_size=12), st.sampled_from([1, 2, 7, MAX_WAITING]))
@settings(max_examples=150)
def test_merging_many_at_a_time_is_merging_one_by_one(parts: list[HistogramFields], num_waiting: int) -> None:
    one_by_one, merged = ExponentialHistogram(), Merged()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(histograms, "MAX_WAITING", num_waiting)
        for part in parts:
            believe_histogram(part, field="latency")
            one_by_one.add_fields(**{name: getattr(part, name) for name in part.__struct_fields__})
            merged.add(part)
    assert merged.fields() == HistogramFields(**one_by_one.to_fields())
    assert not merged.saturated


def test_what_a_total_cannot_take_is_left_out_whole() -> None:
    merged = Merged()
    merged.add(packed(0, 0, [1, 2], 1, sum_micro=MAX_SUM_MICRO))
    merged.add(packed(0, 5, [4], 1))
    assert merged.saturated
    assert merged.fields() == packed(0, 0, [1, 2], 1, sum_micro=MAX_SUM_MICRO)
