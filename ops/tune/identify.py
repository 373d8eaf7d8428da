"""Process gain, dead time and lag from the answer to a square wave. Pure.

Step-response method (Åström and Hägglund, PID Controllers, 1995, chapter 2) for a sampled loop: the position goes up
and down between two levels for as long as an answer takes, a few times over. The mean of the answers to all rises and
(reversed) falls is the step response; with both counted alike, the curvature of a queue cancels. It is fitted, by least
squares, with a first-order process with dead time. Time is in ticks. A position said at the end of window k is
measured j windows later as

    s_j  =  gain x (1 - exp(-(j - dead) / lag))     for j > dead, else 0

which is, with d = floor(dead), a = exp(-1 / lag) and b = 1 - exp(-(d + 1 - dead) / lag), the transfer function

    G(q)  =  gain x q^(d+1) x (b + (1 - a - b) q) / (1 - a q),     q = 1/z

of the held and sampled process (Åström and Wittenmark, Computer-Controlled Systems, 1997, chapter 2).

Shape legend: K windows, J ticks after a step, L dead times, T lags, P coefficients of a polynomial in q.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.float64]
# Shorter than a twentieth of a tick nothing can be told apart by looking once a tick.
_MIN_LAG_TICKS: Final = 0.05
_NUM_STEPS: Final = 41
_NUM_ROUNDS: Final = 14


@dataclass(frozen=True, kw_only=True)
class Process:
    """What a position does to the error: ``gain`` per share of the span, after a dead time, through a lag."""

    gain: float
    dead_ticks: float
    lag_ticks: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.gain) and self.dead_ticks >= 0.0 and self.lag_ticks >= 0.0):
            raise ValueError(f"{self} is no process")

    def response_J(self, num_ticks: int) -> _Floats:
        """Answer to a step of one, 1, 2, ... ticks later: float64 [J]."""
        past_J = np.maximum(np.arange(1, num_ticks + 1) - self.dead_ticks, 0.0)
        shape_J: _Floats = -np.expm1(-past_J / self.lag_ticks) if self.lag_ticks > 0.0 else np.sign(past_J)
        return self.gain * shape_J

    def polynomials(self) -> tuple[_Floats, _Floats]:
        """Numerator and denominator of G as coefficients of 1, q, q^2, ...: float64 [P] each."""
        whole = math.floor(self.dead_ticks)
        first = float(Process(gain=1.0, dead_ticks=self.dead_ticks - whole, lag_ticks=self.lag_ticks).response_J(1)[0])
        left = math.exp(-1.0 / self.lag_ticks) if self.lag_ticks > 0.0 else 0.0
        numerator = self.gain * np.array([0.0] * (whole + 1) + [first, 1.0 - left - first])
        return numerator, np.array([1.0, -left])


@dataclass(frozen=True, kw_only=True)
class Wave:
    """A square wave: ``num_periods`` times ``half_ticks`` ticks at ``level + amplitude``, then as many below it."""

    level: float
    amplitude: float
    half_ticks: int = 6
    num_periods: int = 3

    def __post_init__(self) -> None:
        if self.amplitude <= 0.0 or self.half_ticks < 2 or self.num_periods < 1:
            raise ValueError(f"{self} is no wave")

    def positions_K(self) -> _Floats:
        """Positions window by window, half a period of the low level before them: float64 [K]."""
        signs_K = np.repeat([-1.0] + [1.0, -1.0] * self.num_periods, self.half_ticks)
        return self.level + self.amplitude * signs_K


def step_response_J(wave: Wave, errors_K: _Floats) -> _Floats:
    """Answer to a step of one from the errors measured at the end of each window of a wave: float64 [J].

    The position of a window is said at its end, so its first answer is the error of the next. Raises ValueError where
    the errors are not those of the wave's windows.
    """
    half = wave.half_ticks
    if errors_K.shape != wave.positions_K().shape or not np.isfinite(errors_K).all():
        raise ValueError("an error of every window of the wave is needed")
    edges = range(half, len(errors_K), half)
    answers = [
        (1.0 if number % 2 == 0 else -1.0) * (errors_K[edge + 1 : edge + half] - errors_K[edge])
        for number, edge in enumerate(edges)
    ]
    mean_J: _Floats = np.mean(answers, axis=0) / (2.0 * wave.amplitude)
    return mean_J


def fitted(response_J: _Floats) -> Process:
    """The process whose step response lies nearest; the gain follows from dead time and lag, in closed form.

    A grid over both, narrowed around the best of it a few times: no start value that an answer could hang on.
    """
    num = len(response_J)
    dead = (0.0, num - 1.0)
    lag = (math.log(_MIN_LAG_TICKS), math.log(2.0 * num))
    best = Process(gain=0.0, dead_ticks=0.0, lag_ticks=_MIN_LAG_TICKS)
    for _ in range(_NUM_ROUNDS):
        dead_L, lag_T = np.linspace(*dead, _NUM_STEPS), np.exp(np.linspace(*lag, _NUM_STEPS))
        past_LJ = np.maximum(np.arange(1, num + 1) - dead_L[:, None], 0.0)
        shapes_LTJ = -np.expm1(-past_LJ[:, None, :] / lag_T[None, :, None])
        powers_LT = np.maximum((shapes_LTJ**2).sum(axis=2), 1e-300)
        gains_LT = shapes_LTJ @ response_J / powers_LT
        left_LT = ((gains_LT[:, :, None] * shapes_LTJ - response_J) ** 2).sum(axis=2)
        row, column = divmod(int(np.argmin(left_LT)), _NUM_STEPS)
        best = Process(gain=float(gains_LT[row, column]), dead_ticks=float(dead_L[row]), lag_ticks=float(lag_T[column]))
        dead = _around(dead, best.dead_ticks, least=0.0)
        lag = _around(lag, math.log(best.lag_ticks), least=math.log(_MIN_LAG_TICKS))
    return best


def misfit(process: Process, response_J: _Floats) -> float:
    """Largest distance of a step response from the process's, as a share of the process's gain."""
    if process.gain == 0.0:
        return math.inf
    return float(np.abs(process.response_J(len(response_J)) - response_J).max() / abs(process.gain))


def _around(bounds: tuple[float, float], middle: float, *, least: float) -> tuple[float, float]:
    """Half of the range, around its best point: dead time and lag make up for each other, and a valley is followed."""
    reach = (bounds[1] - bounds[0]) / 4.0
    return max(least, middle - reach), middle + reach
