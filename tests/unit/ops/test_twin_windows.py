"""Windows that the twin closes: histograms as reporters pack them, accounts that add up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.twin.queues import LatencyScale
from ops.twin.service import ServiceTimes
from ops.twin.windows import EMPTY, account, drawn_histogram
from schemas.histogram import ExponentialHistogram

SCALE = LatencyScale(deadline_ms=500.0, times=ServiceTimes())


def median(fields) -> float:
    found = unpacked(fields).quantile(0.5)
    assert found is not None
    return found


def unpacked(fields) -> ExponentialHistogram:
    return ExponentialHistogram.from_fields(**{name: getattr(fields, name) for name in fields.__struct_fields__})


@pytest.mark.parametrize("seed", [None, 7])
def test_a_drawn_histogram_is_canonical_and_has_the_p99_of_its_distribution(seed):
    shape_B = SCALE.log_logistic(median_ms=25.0, p99_ms=60.0)
    rng = None if seed is None else np.random.default_rng(seed)
    fields, p99_ms = drawn_histogram(shape_B, 20_000, scale=SCALE, rng=rng)
    made = unpacked(fields)
    assert made.to_fields() == {name: getattr(fields, name) for name in fields.__struct_fields__}
    assert made.count == 20_000
    assert made.quantile(0.99) == pytest.approx(p99_ms, rel=1e-9)
    assert p99_ms == pytest.approx(60.0, rel=0.1)
    assert made.sum_micro / made.count / 1e6 == pytest.approx(27.0, rel=0.1)


def test_a_draw_is_as_noisy_as_single_values_are():
    shape_B = SCALE.log_logistic(median_ms=25.0, p99_ms=60.0)
    rng = np.random.default_rng(8)
    below = [median(drawn_histogram(shape_B, 100, scale=SCALE, rng=rng)[0]) for _ in range(400)]
    # A hundred values: the standard error of their median is 1 / (2 f(m) sqrt(n)), f(m) = k / (4 m).
    power = np.log(99.0) / np.log(60.0 / 25.0)
    assert np.std(below) == pytest.approx(25.0 / power / 5.0, rel=0.2)


def test_without_noise_counts_are_those_expected():
    shape_B = SCALE.log_logistic(median_ms=25.0, p99_ms=60.0)
    fields, _ = drawn_histogram(shape_B, 1_000_000, scale=SCALE, rng=None)
    counts = np.frombuffer(fields.counts, "<i8")
    expected_B = np.diff(shape_B, prepend=0.0) * 1_000_000
    first = fields.offset - SCALE.offset
    assert np.abs(counts[:-1] - expected_B[first : first + len(counts) - 1]).max() <= 1.0


def test_nothing_drawn_is_the_empty_histogram():
    assert drawn_histogram(SCALE.log_logistic(median_ms=1.0, p99_ms=2.0), 0, scale=SCALE, rng=None) == (EMPTY, None)


@given(
    sheds=st.dictionaries(st.sampled_from(["pressure", "deadline", "gate_closed"]), st.integers(0, 10**6)),
    admitted=st.integers(0, 10**6),
    offered_value=st.integers(0, 10**12),
    share=st.floats(0.0, 1.0),
)
def test_accounts_add_up_exactly_in_units_and_in_value(sheds, admitted, offered_value, share):
    offered = sum(sheds.values()) + admitted
    if offered == 0:
        return
    made = account(
        "rma",
        offered=offered,
        sheds=sheds,
        offered_value_micro=offered_value,
        admitted_value_micro=int(share * offered_value),
    )
    assert made.admitted + sum(shed.units for shed in made.sheds) == made.offered == offered
    assert made.admitted_value_micro + sum(shed.value_micro for shed in made.sheds) == offered_value
    assert all(shed.units > 0 and shed.value_micro >= 0 for shed in made.sheds)
