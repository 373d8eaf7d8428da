"""Which stretch of a file's arrivals is played, how fast, and how often each arrival is sent. Pure.

Shapes: A arrivals of the file, rising; N requests of the run; S seconds of the run that the whole file makes.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ops.simulator.files.wanted import MAX_RATE, MAX_SPEED, MIN_RATE, MIN_SPEED, WantedArrivals

# Sent more often than this, an arrival is no longer one of the file's: rather the file is played faster.
MAX_CHOSEN_RATE: Final = 8.0
# The busiest second of a choice, in terms of the scenario's mean rate: what carries the mean with its extras carries so
# much base work without them.
MAX_CHOSEN_BURST: Final = 2.5
_STEPS_PER_STRETCH: Final = 16
_MAX_SLOTS: Final = 4_000_000
# Copies of an arrival are spread over the time to the next one, at most this much.
_SPREAD_S: Final = 1.0
MAX_REQUESTS: Final = 10_000_000


class NothingThere(ValueError):
    """A stretch without an arrival; the argument says where the next one is."""


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """From ``from_s`` of the file on, ``speed`` seconds of it in one of the run, each arrival sent ``rate`` times.

    ``num_arrivals`` of the file lie in it.
    """

    from_s: float
    speed: float
    rate: float
    num_arrivals: int


def choose_stretch(
    times_s_A: NDArray[np.float64], wanted: WantedArrivals, *, span_s: float, rate_per_s: float
) -> Stretch:
    """The stretch of ``span_s`` seconds of the run that is wanted; what was not given is chosen for ``rate_per_s``.

    Speed: the file's own, or as much faster as it takes for ``rate_per_s`` without sending an arrival more than 8
    times; where a rate is given, the speed that gives ``rate_per_s`` with it. Rate: what is left to ``rate_per_s``, or
    less, so that no second has more than 2.5 times that. Start: where the most requests come of it. Raises NothingThere
    where no arrival lies in the stretch.
    """
    speed = wanted.speed
    if speed is None:
        num_wanted = rate_per_s * span_s / (wanted.rate or MAX_CHOSEN_RATE)
        needed_s = _shortest(times_s_A, max(1, math.ceil(num_wanted)), from_s=wanted.from_s)
        slowest = MIN_SPEED if wanted.rate is not None and needed_s > 0.0 else 1.0
        speed = min(max(needed_s / span_s, slowest), MAX_SPEED)
    from_s = wanted.from_s
    if from_s is None:
        from_s = _best_start(
            times_s_A, speed=speed, span_s=span_s, rate_per_s=rate_per_s, most=wanted.rate or MAX_CHOSEN_RATE
        )
    first, end = np.searchsorted(times_s_A, [from_s, from_s + speed * span_s])
    num_arrivals = int(end - first)
    if num_arrivals == 0:
        following = f"the next comes at {times_s_A[first]:.1f} s" if first < len(times_s_A) else "none comes after it"
        raise NothingThere(f"no arrival in the {speed * span_s:.1f} s from {from_s:g} s on; {following}")
    rate = wanted.rate
    if rate is None:
        at_s = (times_s_A[first:end] - from_s) / speed
        busiest = int(np.bincount(at_s.astype(np.int64)).max())
        rate = min(rate_per_s * span_s / num_arrivals, MAX_CHOSEN_BURST * rate_per_s / busiest, MAX_CHOSEN_RATE)
        rate = max(rate, MIN_RATE)
    assert rate <= MAX_RATE
    return Stretch(from_s=from_s, speed=speed, rate=rate, num_arrivals=num_arrivals)


def play(
    times_s_A: NDArray[np.float64], stretch: Stretch, *, span_s: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Times of the run's requests, rising, within [0, span_s), float64 [N].

    An arrival is sent floor(rate) times, and once more with the probability of the rest. The first copy comes at its
    time, the others evenly drawn from the time to the next arrival, at most a second: silence stays silence. Raises
    ValueError where that is too much or nothing.
    """
    first = int(np.searchsorted(times_s_A, stretch.from_s))
    end = first + stretch.num_arrivals
    at_s = np.minimum((times_s_A[first:end] - stretch.from_s) / stretch.speed, np.nextafter(span_s, 0.0))
    if stretch.rate * len(at_s) > MAX_REQUESTS:
        raise ValueError(f"{stretch.rate * len(at_s):.0f} requests are more than {MAX_REQUESTS}")
    whole = math.floor(stretch.rate)
    num_copies = whole + (rng.random(len(at_s)) < stretch.rate - whole)
    if not num_copies.any():
        raise NothingThere(f"of {len(at_s)} arrivals none is left at rate {stretch.rate:g}")
    room_s = np.minimum(np.diff(at_s, append=span_s), _SPREAD_S)
    starts = np.repeat(at_s, num_copies)
    offsets = rng.random(len(starts)) * np.repeat(room_s, num_copies)
    # The first copy of each arrival that is sent at all is the arrival itself.
    sent = num_copies[num_copies > 0]
    offsets[np.cumsum(sent) - sent] = 0.0
    times_s_N: NDArray[np.float64] = np.minimum(np.sort(starts + offsets), np.nextafter(span_s, 0.0))
    return times_s_N


def _shortest(times_s_A: NDArray[np.float64], num: int, *, from_s: float | None) -> float:
    """Length of the shortest stretch with ``num`` arrivals, or of that from ``from_s`` on; all there is, if fewer."""
    first = 0 if from_s is None else int(np.searchsorted(times_s_A, from_s))
    start_s = 0.0 if from_s is None else from_s
    if first + num > len(times_s_A):
        return max(0.0, float(times_s_A[-1]) - start_s)
    if from_s is not None:
        return float(times_s_A[first + num - 1]) - from_s
    return float((times_s_A[num - 1 :] - times_s_A[: len(times_s_A) - num + 1]).min())


def _best_start(
    times_s_A: NDArray[np.float64], *, speed: float, span_s: float, rate_per_s: float, most: float
) -> float:
    """Start of the stretch that gives the most requests when each arrival is sent at most ``most`` times.

    Those are the arrivals sent so often, no more than ``rate_per_s`` asks for, and no more than the limit on the
    busiest second leaves. Of equals the one with the most arrivals, of those the first.
    """
    slot_s = max(speed, float(times_s_A[-1]) / _MAX_SLOTS)
    num_slots = int(times_s_A[-1] / slot_s) + 1
    per_stretch = int(speed * span_s / slot_s)
    if not 1 <= per_stretch < num_slots:
        return _densest(times_s_A, speed * span_s)
    counts_S = np.bincount((times_s_A / slot_s).astype(np.int64), minlength=num_slots)
    step = max(1, per_stretch // _STEPS_PER_STRETCH)
    windows = np.lib.stride_tricks.sliding_window_view(counts_S, per_stretch)[::step]
    nums, busiest = windows.sum(axis=1), np.maximum(windows.max(axis=1), 1)
    requests = np.minimum(most * nums, rate_per_s * span_s)
    requests = np.minimum(requests, MAX_CHOSEN_BURST * rate_per_s * nums / busiest)
    # Silence at the start would leave nothing of the warm-up. The first window begins with the first arrival.
    requests = np.where(windows[:, :step].any(axis=1), requests, 0.0)
    # Of equals the one that needs the fewest copies.
    most_arrivals = np.where(requests >= requests.max(), nums, 0)
    return slot_s * step * int(most_arrivals.argmax())


def _densest(times_s_A: NDArray[np.float64], length_s: float) -> float:
    """Start of the stretch of this length with the most arrivals; the first of equals."""
    counts_A = np.searchsorted(times_s_A, times_s_A + length_s) - np.arange(len(times_s_A))
    return float(times_s_A[int(counts_A.argmax())])
