"""Smoothed measurements: how fast the wide and the powerful pool are, and how many requests come. Pure.

Speed is work units per busy unit-second, never throughput: an idle pool is not a slow one. Evidence fades, and what
is left of it is weighed against the bundle's measured curve as a ratio of sums:

    speed = (sum of units + PRIOR_BUSY_S x curve) / (sum of busy seconds + PRIOR_BUSY_S)

so that a pool never used stands at its curve, a busy one at its measurement, and one that did nothing for a while
drifts back to the curve instead of being held to an old bad figure for ever. It is positive wherever the curve is.

Where a lever's units are of several kinds, its curve is the mean of theirs. When the mix changes, busy seconds are
restated in terms of the new curve: what was measured of the old mix says how far the curves are off, not how fast the
new one is.

What an upgrade costs is weighed the same way, with as many upgrades as the curve would do in PRIOR_BUSY_S, so that
upgrades per busy second come out right whatever unit the replicas count in.
"""

from msgspec import Struct

from schemas.records.fields import Quantity
from streams.control.facts import LatencyFacts

# Five windows ago counts a third.
FADE = 0.8
# A twentieth of a second of scoring outweighs the curve.
PRIOR_BUSY_S = 0.05
RATE_WEIGHT = 0.5
MAX_QUANTITY = 1e12
# A hundred thousand replicas busy for ten seconds, each at a million units a second: what says more says nothing.
MAX_BUSY_S = 1e6
MAX_UNITS = 1e12
MAX_UPGRADES = 1e9
MICROS_PER_S = 1_000_000


class Speed(Struct, frozen=True, kw_only=True):
    """Evidence of a route's speed as faded sums, in terms of ``curve_units_per_unit_s`` (0: of no mix)."""

    units_done: Quantity = 0.0
    busy_s: Quantity = 0.0
    curve_units_per_unit_s: Quantity = 0.0


class Estimates(Struct, frozen=True, kw_only=True):
    """Smoothed measurements; ``num_upgrades`` is the faded count of requests that the powerful route answered."""

    wide: Speed = Speed()
    powerful: Speed = Speed()
    num_upgrades: Quantity = 0.0
    request_rate_per_s: Quantity = 0.0


def updated(estimates: Estimates, latency: LatencyFacts, *, window_s: float) -> Estimates:
    """Estimates after one more latency window of ``window_s`` seconds.

    A window without requests says nothing of how many the next will bring: the rate stays.
    """
    rate_per_s = estimates.request_rate_per_s
    if latency.num_requests > 0:
        seen_per_s = latency.num_requests / window_s
        rate_per_s = seen_per_s if rate_per_s <= 0.0 else rate_per_s + RATE_WEIGHT * (seen_per_s - rate_per_s)
    powerful = latency.powerful
    wide_done, wide_busy_s = _believed(latency.wide_units_done, busy_us=latency.wide_busy_us)
    done, busy_s = _believed(powerful.units_done, busy_us=powerful.busy_us, num_upgrades=powerful.num_answered)
    return Estimates(
        wide=_worked(estimates.wide, wide_done, busy_s=wide_busy_s),
        powerful=_worked(estimates.powerful, done, busy_s=busy_s),
        num_upgrades=_faded(estimates.num_upgrades, powerful.num_answered if done else 0),
        request_rate_per_s=min(MAX_QUANTITY, rate_per_s),
    )


def in_terms_of(speed: Speed, *, curve_units_per_unit_s: float) -> Speed:
    """The same evidence for a mix with another curve; an unknown one (0) leaves it as it is."""
    before = speed.curve_units_per_unit_s
    if curve_units_per_unit_s <= 0.0 or curve_units_per_unit_s == before:
        return speed
    busy_s = speed.busy_s * before / curve_units_per_unit_s if before > 0.0 else speed.busy_s
    return Speed(
        units_done=speed.units_done,
        busy_s=min(MAX_QUANTITY, busy_s),
        curve_units_per_unit_s=min(MAX_QUANTITY, curve_units_per_unit_s),
    )


def units_per_unit_s(speed: Speed, *, curve_units_per_unit_s: float) -> float:
    """Work units that one usable unit does in a busy second, by the formula above."""
    done = speed.units_done + PRIOR_BUSY_S * curve_units_per_unit_s
    return done / (speed.busy_s + PRIOR_BUSY_S)


def units_per_upgrade(estimates: Estimates, *, curve_units_per_unit_s: float, curve_units_per_upgrade: float) -> float:
    """Work units that one request served by the powerful model costs; 0 where nothing says it."""
    prior_units = prior_upgrades = 0.0
    if curve_units_per_upgrade > 0.0:
        prior_units = PRIOR_BUSY_S * curve_units_per_unit_s
        prior_upgrades = prior_units / curve_units_per_upgrade
    num_upgrades = estimates.num_upgrades + prior_upgrades
    if num_upgrades <= 0.0:
        return curve_units_per_upgrade
    return min(MAX_QUANTITY, (estimates.powerful.units_done + prior_units) / num_upgrades)


def planned_rate_per_s(estimates: Estimates, latency: LatencyFacts, *, window_s: float) -> float:
    """Requests per second to plan for: the smoothed rate, or this window's when it is higher (fast down, slow up)."""
    return min(MAX_QUANTITY, max(estimates.request_rate_per_s, latency.num_requests / window_s))


def _believed(units_done: int, *, busy_us: int, num_upgrades: int = 0) -> tuple[int, float]:
    """Units done and seconds busy, or nothing of either where any figure is beyond belief."""
    busy_s = busy_us / MICROS_PER_S
    is_believable = busy_s <= MAX_BUSY_S and units_done <= MAX_UNITS and num_upgrades <= MAX_UPGRADES
    return (units_done, busy_s) if is_believable else (0, 0.0)


def _worked(speed: Speed, units_done: int, *, busy_s: float) -> Speed:
    return Speed(
        units_done=_faded(speed.units_done, units_done),
        busy_s=_faded(speed.busy_s, busy_s),
        curve_units_per_unit_s=speed.curve_units_per_unit_s,
    )


def _faded(total: float, more: float) -> float:
    return min(MAX_QUANTITY, FADE * total + more)
