"""How far the extras are from where they should be, as one number without a unit. Pure.

Latency, as a ratio y = p99 / setpoint, with setpoint = setpoint_share x limit:

    e = 1/y - 1        for y <= 1      half the setpoint: +1
    e = 1 - y          for y > 1       twice the setpoint: -1

It counts factors, the same in both directions: e(1/y) = -e(y). Time in an M/M/1 queue is exponential with the mean
S / (1 - load) (Kleinrock, Queueing Systems I, 3.2), so 1/y is linear in the load: one gain fits an idle pool and a busy
one.

Sheds, as a share s of the extras offered, with the small allowance a; (1 - a)/(1 - s) is how many times more is offered
than may be, for what the pool ranks:

    e = ROOM                       for s <= a/2
    e = 0                          for a/2 < s <= a
    e = 1 - (1 - a)/(1 - s)        for s > a

The band of nothing is where a pool that sheds comes to rest: s answers to the target so steeply that a loop which still
rose there would step over the allowance and back for ever.

Upstream, what callers spend on retrieval and features before ranking: as latency, against its own limit. RMA loads it
too, and where it is the bottleneck ranking looks idle. A figure that nobody reports is no error.

The worst of the three counts: routers that shed keep p99 low, and would else hide the overload.
"""

from dataclasses import dataclass
from typing import Literal

from schemas.records import CellLimits
from streams.control.gains import Gains

# Room counts up to a fifth of the setpoint, below which p99 is the work itself and not the queue.
ROOM = 4.0
# So far beyond it nothing is left to cut; keeps every later product finite.
WORST = -20.0

Cause = Literal["latency", "shedding", "upstream"]


@dataclass(frozen=True)
class Error:
    """The worst error, in [WORST, ROOM]; positive is room. ``cause`` says which it is."""

    value: float
    cause: Cause


def worst_error(
    p99_ms: float, *, shed_share: float, upstream_p99_ms: float | None, limits: CellLimits, gains: Gains
) -> Error:
    """Error of a p99 >= 0, a shed share in [0, 1], and an upstream p99 >= 0 where it is known and watched."""
    worst = Error(latency_error(p99_ms, setpoint_ms=gains.setpoint_share * limits.latency_limit_ms), "latency")
    shedding = Error(shed_error(shed_share, allowance=limits.shed_allowance), "shedding")
    if shedding.value < worst.value:
        worst = shedding
    if upstream_p99_ms is not None and limits.upstream_limit_ms > 0.0:
        aim_ms = gains.setpoint_share * limits.upstream_limit_ms
        upstream = Error(latency_error(upstream_p99_ms, setpoint_ms=aim_ms), "upstream")
        if upstream.value < worst.value:
            worst = upstream
    return worst


def latency_error(p99_ms: float, *, setpoint_ms: float) -> float:
    """Error by the formula above; a setpoint of zero is missed by as much as counts."""
    if p99_ms <= setpoint_ms:
        return ROOM if p99_ms * (ROOM + 1.0) <= setpoint_ms else setpoint_ms / p99_ms - 1.0
    return WORST if p99_ms >= (1.0 - WORST) * setpoint_ms else 1.0 - p99_ms / setpoint_ms


def shed_error(share: float, *, allowance: float) -> float:
    """Error by the formula above; with an allowance of zero one candidate shed is one too many."""
    if share > allowance:
        ranked, may_be_ranked = 1.0 - share, 1.0 - allowance
        return WORST if may_be_ranked >= (1.0 - WORST) * ranked else 1.0 - may_be_ranked / ranked
    return 0.0 if share > allowance / 2.0 else ROOM
