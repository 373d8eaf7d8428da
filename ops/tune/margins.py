"""How far a loop is from instability: gain margin, phase margin, and the largest sensitivity. Pure.

The controller is the velocity-form PID of ``streams.control.pid``, one step a tick, at a position where nothing binds.
With q = 1/z, T = ``derivative_filter_ticks`` and all gains times the weight max(gain_floor, position), it is

    C(q)  =  (P (1 - q) + I + D (1 - q)^2 / (T + 1 - T q)) / (1 - q)

and, as positions lower the error, the open loop is L = -G C with the identified process G. Of L at q = exp(-i w), for w
in (0, pi] per tick:

    gain margin       1 / the largest |L| where L is real and negative
    phase margin      180 degrees + arg L, the least of all w where |L| = 1
    sensitivity       max |1 / (1 + L)|

(Åström and Murray, Feedback Systems, 2008, 9.3). A loop is stable if and only if no root of 1 + L lies within the unit
circle of q; that is asked of the roots themselves.

The integral gain is one below the setpoint and another above it: each is a loop, and both have margins.

Shape legend: W frequencies, P coefficients of a polynomial in q.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ops.tune.identify import Process
from streams.control.gains import Gains

_NUM_FREQUENCIES: Final = 4_000
_LOWEST: Final = 1e-5
_Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The linear controller at one position: moves as shares of the span per unit of error, time in ticks."""

    proportional: float
    integral: float
    derivative: float = 0.0
    filter_ticks: float = 0.0

    def polynomials(self) -> tuple[_Floats, _Floats]:
        """Numerator and denominator of C as coefficients of 1, q, q^2: float64 [P] each."""
        passed = np.array([self.filter_ticks + 1.0, -self.filter_ticks])
        difference = np.array([1.0, -1.0])
        moves = np.array([self.proportional + self.integral, -self.proportional])
        numerator = np.convolve(moves, passed) + self.derivative * np.convolve(difference, difference)
        return numerator, np.convolve(difference, passed)


@dataclass(frozen=True, kw_only=True)
class Margins:
    """``gain`` as a factor, ``phase_deg`` in degrees, ``sensitivity`` without a unit; of a loop that is not stable they
    say by how much, not how far."""

    gain: float
    phase_deg: float
    sensitivity: float
    is_stable: bool


def terms(gains: Gains, *, position: float, rise_share: float | None) -> Terms:
    """Terms above the setpoint, where the position falls; with a ``rise_share`` those below it, where it rises."""
    weight = max(gains.gain_floor, position)
    integral = gains.integral if rise_share is None else gains.rise_integral * rise_share
    return Terms(
        proportional=weight * gains.proportional,
        integral=weight * integral,
        derivative=weight * gains.derivative,
        filter_ticks=gains.derivative_filter_ticks,
    )


def margins(process: Process, controller: Terms) -> Margins:
    """Margins of the loop that the two close; the gain of ``process`` is negative, as extras take room."""
    if process.gain == 0.0:
        return Margins(gain=math.inf, phase_deg=180.0, sensitivity=1.0, is_stable=True)
    numerator, denominator = _open_loop(process, controller)
    loop_W = open_loop_W(process, controller)
    return Margins(
        gain=_gain_margin(loop_W),
        phase_deg=_phase_margin_deg(loop_W),
        sensitivity=float(1.0 / np.abs(1.0 + loop_W).min()),
        is_stable=_is_stable(numerator, denominator),
    )


def open_loop_W(process: Process, controller: Terms) -> NDArray[np.complex128]:
    """L at frequencies from next to nothing up to half a turn a tick: complex128 [W]."""
    numerator, denominator = _open_loop(process, controller)
    # The last one exactly: many a loop has its only real value there.
    q_W = np.append(np.exp(-1j * np.geomspace(_LOWEST, math.pi, _NUM_FREQUENCIES)[:-1]), -1.0)
    loop_W: NDArray[np.complex128] = _values_W(numerator, q_W) / _values_W(denominator, q_W)
    return loop_W


def _values_W(coefficients: _Floats, q_W: NDArray[np.complex128]) -> NDArray[np.complex128]:
    values_W: NDArray[np.complex128] = q_W[:, None] ** np.arange(len(coefficients)) @ coefficients
    return values_W


def _open_loop(process: Process, controller: Terms) -> tuple[_Floats, _Floats]:
    process_over, process_under = process.polynomials()
    controller_over, controller_under = controller.polynomials()
    return -np.convolve(process_over, controller_over), np.convolve(process_under, controller_under)


def _gain_margin(loop_W: NDArray[np.complex128]) -> float:
    """From where the curve crosses the negative real axis, linearly between two frequencies, or ends on it."""
    above, below = loop_W[:-1], loop_W[1:]
    crosses = (np.signbit(above.imag) != np.signbit(below.imag)) & (above.imag != below.imag)
    share = above.imag[crosses] / (above.imag[crosses] - below.imag[crosses])
    reals = above.real[crosses] + share * (below.real[crosses] - above.real[crosses])
    largest = max([0.0, *(-reals).tolist(), -float(loop_W[-1].real)])
    return math.inf if largest <= 0.0 else 1.0 / largest


def _phase_margin_deg(loop_W: NDArray[np.complex128]) -> float:
    """The least of where the curve crosses the unit circle, and of its end, if it is outside there."""
    size_W = np.log(np.abs(loop_W))
    place = np.flatnonzero(np.signbit(size_W[:-1]) != np.signbit(size_W[1:]))
    share = size_W[place] / (size_W[place] - size_W[place + 1])
    phase_W = np.unwrap(np.angle(loop_W))
    # Unwrapped from low frequencies, where an integrator is a quarter turn behind.
    phase_W += 2.0 * math.pi * round((-math.pi / 2.0 - float(phase_W[0])) / (2.0 * math.pi))
    crossing = phase_W[place] + share * (phase_W[place + 1] - phase_W[place])
    phases = [math.pi + phase for phase in crossing.tolist()]
    if size_W[-1] > 0.0:
        phases.append(math.pi + float(phase_W[-1]))
    # A curve that never leaves the unit circle has nothing to lose.
    return math.degrees(min(phases, default=math.pi))


def _is_stable(numerator: _Floats, denominator: _Floats) -> bool:
    num = max(len(numerator), len(denominator))
    closed = np.pad(numerator, (0, num - len(numerator))) + np.pad(denominator, (0, num - len(denominator)))
    return bool((np.abs(np.roots(closed[::-1])) > 1.0).all())
