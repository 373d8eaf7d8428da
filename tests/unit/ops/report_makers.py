"""Hand-made windows and measured uplift of a range, as a report reads them."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ops.report.build import Reading, build_report
from ops.report.gains import segment_gains
from ops.report.model import Report
from ops.report.tally import Tally
from schemas.records import (
    AcceleratorFit,
    Account,
    AgedUnits,
    ArmGuard,
    CellLimits,
    ControlWindow,
    Effect,
    Guardrail,
    LabelledUnits,
    LeverTerms,
    OutcomesWindow,
    PoolWindow,
    ResultsWindow,
    RouteWindow,
    SampleRatio,
    SegmentTraffic,
    SegmentUplift,
    ShedUnits,
)
from tests.unit.streams import control_makers
from tests.unit.streams.control_makers import histogram

WINDOW_MS = 10_000
WINDOW_S = WINDOW_MS / 1e3
NOTHING = histogram([])
LIMITS = CellLimits(
    base_candidates=64,
    max_candidates=256,
    latency_limit_ms=150.0,
    utilisation=0.5,
    max_coverage=0.5,
    levers=[
        LeverTerms(lever="rma", fits=[AcceleratorFit(accelerator="cpu", units_per_unit_s=20_000.0)]),
        LeverTerms(
            lever="sbm", fits=[AcceleratorFit(accelerator="a100", units_per_unit_s=20_000.0, cpu_cores_per_unit=2.0)]
        ),
    ],
)


def pool(
    accelerator: str = "a100",
    *,
    units: float = 4.0,
    unusable: dict[str, float] | None = None,
    causes: dict[str, float] | None = None,
    taken: dict[int, float] | None = None,
    cores: float = 8.0,
    num_reclaims: int = 0,
    num_silent: int = 0,
) -> PoolWindow:
    return PoolWindow(
        accelerator=accelerator,
        num_hosts=2,
        units_micro=round(units * 1e6),
        cpu_cores_micro=round(cores * 1e6),
        memory_bytes=1 << 30,
        unusable=_labelled(unusable or {}),
        causes=_labelled({"off_peak": units} if causes is None else causes),
        providers=[],
        num_reclaims=num_reclaims,
        num_hosts_silent=num_silent,
        ages=[
            AgedUnits(from_age_s=age_s, units_micro=0, taken_micro=round(size * 1e6))
            for age_s, size in (taken or {}).items()
        ],
    )


def _labelled(units: dict[str, float]) -> list[LabelledUnits]:
    return [LabelledUnits(label=label, units_micro=round(size * 1e6)) for label, size in units.items()]


def capacity(index: int, *pools: PoolWindow, cell: str = "us-east", limits: CellLimits = LIMITS) -> ControlWindow:
    window = control_makers.capacity_window(index, cell=cell, limits=limits, window_ms=WINDOW_MS)
    assert window.capacity is not None
    return replace(window, capacity=replace(window.capacity, pools=list(pools or (pool(),))))


def busy(route: str, *, seconds: float, units_done: int = 1_000, part: str = "ranker") -> RouteWindow:
    return RouteWindow(
        part=part,  # type: ignore[arg-type]
        route=route,  # type: ignore[arg-type]
        latency=NOTHING,
        queue_wait=NOTHING,
        num_reporters=1,
        num_work=1,
        num_answered=1,
        num_late=0,
        num_lost=0,
        num_retried=0,
        busy_us=round(seconds * 1e6),
        units_done=units_done,
        max_pressure_micro=0,
    )


def account(
    lever: str = "rma", *, offered: int = 100, sheds: dict[str, int] | None = None, late: int = 0, value: int = 10
) -> Account:
    """Every unit is worth ``value`` micro-units."""
    shed = sum((sheds or {}).values())
    admitted = offered - shed - late
    return Account(
        lever=lever,  # type: ignore[arg-type]
        offered=offered,
        admitted=admitted,
        late=late,
        lost=0,
        sheds=[ShedUnits(reason=name, units=units, value_micro=units * value) for name, units in (sheds or {}).items()],
        offered_value_micro=offered * value,
        admitted_value_micro=admitted * value,
        late_value_micro=late * value,
    )


def latency(
    index: int,
    *,
    cell: str = "us-east",
    routes: Sequence[RouteWindow] = (),
    accounts: Sequence[Account] = (),
    latency_ms: float = 40.0,
    num_requests: int = 200,
    num_base_late: int = 0,
    num_routed: int = 20,
) -> ControlWindow:
    window = control_makers.latency_window(
        index, cell=cell, latency_ms=latency_ms, num_requests=num_requests, window_ms=WINDOW_MS
    )
    assert window.latency is not None
    traffic = [
        SegmentTraffic(segment="retail", num_requests=num_requests, num_allowed=num_requests, num_routed=num_routed)
    ]
    return replace(
        window,
        latency=replace(
            window.latency,
            routes=list(routes),
            accounts=list(accounts),
            segments=traffic,
            num_base_late=num_base_late,
        ),
    )


def guard(arm: str, values_ms: Sequence[float], *, segment: str = "retail", **counts: int) -> ArmGuard:
    return ArmGuard(
        segment=segment,
        arm=arm,  # type: ignore[arg-type]
        latency=histogram(values_ms),
        **{
            **dict.fromkeys((name for name in ArmGuard.__struct_fields__ if name.startswith(("num_", "value_"))), 0),
            "num_requests": len(values_ms),
            **counts,
        },
    )


def results(index: int, *guards: ArmGuard, cell: str = "us-east", partition: int = 0) -> ControlWindow:
    return ControlWindow(
        cell=cell,
        kind="results",
        source_partition=partition,
        window_index=index,
        start_ms=index * WINDOW_MS,
        end_ms=(index + 1) * WINDOW_MS,
        results=ResultsWindow(
            strata=[],
            guards=list(guards),
            versions=[],
            num_results=sum(each.num_requests for each in guards),
            num_duplicates=0,
            num_late=0,
            cohort_ms=60_000,
        ),
    )


def outcomes(index: int, *, num: int = 30, num_expired: int = 0, cell: str = "us-east") -> ControlWindow:
    return ControlWindow(
        cell=cell,
        kind="outcomes",
        source_partition=0,
        window_index=index,
        start_ms=index * WINDOW_MS,
        end_ms=(index + 1) * WINDOW_MS,
        outcomes=OutcomesWindow(
            strata=[],
            num_outcomes=num,
            num_duplicates=0,
            num_late=0,
            num_expired=num_expired,
            cohort_ms=60_000,
            attribution_ms=3_600_000,
            value_cap_micro=10_000_000,
        ),
    )


def effect(
    contrast: str = "both",
    *,
    measure: str = "value",
    size: float | None = 0.02,
    half_width: float = 0.01,
    mean_control: float | None = 0.1,
    delivered: float | None = None,
) -> Effect:
    def bound(share: float) -> float | None:
        return None if size is None else size + share * half_width

    return Effect(
        contrast=contrast,  # type: ignore[arg-type]
        measure=measure,  # type: ignore[arg-type]
        num_treated=5_000,
        num_control=4_800,
        mean_control=mean_control,
        effect=size,
        lower=bound(-1.0),
        upper=bound(1.0),
        fixed_lower=bound(-0.6),
        fixed_upper=bound(0.6),
        effective_sample_size=4_100.0,
        delivered=delivered,
        delivered_lower=None if delivered is None else delivered - half_width,
        delivered_upper=None if delivered is None else delivered + half_width,
    )


def uplift(
    segment: str = "(all)",
    *,
    cell: str = "us-east",
    effects: Sequence[Effect] | None = None,
    window_index: int = 99,
    is_mismatch: bool = False,
    guardrails: Sequence[Guardrail] = (),
    **fields: Any,
) -> SegmentUplift:
    return SegmentUplift(
        **{
            "cell": cell,
            "segment": segment,
            "window_index": window_index,
            "window_end_ms": (window_index + 1) * WINDOW_MS,
            "baseline_version": "dlrm-1",
            "powerful_version": "wukong-1",
            "since_ms": 0,
            "effects": [effect()] if effects is None else list(effects),
            "recent": [],
            "sample_ratio": SampleRatio(
                arms=["holdout", "none", "rma", "sbm", "both"],
                expected=[0.01, 0.0099, 0.0891, 0.0891, 0.8019],
                observed=[0.0102, 0.0101, 0.0889, 0.0893, 0.8015],
                p_value=0.002 if is_mismatch else 0.61,
                is_mismatch=is_mismatch,
            ),
            "guardrails": list(guardrails),
            "num_requests": 40_000,
            "pending_requests": 900,
            "num_late_outcomes": 3,
            "request_share": 1.0 if segment == "(all)" else 0.25,
            "optional_share": 1.0 if segment == "(all)" else 0.31,
            **fields,
        }
    )


def report_of(
    windows: Sequence[ControlWindow],
    records: Sequence[SegmentUplift] = (),
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
    **reading: Any,
) -> Report:
    tally = Tally(since_ms=since_ms, until_ms=until_ms)
    for window in windows:
        tally.add(window)
    tally.close()
    gains = segment_gains(records, origin="segment.uplift")
    return build_report(tally, Reading(**{"namespace": "", "gains": gains, **reading}))


def full_range(num_windows: int = 100) -> list[ControlWindow]:
    """A range with everything in it: traffic, both levers, a reclaim of each pool every 40 windows."""
    windows: list[ControlWindow] = []
    for index in range(num_windows):
        phase = index % 40
        is_taken, is_away = phase == 20, 20 <= phase < 26
        cpu = pool(
            "cpu",
            units=1.0 if is_away else 4.0,
            causes={"off_peak": 1.0 if is_away else 4.0},
            taken={60: 3.0} if is_taken else None,
            num_reclaims=2 if is_taken else 0,
        )
        gpu = pool(
            units=2.0 if is_away else 6.0,
            unusable={"missing_cpu": 0.5} if 5 <= phase < 15 else {"memory": 0.2},
            causes={"ahead_of_models": 1.0 if is_away else 4.0, "not_ported": 1.0 if is_away else 2.0},
            taken={0: 1.0, 300: 2.8} if is_taken else None,
            num_reclaims=1 if is_taken else 0,
            num_silent=1 if is_taken else 0,
            cores=16.0,
        )
        slow = 1.25 if is_away else 1.0
        shed = 40 if is_away else 2
        windows += [
            capacity(index, cpu, gpu),
            latency(
                index,
                routes=[
                    busy("baseline", seconds=30.0),
                    busy("wide", seconds=4.0 if is_away else 18.0, units_done=300_000),
                    busy("powerful", seconds=6.0 if is_away else 24.0, units_done=150_000),
                ],
                accounts=[
                    account("rma", offered=25_000, sheds={"gate_closed": 100 * shed, "pressure": 150}, late=60),
                    account("sbm", offered=6_000, sheds={"gate_closed": 20 * shed, "too_slow": 30}, late=12),
                ],
                latency_ms=(48.0 + 6 * (index % 7)) * slow,
                num_routed=40 if is_away else 90,
            ),
            results(
                index,
                *(
                    guard(
                        arm,
                        [
                            base * slow * (1.0 + 0.9 * ((17 * number * (index + 3)) % 101) / 101)
                            for number in range(num)
                        ],
                        num_items=3 * num if arm in ("rma", "sbm", "both") else 0,
                        num_items_admitted=2 * num if arm in ("rma", "sbm", "both") else 0,
                        num_items_shed=num // 4 if arm in ("rma", "sbm", "both") else 0,
                        num_compared=num if arm in ("sbm", "both") else 0,
                        num_flipped=num // 3 if arm in ("sbm", "both") else 0,
                    )
                    for arm, num, base in (
                        ("holdout", 8, 20.0),
                        ("none", 8, 20.0),
                        ("rma", 30, 31.0),
                        ("sbm", 30, 38.0),
                        ("both", 120, 44.0),
                    )
                ),
            ),
            outcomes(index, num_expired=1 if index == 7 else 0),
        ]
    return windows


MEASURES = ("value", "winsorised_value", "conversions", "clicks", "views")


def full_uplift() -> list[SegmentUplift]:
    """Every contrast of a cell, and three segments: one that gains, one that loses, one that says nothing yet."""

    def all_measures(sizes: dict[str, float]) -> list[Effect]:
        return [
            effect(contrast, measure=measure, size=size, half_width=0.006, delivered=2.1 * size)
            for contrast, size in sizes.items()
            for measure in MEASURES
        ]

    crossed = Guardrail(
        name="shed_share", lever="rma", figure=0.31, limit=0.25, is_crossed=True, detail="0.31 of the work was shed"
    )
    kept = Guardrail(name="p99_ms", lever="sbm", figure=98.4, limit=150.0, is_crossed=False)
    return [
        uplift(
            effects=all_measures(
                {
                    "both": 0.0174,
                    "rma_alone": 0.0083,
                    "sbm_alone": 0.0069,
                    "interaction": 0.0022,
                    "rma": 0.0098,
                    "sbm": 0.0081,
                    "depth": 0.0101,
                    "depth_half": 0.0066,
                    "upgrade": 0.0079,
                }
            ),
            guardrails=[kept],
        ),
        uplift("retail", effects=all_measures({"both": 0.031, "rma_alone": 0.014, "sbm_alone": 0.0123})),
        uplift("travel", effects=all_measures({"both": -0.009, "rma_alone": -0.0071, "sbm_alone": 0.001})),
        uplift("games", effects=[effect("both", size=None)], guardrails=[crossed, kept], num_requests=700),
    ]
