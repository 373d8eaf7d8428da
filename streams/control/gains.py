"""Gains of the candidate loop: configuration, all without a unit, so that they fit a cell of any size.

Errors are ratios to the limit (``streams.control.error``), moves are shares of the span from base to max, and time is
counted in ticks. ``docs/controller.md`` says from which measurements the defaults come.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Gains:
    """Gains of ``streams.control.pid``.

    ``setpoint_share`` is the share of the latency limit that p99 is steered to. ``proportional`` and ``derivative`` are
    shares of the span per unit of error, and per unit of error a tick; ``integral`` is per unit of error and tick where
    the error is below zero, ``rise_integral`` where it is above, as a share of the cell's ``rise_share``.
    ``derivative_filter_ticks`` is the time constant of the derivative's filter. ``gain_floor`` is the position, as a
    share of the span, below which the gains shrink no further. After sheds beyond the allowance nothing rises for
    ``shed_hold_ticks``. Fewer than ``min_samples`` latencies say nothing of a p99.

    Raises ValueError for anything that could not steer.
    """

    setpoint_share: float = 0.9
    proportional: float = 0.05
    integral: float = 0.18
    rise_integral: float = 0.8
    derivative: float = 0.02
    derivative_filter_ticks: float = 1.0
    gain_floor: float = 0.1
    shed_hold_ticks: int = 3
    min_samples: int = 50

    def __post_init__(self) -> None:
        for name in ("setpoint_share", "gain_floor"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise ValueError(f"{name} {getattr(self, name)} must be in (0, 1]")
        # Above 1 one tick would cross the whole span for an error of one: a switch, not a gain.
        for name in ("integral", "rise_integral"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise ValueError(f"{name} {getattr(self, name)} must be in (0, 1], or the loop would never move")
        for name in ("proportional", "derivative"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} {getattr(self, name)} must be in [0, 1]")
        if not 0.0 <= self.derivative_filter_ticks < math.inf:
            raise ValueError(f"derivative_filter_ticks {self.derivative_filter_ticks} must be finite and not negative")
        if self.shed_hold_ticks < 0:
            raise ValueError(f"shed_hold_ticks {self.shed_hold_ticks} must not be negative")
        if self.min_samples < 1:
            raise ValueError(f"min_samples {self.min_samples} must be positive")


DEFAULT_GAINS = Gains()
