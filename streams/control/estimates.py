"""Smoothed measurements: how fast the wide pool is, and how many requests come.

Speed is work units per busy unit-second, never throughput: an idle pool is not a slow one. Evidence fades, and what
is left of it is weighed against the bundle's measured curve as a ratio of sums:

    speed = (sum of units + PRIOR_BUSY_S x curve) / (sum of busy seconds + PRIOR_BUSY_S)

so that a pool never used stands at its curve, a busy one at its measurement, and one that did nothing for a while
drifts back to the curve instead of being held to an old bad figure for ever. It is positive wherever the curve is.
"""

from streams.control.state import Estimates, LatencyFacts

# Five windows ago counts a third.
FADE = 0.8
# A twentieth of a second of scoring outweighs the curve.
PRIOR_BUSY_S = 0.05
RATE_WEIGHT = 0.5
MAX_QUANTITY = 1e12
MICROS_PER_S = 1_000_000


def updated(estimates: Estimates, latency: LatencyFacts, *, window_s: float) -> Estimates:
    """Estimates after one more latency window of ``window_s`` seconds.

    A window without requests says nothing of how many the next will bring: the rate stays.
    """
    rate_per_s = estimates.request_rate_per_s
    if latency.num_requests > 0:
        seen_per_s = latency.num_requests / window_s
        rate_per_s = seen_per_s if rate_per_s <= 0.0 else rate_per_s + RATE_WEIGHT * (seen_per_s - rate_per_s)
    return Estimates(
        units_done=min(MAX_QUANTITY, FADE * estimates.units_done + latency.wide_units_done),
        busy_s=min(MAX_QUANTITY, FADE * estimates.busy_s + latency.wide_busy_us / MICROS_PER_S),
        request_rate_per_s=min(MAX_QUANTITY, rate_per_s),
    )


def units_per_unit_s(estimates: Estimates, *, curve_units_per_unit_s: float) -> float:
    """Work units that one usable unit does in a busy second, by the formula above."""
    done = estimates.units_done + PRIOR_BUSY_S * curve_units_per_unit_s
    return done / (estimates.busy_s + PRIOR_BUSY_S)


def planned_rate_per_s(estimates: Estimates, latency: LatencyFacts, *, window_s: float) -> float:
    """Requests per second to plan for: the smoothed rate, or this window's when it is higher (fast down, slow up)."""
    return min(MAX_QUANTITY, max(estimates.request_rate_per_s, latency.num_requests / window_s))
