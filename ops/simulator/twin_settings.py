"""What only a simulated world has: who asks when, what callers spend before they ask, and what changes in between.

The demo passes over these settings but what its callers say they spent upstream: its traffic is real, and its callers
are the world as it is.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Day:
    """Traffic over a day: rate x (1 + ``swing`` cos(2 pi (t - ``peak_s``) / ``period_s``))."""

    period_s: float = 86_400.0
    swing: float = 0.0
    peak_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """What callers spend on retrieval and features: log-normal. Widening to the most candidates multiplies it by
    1 + ``rise_share``, as those are retrieved there too. A median of 0: requests do not say."""

    median_ms: float = 0.0
    p99_ms: float = 0.0
    rise_share: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Surge:
    """For ``duration_s``: the request rate, the time spent upstream and the pools' speed times a factor."""

    at_s: float
    duration_s: float
    rate_factor: float = 1.0
    upstream_factor: float = 1.0
    speed_factor: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Mix:
    """From ``at_s`` on requests are of these segments in these shares, which add up to 1."""

    at_s: float
    shares: tuple[tuple[str, float], ...]


@dataclass(frozen=True, kw_only=True)
class TwinSettings:
    """``copies`` of every cell make a fleet; their days are spread evenly over ``phase_s``.

    ``noise``: whether arrivals and latencies are drawn by chance or come out exactly as expected. ``base_load`` is the
    load of the dedicated replicas. ``curves_from_world``: levers without curves of their own get those of the world's
    truth, wrong by the factor ``curve_error``. ``powerful_noise_share`` says how well the stronger model knows a user:
    the share that is left of the noise in the features, from which the baseline model knows it. ``shape``: relative
    request rates of the steps of ``shape_step_s`` of a recording, float64, little-endian, played over and over from the
    start of traffic; empty for none.
    """

    noise: bool = True
    copies: int = 1
    phase_s: float = 0.0
    base_load: float = 0.5
    curves_from_world: bool = True
    curve_error: float = 1.0
    powerful_noise_share: float = 0.3
    day: Day = Day()
    upstream: Upstream = Upstream()
    surges: tuple[Surge, ...] = ()
    mixes: tuple[Mix, ...] = ()
    shape: bytes = b""
    shape_step_s: float = 1.0


NO_TWIN = TwinSettings()
