"""Intervals around an estimate: for one look, and for as many as one likes.

Of an estimate e with variance v, from D degrees of freedom (buckets less one), at level a:

    one look      e +- t_D sqrt(v)                                        t_D: quantile 1 - a/2 of Student's t
    every look    e +- sqrt( v' (1 + v'/s) (ln(1 + s/v') + 2 ln(1/a)) )    v' = v (t'_D / 3)^2, s = tau^2

The second is the normal mixture of Robbins ("Statistical methods related to the law of the iterated logarithm", Annals
of Mathematical Statistics 41, 1970, p. 1397), as Johari, Koomen, Pekelis and Walsh use it for experiments ("Always
valid inference", Operations Research 70, 2022, p. 1806): it holds at all looks at once, at whatever times they are
taken. It rests on estimates being normal by then, as every asymptotic one does (Waudby-Smith, Arbour, Sinha, Kennedy
and Ramdas, Annals of Statistics 52, 2024, p. 2613). Where users come again the estimate moves less from look to look
than the mixture allows for, so that the interval is too wide rather than too narrow (Slepian's inequality: of normal
processes the one whose looks are more alike crosses less). v' makes up for a variance that is itself estimated from few
buckets: t'_D is as rare under Student's t as 3 under the normal distribution, and three standard errors are about where
the mixture draws its line. The quantile of one look would make up for too little, since the tails differ most far out.

``tau`` is the size of effect for which the interval is tight: a share of the control's mean. It is at most twice as
wide as the interval for one look wherever the standard error lies between an eightieth of tau and tau (64 buckets).
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Final

# How far out tails are compared, in standard errors, and the normal distribution's share within.
_FAR: Final = 3.0
_SHARE_WITHIN_FAR: Final = 0.9973002039367398


@dataclass(frozen=True, kw_only=True)
class IntervalSettings:
    """``level`` is the share of intervals that may miss, ``tau_share`` is tau over the mean of the control group.

    Fewer than ``min_buckets`` buckets of users in a group, or ``min_requests`` requests, tell nothing.
    """

    level: float = 0.05
    tau_share: float = 0.1
    min_buckets: int = 8
    min_requests: int = 100

    def __post_init__(self) -> None:
        if self.level != 0.05:
            raise ValueError(f"level must be 0.05, the quantiles are of it, is {self.level}")
        if not self.tau_share > 0.0:
            raise ValueError(f"tau_share must be positive, is {self.tau_share}")
        if self.min_buckets < 2 or self.min_requests < 1:
            raise ValueError("min_buckets must be at least 2, min_requests at least 1")


DEFAULT_INTERVALS: Final = IntervalSettings()


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An estimate, its standard error, the always-valid bounds, and those of a single look."""

    effect: float
    standard_error: float
    lower: float
    upper: float
    fixed_lower: float
    fixed_upper: float
    effective_sample_size: float


def interval(
    effect: float,
    variance: float,
    *,
    scale: float,
    num_buckets: int,
    effective_sample_size: float,
    settings: IntervalSettings = DEFAULT_INTERVALS,
) -> Interval:
    """Both intervals of an estimate; ``scale`` is the mean of the control group, whose share tau is."""
    error = math.sqrt(variance)
    student = student_quantile(num_buckets - 1)
    half = always_valid_half_width(
        variance * (student_quantile(num_buckets - 1, _SHARE_WITHIN_FAR) / _FAR) ** 2,
        tau=settings.tau_share * abs(scale),
        level=settings.level,
    )
    return Interval(
        effect=effect,
        standard_error=error,
        lower=effect - half,
        upper=effect + half,
        fixed_lower=effect - student * error,
        fixed_upper=effect + student * error,
        effective_sample_size=effective_sample_size,
    )


def always_valid_half_width(variance: float, *, tau: float, level: float) -> float:
    """Half of the width that holds at every look; without bounds where nothing tells what size effects have."""
    if variance <= 0.0:
        return 0.0
    if tau <= 0.0:
        return math.inf
    ratio = tau * tau / variance
    return math.sqrt(variance * (1.0 + 1.0 / ratio) * (math.log1p(ratio) - 2.0 * math.log(level)))


@cache
def student_quantile(degrees: int, share: float = 0.95) -> float:
    """What Student's t with so many degrees of freedom, at least 1, stays within by that share, on both sides of 0.

    Found by halving on the distribution's own integral, whose sums of trigonometric terms are exact (Abramowitz and
    Stegun, "Handbook of Mathematical Functions", 26.7.3 and 26.7.4).
    """
    low, high = 0.0, 1_000.0
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _student_share(middle, degrees) < share else (low, middle)
    return high


def _student_share(t: float, degrees: int) -> float:
    """Probability of a value within [-t, t]."""
    theta = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(theta), math.cos(theta)
    if degrees == 1:
        return 2.0 * theta / math.pi
    term, total = (cosine, cosine) if degrees % 2 else (1.0, 1.0)
    for number in range(3 if degrees % 2 else 2, degrees - 1, 2):
        term *= cosine * cosine * (number - 1) / number
        total += term
    return 2.0 * (theta + sine * total) / math.pi if degrees % 2 else sine * total
