"""Queues as fluids: what is known of them exactly, and what must hold of any."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.twin.queues import Flow, LatencyScale, Route, flow
from ops.twin.service import ServiceTimes

# Without anything beside the queue itself.
BARE = ServiceTimes(task_ms=0.0, variation=1.0)
ROOMY_MS = 1e9


def one_server(load: float, *, service_ms: float = 10.0) -> Flow:
    capacity_s = 1_000.0 / service_ms
    return flow(
        load * capacity_s,
        units_per_item=1.0,
        route=Route(capacity_s=capacity_s, num_units=1.0, allowed_ms=ROOMY_MS),
        times=BARE,
    )


@pytest.mark.parametrize("load", [0.1, 0.5, 0.9])
def test_one_server_is_an_mm1_queue(load):
    made = one_server(load)
    assert made.load == pytest.approx(load)
    # P(wait) = rho, and E[wait | waiting] = S / (1 - rho) (Kleinrock, Queueing Systems I, 3.2).
    assert made.wait_probability == pytest.approx(load)
    assert made.wait_ms == pytest.approx(10.0 / (1.0 - load))
    # Little's law with the mean number in an M/M/1 system, rho / (1 - rho).
    assert made.in_flight == pytest.approx(load / (1.0 - load))


def test_many_servers_wait_about_as_erlang_says():
    servers, load = 8, 0.8
    made = flow(
        load * servers * 100.0,
        units_per_item=1.0,
        route=Route(capacity_s=servers * 100.0, num_units=servers, allowed_ms=ROOMY_MS),
        times=BARE,
    )
    offered = load * servers
    terms = [offered**k / math.factorial(k) for k in range(servers)]
    last = offered**servers / math.factorial(servers) / (1.0 - load)
    erlang_c = last / (sum(terms) + last)
    exact_ms = erlang_c * 10.0 / (servers * (1.0 - load))
    assert made.wait_probability * made.wait_ms == pytest.approx(exact_ms, rel=0.15)


@given(
    offered_s=st.floats(0.0, 1e7),
    capacity_s=st.floats(0.0, 1e7),
    units=st.floats(0.0, 500.0),
    per_item=st.floats(1.0, 5_000.0),
    allowed_ms=st.floats(1.0, 60_000.0),
)
def test_what_is_offered_is_sent_or_held_and_nothing_is_negative(offered_s, capacity_s, units, per_item, allowed_ms):
    made = flow(
        offered_s,
        units_per_item=per_item,
        route=Route(capacity_s=capacity_s, num_units=units, allowed_ms=allowed_ms),
        times=ServiceTimes(),
    )
    assert made.sent_s + made.held_s == pytest.approx(offered_s, abs=1e-6)
    assert 0.0 <= made.missed_s <= made.sent_s * (1.0 + 1e-9)
    assert 0.0 <= made.load < 1.0
    assert made.sent_s <= capacity_s * (1.0 + 1e-9)
    assert made.held_s >= 0.0
    assert made.wait_ms >= 0.0


def test_overload_is_held_back_and_the_queue_stays_within_the_time_allowed():
    made = flow(
        10_000.0,
        units_per_item=100.0,
        route=Route(capacity_s=5_000.0, num_units=2.0, allowed_ms=345.0),
        times=ServiceTimes(),
    )
    assert made.held_s > 4_900.0
    assert made.wait_probability * made.wait_ms + made.service_ms <= 0.75 * 345.0


def test_less_than_one_unit_is_a_slower_server():
    half = flow(100.0, units_per_item=100.0, route=Route(capacity_s=5_000.0, num_units=0.5, allowed_ms=1e6), times=BARE)
    whole = flow(
        100.0, units_per_item=100.0, route=Route(capacity_s=10_000.0, num_units=1.0, allowed_ms=1e6), times=BARE
    )
    assert half.service_ms == pytest.approx(2.0 * whole.service_ms)


def test_answers_have_the_median_and_p99_of_the_hops_and_never_come_after_the_limit():
    times = ServiceTimes()
    scale = LatencyScale(deadline_ms=500.0, times=times)
    idle_B = scale.answers(Flow(sent_s=1.0, service_ms=0.0))
    assert scale.quantile(idle_B, 0.5) == pytest.approx(times.hops_median_ms, rel=0.05)
    assert scale.quantile(idle_B, 0.99) == pytest.approx(times.hops_p99_ms, rel=0.05)
    busy_B = scale.answers(Flow(sent_s=1.0, service_ms=20.0, wait_probability=1.0, wait_ms=400.0), allowed_ms=345.0)
    assert scale.quantile(busy_B, 0.999) <= 345.0 * 1.05
    for shape_B in (idle_B, busy_B):
        assert np.all(np.diff(shape_B) >= -1e-12)
        assert shape_B[-1] <= 1.0


def test_more_load_never_makes_answers_sooner():
    scale = LatencyScale(deadline_ms=500.0, times=ServiceTimes())
    p99s = [scale.quantile(scale.answers(one_server(load)), 0.99) for load in (0.1, 0.3, 0.5, 0.7, 0.9)]
    assert p99s == sorted(p99s)
    assert p99s[-1] > 2.0 * p99s[0]
