"""Sums of results and outcomes in one window: what measurement rests on, never a single request.

A stratum is what a request was assigned, before anything became of it: segment, arm, and what chance drew of each
lever. Within it sums are kept per bucket of users (``schemas.buckets``), since a user's requests are alike. Sums are
whole numbers, money in micro-units: their order does not matter.
"""

from typing import Final, Literal, get_args

from msgspec import Struct

from schemas.records.fields import Count, Label, Name
from schemas.records.latency import HistogramFields

ArmName = Literal["holdout", "none", "rma", "sbm", "both"]
ARMS: Final[tuple[ArmName, ...]] = get_args(ArmName)
# Empty where nothing was drawn: the arm forbids the lever, or there was but one possibility.
DrawnDepth = Literal["", "none", "half", "full"]
DrawnUpgrade = Literal["", "no", "yes"]

# Weights are 1 / propensity of what was drawn, times 10^6. Units that were ranked are what became of the assignment.
REQUEST_SUMS: Final = (
    "num_requests",
    "arm_weight_micro",
    "depth_weight_micro",
    "upgrade_weight_micro",
    "num_extras_assigned",
    "num_extras_ranked",
    "num_upgrades_assigned",
    "num_upgrades_ranked",
)
# Outcomes within the attribution window after the intake; ``winsorised_micro`` sums values cut at the cap.
MEASURES: Final = ("views", "clicks", "conversions", "value_micro", "winsorised_micro")
# Each measure plain, and times the weight of the drawn depth and of the drawn upgrade; counts then in millionths.
OUTCOME_SUMS: Final = (
    *MEASURES,
    *(f"depth_weighted_{measure}" for measure in MEASURES),
    *(f"upgrade_weighted_{measure}" for measure in MEASURES),
)


class StratumSums(Struct, frozen=True, kw_only=True):
    """Sums of one stratum in one cohort: ``sums`` [K x M] row by row, one row for each bucket of ``buckets`` [K].

    ``cohort`` counts cohorts of intake time. The columns are ``REQUEST_SUMS`` or ``OUTCOME_SUMS``. ``is_aa`` says that
    the arm was drawn and nothing followed from it.
    """

    segment: Name
    arm: ArmName
    depth: DrawnDepth
    upgrade: DrawnUpgrade
    cohort: Count
    is_aa: bool
    buckets: list[Count]
    sums: list[int]


class ArmGuard(Struct, frozen=True, kw_only=True):
    """What requests of one segment and arm met: latency in milliseconds, failures, and the optional work dropped.

    Items are optional items; values are what the router expected of them, in micro-units.
    """

    segment: Name
    arm: ArmName
    num_requests: Count
    num_late: Count
    num_degraded: Count
    num_errors: Count
    num_items: Count
    num_items_admitted: Count
    num_items_shed: Count
    value_admitted_micro: Count
    value_shed_micro: Count
    num_compared: Count
    num_flipped: Count
    latency: HistogramFields


class VersionTally(Struct, frozen=True, kw_only=True):
    """How many results a model version had a part in, by the route that it answered on."""

    route: Name
    model_version: Label
    num_results: Count


class ResultsWindow(Struct, frozen=True, kw_only=True):
    """Results of one cell whose request was taken in within the window, in one partition; each request once."""

    strata: list[StratumSums]
    guards: list[ArmGuard]
    versions: list[VersionTally]
    num_results: Count
    num_duplicates: Count
    num_late: Count
    cohort_ms: Count


class OutcomesWindow(Struct, frozen=True, kw_only=True):
    """Outcomes of one cell that arrived within the window, in one partition; each outcome once.

    ``num_expired`` outcomes happened after the attribution window of their request had closed: counted, not summed.
    """

    strata: list[StratumSums]
    num_outcomes: Count
    num_duplicates: Count
    num_late: Count
    num_expired: Count
    cohort_ms: Count
    attribution_ms: Count
    value_cap_micro: Count
