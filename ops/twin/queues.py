"""Queues as fluids: how much a route takes on, what it drops, and how long its answers take. Pure.

A route of c ready units is a queue with c servers. For load rho, mean service time S and squared variation v of service
times, arrivals Poisson (Sakasegawa 1977, "An approximation formula Lq = alpha rho^beta / (1 - rho)"):

    P(wait)             =  rho ^ (sqrt(2 (c + 1)) - 1)
    E[wait | waiting]   =  S (1 + v) / 2 / (c (1 - rho)),   exponential

which is exact for M/M/1 and M/G/1's mean. On top of it come the hops through Kafka, log-logistic with the measured
median and p99. Replicas and routers bound what a queue can grow to. Routers hold work back where a replica's pressure,
queue wait and work over the time allowed, passes the knee; that is the largest load; replicas drop what cannot be
answered in the time allowed.

Shape legend: B buckets of a latency histogram.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ops.twin.service import ServiceTimes

# Even where no pressure is felt a queue that is never empty cannot be told from one without end.
_MAX_LOAD = 0.98


@dataclass(frozen=True, kw_only=True)
class Route:
    """What a route can do: work units per second of all ready units, how many there are, and the time an item has."""

    capacity_s: float
    num_units: float
    allowed_ms: float


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Work units per second by what becomes of them, and how long an answer takes.

    ``sent_s`` reach a replica; of these ``missed_s`` are dropped there, as they could not be answered in time.
    ``held_s`` are never sent. ``capacity_s`` is what the route could do, the cost of tasks included. An answer takes
    ``service_ms``, and with ``wait_probability`` a wait, exponential with mean ``wait_ms``.
    """

    sent_s: float = 0.0
    held_s: float = 0.0
    missed_s: float = 0.0
    capacity_s: float = 0.0
    load: float = 0.0
    service_ms: float = 0.0
    wait_probability: float = 0.0
    wait_ms: float = 0.0

    @property
    def in_flight(self) -> float:
        """Work units that are with replicas at any one time (Little's law)."""
        return self.sent_s * (self.service_ms + self.wait_probability * self.wait_ms) / 1_000.0


def flow(offered_s: float, *, units_per_item: float, route: Route, times: ServiceTimes) -> Flow:
    """Flow where items of ``units_per_item`` work units are offered, ``offered_s`` work units a second of them."""
    if offered_s <= 0.0:
        return Flow()
    if route.capacity_s <= 0.0 or route.num_units <= 0.0:
        return Flow(held_s=offered_s)
    # Less than one unit is one server that is slower.
    servers = max(1.0, route.num_units)
    service_ms = 1_000.0 * units_per_item * servers / route.capacity_s + times.task_ms
    spread_ms = service_ms * (1.0 + times.variation) / 2.0 / servers
    room_ms = times.pressure_knee * route.allowed_ms - service_ms
    # Past the knee by service alone a replica is always pressed, and is sent next to nothing.
    most = min(_MAX_LOAD, 1.0 - spread_ms / room_ms) if room_ms > spread_ms else times.pressed_load
    capacity_s = 1_000.0 * units_per_item * servers / service_ms
    load = min(offered_s / capacity_s, most)
    sent_s = load * capacity_s
    wait_probability = load ** (math.sqrt(2.0 * (servers + 1.0)) - 1.0)
    wait_ms = spread_ms / (1.0 - load)
    slack_ms = route.allowed_ms - service_ms - times.hops_median_ms
    missed = 1.0 if slack_ms <= 0.0 else wait_probability * math.exp(-slack_ms / wait_ms)
    return Flow(
        sent_s=sent_s,
        held_s=max(0.0, offered_s - sent_s),
        missed_s=missed * sent_s,
        capacity_s=capacity_s,
        load=load,
        service_ms=service_ms,
        wait_probability=wait_probability,
        wait_ms=wait_ms,
    )


class LatencyScale:
    """Bucket edges of a cell's latency histograms, and distributions over them as cumulative shares, float64 [B].

    160 buckets of base 2^(1/16) that end beyond the deadline: what a reporter's own histogram comes to rest at.
    """

    SCALE = 4
    NUM_BUCKETS = 160

    def __init__(self, *, deadline_ms: float, times: ServiceTimes) -> None:
        top = math.ceil(math.log2(1.5 * deadline_ms)) * 2**self.SCALE
        self.offset = top - self.NUM_BUCKETS
        self.edges_B: NDArray[np.float64] = 2.0 ** (np.arange(self.offset + 1, top + 1) / 2**self.SCALE)
        self.middles_B: NDArray[np.float64] = self.edges_B * 2.0 ** (-0.5 / 2**self.SCALE)
        self._times = times
        self._power = math.log(99.0) / math.log(times.hops_p99_ms / times.hops_median_ms)

    def answers(self, work: Flow, *, allowed_ms: float | None = None) -> NDArray[np.float64]:
        """Distribution of the time to a route's answer; nobody waits longer than ``allowed_ms``."""
        past_B = np.maximum(self.edges_B - work.service_ms, 1e-9)
        # Log-logistic: 1 / (1 + (t / median)^-k), with k from the p99.
        arrived_B: NDArray[np.float64] = 1.0 / (1.0 + (past_B / self._times.hops_median_ms) ** -self._power)
        if work.wait_probability > 1e-9:
            waited_B = np.maximum(past_B - self._times.hops_median_ms, 0.0)
            arrived_B = (1.0 - work.wait_probability) * arrived_B + work.wait_probability * (
                1.0 - np.exp(waited_B / -work.wait_ms)
            )
        if allowed_ms is not None:
            arrived_B[self.edges_B >= allowed_ms] = 1.0
        return arrived_B

    def log_logistic(self, *, median_ms: float, p99_ms: float) -> NDArray[np.float64]:
        """Distribution with that median and p99."""
        power = math.log(99.0) / math.log(max(p99_ms / median_ms, 1.000001))
        shares_B: NDArray[np.float64] = 1.0 / (1.0 + (self.edges_B / median_ms) ** -power)
        return shares_B

    def quantile(self, cumulative_B: NDArray[np.float64], q: float) -> float:
        """Middle of the bucket in which a distribution reaches ``q``."""
        bucket = int(np.searchsorted(cumulative_B, q))
        return float(self.middles_B[min(bucket, self.NUM_BUCKETS - 1)])
