"""How long records take through a topic, and in which order they come out."""

import math
from dataclasses import dataclass

import numpy as np

from ops.twin.service import ServiceTimes

# A draw for every record would cost more than the rest of the hop: one of these is taken in turn.
_NUM_DRAWS = 1 << 16
_NUM_HOPS = 3
# z of the 99th percentile.
_Z99 = 2.3263478740408408


class Hops:
    """Times of single hops, ns: log-normal, three in a row with about the median and p99 that were measured.

    By Fenton and Wilkinson (1960) the sum of three equal log-normals (mu, sigma) is nearly log-normal with
    sigma_3^2 = ln((e^(sigma^2) - 1) / 3 + 1) and mu_3 = ln(3 e^mu) + (sigma^2 - sigma_3^2) / 2; solved for mu and
    sigma.
    """

    def __init__(self, times: ServiceTimes, rng: np.random.Generator) -> None:
        sum_sigma = math.log(times.hops_p99_ms / times.hops_median_ms) / _Z99
        variance = math.log(_NUM_HOPS * math.expm1(sum_sigma**2) + 1.0)
        mu = math.log(times.hops_median_ms / _NUM_HOPS) - (variance - sum_sigma**2) / 2.0
        draws_ns = rng.lognormal(mu, math.sqrt(variance), _NUM_DRAWS) * 1e6
        self._draws_ns: list[int] = np.maximum(draws_ns, 1.0).astype(np.int64).tolist()
        self._next = 0

    def next_ns(self) -> int:
        """Time of the next hop."""
        self._next = (self._next + 1) % _NUM_DRAWS
        return self._draws_ns[self._next]


@dataclass(slots=True)
class Log:
    """One partition: whatever is sent is appended half a hop later, and read another half after that, in order."""

    hops: Hops
    _appended_ns: int = 0
    _read_ns: int = 0

    def append(self, sent_ns: int) -> tuple[int, int]:
        """When a record sent at ``sent_ns`` is appended, and when it is read."""
        half_ns = self.hops.next_ns() // 2
        appended_ns = sent_ns + half_ns
        if appended_ns < self._appended_ns:
            appended_ns = self._appended_ns
        read_ns = appended_ns + half_ns
        if read_ns < self._read_ns:
            read_ns = self._read_ns
        self._appended_ns, self._read_ns = appended_ns, read_ns
        return appended_ns, read_ns
