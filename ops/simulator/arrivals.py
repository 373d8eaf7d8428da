"""When requests arrive: an open loop, in which no arrival waits for an answer to an earlier one."""

import math
from collections.abc import Iterable, Iterator

import numpy as np

from ops.simulator.scenario_model import Arrivals

# Draws from the generator are made in blocks: one call for a thousand gaps costs what one for a single gap does.
_BLOCK = 1_000


def arrival_times(arrivals: Arrivals, rng: np.random.Generator, *, duration_s: float) -> Iterator[float]:
    """Rising times in [0, duration_s), s.

    ``constant``: equal gaps. ``poisson``: exponential gaps. ``bursty``: a Poisson process whose rate changes between
    two values (Markov-modulated, Fischer and Meier-Hellstern 1993), drawn by rescaling time: unit-rate gaps are spent
    against the integral of the rate. ``file``: as they stand there; nothing is drawn.
    """
    if arrivals.process == "constant":
        yield from _constant(arrivals.rate_per_s, duration_s)
    elif arrivals.process == "file":
        assert arrivals.times, "a file of arrivals is read before it is played"
        times_s = np.frombuffer(arrivals.times, "<f8")
        yield from times_s[times_s < duration_s].tolist()
    elif arrivals.process == "poisson":
        yield from _modulated(iter([(arrivals.rate_per_s, duration_s)]), _unit_gaps(rng), duration_s)
    else:
        yield from _modulated(_phases(arrivals, rng), _unit_gaps(rng), duration_s)


def ramped(times_s: Iterable[float], *, ramp_s: float) -> Iterator[float]:
    """Arrivals whose rate rises linearly from nothing over the first ``ramp_s`` seconds, and is theirs from then on.

    By rescaling time: an arrival at u comes at t with the integral of min(1, s / ramp) from 0 to t equal to u, that is
    t = sqrt(2 ramp u) up to the ramp's end and t = u + ramp / 2 after it.
    """
    for at_s in times_s:
        yield math.sqrt(2.0 * ramp_s * at_s) if at_s < ramp_s / 2.0 else at_s + ramp_s / 2.0


def burst_rates(arrivals: Arrivals) -> tuple[float, float]:
    """Rates in quiet times and in bursts, 1/s, whose mean over both is ``rate_per_s``.

    (q T_q + b T_b) / (T_q + T_b) = rate, with b = factor q.
    """
    quiet_s, burst_s = arrivals.mean_quiet_s, arrivals.mean_burst_s
    quiet = arrivals.rate_per_s * (quiet_s + burst_s) / (quiet_s + arrivals.burst_factor * burst_s)
    return quiet, arrivals.burst_factor * quiet


def _constant(rate_per_s: float, duration_s: float) -> Iterator[float]:
    index = 0
    while index / rate_per_s < duration_s:
        yield index / rate_per_s
        index += 1


def _phases(arrivals: Arrivals, rng: np.random.Generator) -> Iterator[tuple[float, float]]:
    """Rate and length of each phase in turn, without end; a quiet time comes first."""
    quiet, burst = burst_rates(arrivals)
    while True:
        yield quiet, rng.exponential(arrivals.mean_quiet_s)
        yield burst, rng.exponential(arrivals.mean_burst_s)


def _modulated(phases: Iterator[tuple[float, float]], unit_gaps: Iterator[float], duration_s: float) -> Iterator[float]:
    """A gap of the unit-rate process lasts until the rate has added up to it."""
    phase_start_s = 0.0
    wanted = next(unit_gaps)
    for rate_per_s, length_s in phases:
        passed = 0.0
        while passed + wanted < rate_per_s * length_s:
            passed += wanted
            wanted = next(unit_gaps)
            at_s = phase_start_s + passed / rate_per_s
            if at_s >= duration_s:
                return
            yield at_s
        wanted -= rate_per_s * length_s - passed
        phase_start_s += length_s
        if phase_start_s >= duration_s:
            return


def _unit_gaps(rng: np.random.Generator) -> Iterator[float]:
    own = rng.spawn(1)[0]
    while True:
        yield from own.exponential(1.0, _BLOCK).tolist()
