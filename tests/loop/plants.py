"""Small models of a cell's serving side: a target in, what routers would measure in one window out.

Extras load a wide pool of ``capacity_per_s`` candidates a second; how that shows is the plant's business. A target acts
``dead_ticks`` windows after it was made and what it does builds up with a first-order lag of ``lag_ticks``.
"""

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

# Where no request would ever be answered, time-outs bound what is measured.
MAX_LOAD = 0.99


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What routers saw in one window: latencies in milliseconds, and extras by what became of them.

    ``upstream_ms`` is what callers spent before ranking, as far as they said it.
    """

    latencies_ms: list[float]
    offered: int
    admitted: int
    upstream_ms: list[float] = field(default_factory=list)


class Plant(Protocol):
    """Anything that turns extras per request into what is seen."""

    rate_per_s: float

    def respond(self, extras: int, *, window_s: float) -> Seen:
        """What is seen in the window after a target with that many extras."""
        ...


@dataclass(kw_only=True)
class Lagged:
    """Extras as they act: after the dead time, through the lag."""

    dead_ticks: int = 0
    lag_ticks: float = 0.0
    _waiting: deque[float] = field(default_factory=deque)
    _acting: float = 0.0

    def acting(self, extras: float) -> float:
        self._waiting.append(extras)
        due = self._waiting.popleft() if len(self._waiting) > self.dead_ticks else 0.0
        self._acting += (due - self._acting) / (1.0 + self.lag_ticks)
        return self._acting


@dataclass(kw_only=True)
class QueuePlant:
    """A pool that answers late when loaded: p99 = ``idle_p99_ms`` / (1 - load), the tail of an M/M/1 queue.

    ``noise`` is the relative deviation of a window's p99 (log-normal); ``samples`` makes exponential latencies of that
    p99 instead of ``num_requests`` equal ones, so that a window of few requests is as noisy as a real one.
    """

    rate_per_s: float = 10.0
    capacity_per_s: float = 3_200.0
    idle_p99_ms: float = 30.0
    noise: float = 0.0
    sampled: bool = False
    lag: Lagged = field(default_factory=Lagged)
    dice: random.Random = field(default_factory=lambda: random.Random(20))

    def p99_ms(self, extras: float) -> float:
        """p99 in the steady state."""
        return self.idle_p99_ms / (1.0 - min(MAX_LOAD, extras * self.rate_per_s / self.capacity_per_s))

    def extras_at(self, p99_ms: float) -> float:
        """Extras that lead to that p99 in the steady state."""
        return (1.0 - self.idle_p99_ms / p99_ms) * self.capacity_per_s / self.rate_per_s

    def respond(self, extras: int, *, window_s: float) -> Seen:
        p99_ms = self.p99_ms(self.lag.acting(extras)) * math.exp(self.noise * self.dice.gauss(0.0, 1.0))
        num_requests = round(self.rate_per_s * window_s)
        if self.sampled:
            latencies_ms = [self.dice.expovariate(math.log(100.0) / p99_ms) for _ in range(num_requests)]
        else:
            latencies_ms = [p99_ms] * num_requests
        offered = num_requests * extras
        return Seen(latencies_ms=latencies_ms, offered=offered, admitted=offered)


@dataclass(kw_only=True)
class LinearPlant(QueuePlant):
    """A pool without a queue, whose p99 grows by ``slope_ms`` with the load: a gentle plant beside the steep one."""

    slope_ms: float = 135.0

    def p99_ms(self, extras: float) -> float:
        return self.idle_p99_ms + self.slope_ms * extras * self.rate_per_s / self.capacity_per_s

    def extras_at(self, p99_ms: float) -> float:
        return (p99_ms - self.idle_p99_ms) / self.slope_ms * self.capacity_per_s / self.rate_per_s


@dataclass(kw_only=True)
class SheddingPlant:
    """A pool that sheds what it cannot do, so that latency stays fine; with relative noise on what it can do."""

    rate_per_s: float = 10.0
    capacity_per_s: float = 2_500.0
    p99_ms: float = 40.0
    noise: float = 0.0
    lag: Lagged = field(default_factory=Lagged)
    dice: random.Random = field(default_factory=lambda: random.Random(21))

    def respond(self, extras: int, *, window_s: float) -> Seen:
        num_requests = round(self.rate_per_s * window_s)
        offered = round(num_requests * self.lag.acting(extras))
        able = self.capacity_per_s * window_s * math.exp(self.noise * self.dice.gauss(0.0, 1.0))
        return Seen(latencies_ms=[self.p99_ms] * num_requests, offered=offered, admitted=min(offered, round(able)))


@dataclass(kw_only=True)
class UpstreamPlant:
    """Ranking idles while retrieval is loaded, by the extras as a queue is, and by ``extra_load`` of others.

    ``said_share`` of the requests say what they spent there.
    """

    rate_per_s: float = 10.0
    capacity_per_s: float = 3_200.0
    idle_p99_ms: float = 30.0
    ranking_p99_ms: float = 20.0
    extra_load: float = 0.0
    said_share: float = 1.0
    noise: float = 0.0
    lag: Lagged = field(default_factory=Lagged)
    dice: random.Random = field(default_factory=lambda: random.Random(22))

    def extras_at(self, p99_ms: float) -> float:
        """Extras that lead to that upstream p99 in the steady state."""
        return (1.0 - self.extra_load - self.idle_p99_ms / p99_ms) * self.capacity_per_s / self.rate_per_s

    def respond(self, extras: int, *, window_s: float) -> Seen:
        num_requests = round(self.rate_per_s * window_s)
        load = self.extra_load + self.lag.acting(extras) * self.rate_per_s / self.capacity_per_s
        p99_ms = self.idle_p99_ms / (1.0 - min(MAX_LOAD, load)) * math.exp(self.noise * self.dice.gauss(0.0, 1.0))
        offered = num_requests * extras
        return Seen(
            latencies_ms=[self.ranking_p99_ms] * num_requests,
            offered=offered,
            admitted=offered,
            upstream_ms=[p99_ms] * round(self.said_share * num_requests),
        )


@dataclass(kw_only=True)
class ScriptedPlant:
    """Deaf to the target: the p99 and shed share of each window come from a script; for what one tick does."""

    p99_ms: Callable[[int], float]
    shed_share: Callable[[int], float] = lambda _: 0.0
    rate_per_s: float = 10.0
    _index: int = 0

    def respond(self, extras: int, *, window_s: float) -> Seen:
        num_requests = round(self.rate_per_s * window_s)
        p99_ms, share = self.p99_ms(self._index), self.shed_share(self._index)
        self._index += 1
        offered = num_requests * max(extras, 100)
        return Seen(latencies_ms=[p99_ms] * num_requests, offered=offered, admitted=offered - round(share * offered))
