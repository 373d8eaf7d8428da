"""One step of the candidate loop: a PID in velocity form. Pure, and deaf to what is no number.

With error e (``streams.control.error``; positive is room), position u and every move as shares of the span, one tick as
the unit of time and T_f = ``derivative_filter_ticks``:

    s_k  = (T_f x s_{k-1} + (m_k - m_{k-1})) / (T_f + 1)       filtered slope of the measurement m = -e
    P    =  proportional x (e_k - e_{k-1})
    I    =  integral x e_k below zero, rise_integral x (largest rise) x e_k above
    D    = -derivative x (s_k - s_{k-1})
    du   =  max(gain_floor, u_{k-1}) x (P + I + D), within the slew

The digital form with a first-order filtered derivative by backward differences is that of Åström and Murray,
Feedback Systems (2008), 10.5: D(t_k) = T_f/(T_f+h) D(t_{k-1}) - k_d/(T_f+h) (y(t_k) - y(t_{k-1})). Velocity form, in
which the position itself is the integral, and conditional integration: Åström and Hägglund, PID Controllers (1995),
chapter 3.

Held integration. The position is the integral, so whatever would carry it beyond the ceiling (the end of the span, or
what the pool pays for), below base or past the slew is not kept, and cannot be owed later. While extras are shed, and
for a while after, the slew allows no rise at all.

No kick. The derivative is of the measurement: whoever calls drops the memory when the limits, the gains or the cause of
the error change, so that no such change is ever in a difference. At base the memory is dropped too: what P and D could
not take away there, they must not give back.

Gain by position. What extras do to latency depends on how much they add to the load they are, so a loop at a tenth
of the span needs a tenth of the gain (gain scheduling, Åström and Hägglund). Up, it also follows the cell's own pace.

Asymmetric slew. Beyond the limit the whole span may go in one tick, and nothing rises. While there is room, falls are
bound like rises, or noise, which goes both ways, would ratchet the position down.

Floats give the same bits at every replay: sums, products, quotients and comparisons of IEEE doubles, each rounded in
one way only, in the fixed order of one expression in one thread.
"""

import math
from dataclasses import dataclass

from msgspec import Struct

from streams.control.gains import Gains


class Memory(Struct, frozen=True, kw_only=True):
    """What a step leaves for the next: its error, and the filtered slope of the measurement per tick."""

    error: float
    slope: float


@dataclass(frozen=True, kw_only=True)
class Slew:
    """The most that one tick may rise and fall, as shares of the span."""

    rise: float
    fall: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Step:
    """Position after the step, the three terms that led there (before the slew), and what is remembered."""

    position: float
    proportional: float
    integral: float
    derivative: float
    memory: Memory | None


def step(error: float, *, position: float, ceiling: float, memory: Memory | None, gains: Gains, slew: Slew) -> Step:
    """Step from ``position`` towards no error, to a position in [0, ``ceiling``]; 0 <= ceiling <= 1.

    An error that is no finite number moves nothing and is not remembered.
    """
    if not math.isfinite(error):
        return Step(position=min(position, ceiling), proportional=0.0, integral=0.0, derivative=0.0, memory=memory)
    proportional = derivative = slope = 0.0
    if memory is not None:
        risen = error - memory.error
        slope = (gains.derivative_filter_ticks * memory.slope - risen) / (gains.derivative_filter_ticks + 1.0)
        proportional = gains.proportional * risen
        derivative = -gains.derivative * (slope - memory.slope)
    integral = (gains.integral if error < 0.0 else gains.rise_integral * slew.rise) * error
    weight = max(gains.gain_floor, position)
    change = weight * (proportional + integral + derivative)
    rise, fall = (0.0, slew.fall) if error < 0.0 else (slew.rise, slew.rise)
    moved = min(max(position + min(max(change, -fall), rise), 0.0), ceiling)
    return Step(
        position=moved,
        proportional=weight * proportional,
        integral=weight * integral,
        derivative=weight * derivative,
        memory=Memory(error=error, slope=slope) if moved > 0.0 else None,
    )
