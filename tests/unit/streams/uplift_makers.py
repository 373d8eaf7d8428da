"""Windows of results and outcomes of a small world, as ingest closes them, and what their sums must come to."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from schemas.histogram import ExponentialHistogram
from schemas.records import (
    ArmGuard,
    ControlWindow,
    HistogramFields,
    OutcomesWindow,
    ResultsWindow,
    StratumSums,
    VersionTally,
)
from schemas.records.measurement import ARMS, OUTCOME_SUMS, REQUEST_SUMS, ArmName

CELL = "us-east"
WINDOW_MS = 2_000
COHORT_MS = 2_000
ATTRIBUTION_MS = 10_000
MICRO = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Said:
    """Requests of one segment and arm in one bucket, and the clicks and value that came of them."""

    segment: str
    arm: ArmName
    bucket: int
    num_requests: int = 10
    clicks: int = 1
    value: float = 0.0
    upgrade: str = ""
    propensity: float = 1.0


def world(seed: int, *, segments: Sequence[str] = ("shop", "news"), num_buckets: int = 64) -> list[Said]:
    """One cohort's requests: every arm in every bucket of every segment."""
    rng = np.random.default_rng(seed)
    made = []
    for segment in segments:
        for arm in ARMS:
            for bucket in range(num_buckets):
                num = int(rng.integers(20, 40))
                chance = 0.1 + (0.05 if arm in ("sbm", "both") else 0.0)
                made.append(
                    Said(
                        segment=segment,
                        arm=arm,
                        bucket=bucket,
                        num_requests=num,
                        clicks=int(rng.binomial(num, chance)),
                        value=float(rng.integers(0, 5)),
                        upgrade=("yes" if bucket % 2 else "no") if arm in ("sbm", "both") else "",
                        propensity=0.5 if arm in ("sbm", "both") else 1.0,
                    )
                )
    return made


def results_window(
    index: int,
    said: Sequence[Said],
    *,
    cohort: int | None = None,
    partition: int = 0,
    version: str = "p1",
    is_aa: bool = False,
    window_ms: int = WINDOW_MS,
) -> ControlWindow:
    at = index * window_ms // COHORT_MS if cohort is None else cohort
    guards: dict[tuple[str, ArmName], int] = {}
    for each in said:
        guards[each.segment, each.arm] = guards.get((each.segment, each.arm), 0) + each.num_requests
    num_results = sum(each.num_requests for each in said)
    return ControlWindow(
        cell=CELL,
        kind="results",
        source_partition=partition,
        window_index=index,
        start_ms=index * window_ms,
        end_ms=(index + 1) * window_ms,
        results=ResultsWindow(
            strata=strata(said, cohort=at, is_aa=is_aa, is_request=True),
            guards=[guard(segment, arm, num) for (segment, arm), num in sorted(guards.items())],
            versions=[
                VersionTally(route="baseline", model_version="b1", num_results=num_results),
                VersionTally(route="powerful", model_version=version, num_results=num_results),
            ],
            num_results=num_results,
            num_duplicates=0,
            num_late=0,
            cohort_ms=COHORT_MS,
        ),
    )


def outcomes_window(
    index: int,
    said: Sequence[Said],
    *,
    cohort: int,
    partition: int = 0,
    is_aa: bool = False,
    window_ms: int = WINDOW_MS,
) -> ControlWindow:
    return ControlWindow(
        cell=CELL,
        kind="outcomes",
        source_partition=partition,
        window_index=index,
        start_ms=index * window_ms,
        end_ms=(index + 1) * window_ms,
        outcomes=OutcomesWindow(
            strata=strata(said, cohort=cohort, is_aa=is_aa, is_request=False),
            num_outcomes=sum(each.clicks for each in said),
            num_duplicates=0,
            num_late=0,
            num_expired=0,
            cohort_ms=COHORT_MS,
            attribution_ms=ATTRIBUTION_MS,
            value_cap_micro=10 * MICRO,
        ),
    )


def strata(said: Sequence[Said], *, cohort: int, is_aa: bool, is_request: bool) -> list[StratumSums]:
    rows: dict[tuple[str, ArmName, str], dict[int, list[int]]] = {}
    for each in said:
        weight = 1.0 / each.propensity
        if is_request:
            sums = dict.fromkeys(REQUEST_SUMS, 0)
            sums |= {"num_requests": each.num_requests, "arm_weight_micro": 5 * MICRO * each.num_requests}
            if each.upgrade:
                sums["upgrade_weight_micro"] = round(MICRO * weight * each.num_requests)
                served = each.num_requests if each.upgrade == "yes" else 0
                sums |= {"num_upgrades_assigned": served, "num_upgrades_ranked": served * 4 // 5}
        else:
            sums = dict.fromkeys(OUTCOME_SUMS, 0)
            micro = round(MICRO * each.value)
            sums |= {"clicks": each.clicks, "value_micro": micro, "winsorised_micro": micro}
            if each.upgrade:
                sums["upgrade_weighted_clicks"] = round(MICRO * weight * each.clicks)
                sums["upgrade_weighted_value_micro"] = round(weight * micro)
                sums["upgrade_weighted_winsorised_micro"] = round(weight * micro)
        rows.setdefault((each.segment, each.arm, each.upgrade), {})[each.bucket] = list(sums.values())
    return [
        StratumSums(
            segment=segment,
            arm=arm,
            depth="",
            upgrade=upgrade,  # type: ignore[arg-type]
            cohort=cohort,
            is_aa=is_aa,
            buckets=sorted(by_bucket),
            sums=[number for bucket in sorted(by_bucket) for number in by_bucket[bucket]],
        )
        for (segment, arm, upgrade), by_bucket in sorted(rows.items())
    ]


def guard(segment: str, arm: ArmName, num_requests: int) -> ArmGuard:
    latency = ExponentialHistogram()
    latency.record_many([30.0] * num_requests)
    num_items = num_requests if arm == "both" else 0
    return ArmGuard(
        segment=segment,
        arm=arm,
        num_requests=num_requests,
        num_late=0,
        num_degraded=0,
        num_errors=0,
        num_items=num_items,
        num_items_admitted=num_items,
        num_items_shed=0,
        value_admitted_micro=0,
        value_shed_micro=0,
        num_compared=0,
        num_flipped=0,
        latency=HistogramFields(**latency.to_fields()),
    )
