"""Windows of a declared cell, as ingest closes them."""

from collections.abc import Sequence

from schemas.histogram import ExponentialHistogram
from schemas.records import (
    Account,
    CapacityWindow,
    CellLimits,
    ControlWindow,
    HistogramFields,
    LabelledUnits,
    LatencyWindow,
    OperatorCommand,
    PoolWindow,
    RouteWindow,
    ShedUnits,
)

WINDOW_MS = 2_000
LIMITS = CellLimits(base_candidates=100, max_candidates=600, latency_limit_ms=150.0, units_per_unit_s=50_000.0)


def histogram(values_ms: Sequence[float]) -> HistogramFields:
    made = ExponentialHistogram()
    made.record_many(list(values_ms))
    return HistogramFields(**made.to_fields())


def capacity_window(
    index: int,
    *,
    cell: str = "us-east",
    units: float = 4.0,
    noticed: float = 0.0,
    unusable: float = 0.0,
    limits: CellLimits = LIMITS,
    window_ms: int = WINDOW_MS,
) -> ControlWindow:
    pools = [
        PoolWindow(
            accelerator="a100",
            num_hosts=2,
            units_micro=round(units * 1e6),
            cpu_cores_micro=8_000_000,
            memory_bytes=1 << 30,
            unusable=[LabelledUnits(label="memory", units_micro=round(unusable * 1e6))] if unusable else [],
            causes=[],
            providers=[],
            noticed_units_micro=round(noticed * 1e6),
        )
    ]
    return ControlWindow(
        cell=cell,
        kind="capacity",
        source_partition=3,
        window_index=index,
        start_ms=index * window_ms,
        end_ms=(index + 1) * window_ms,
        capacity=CapacityWindow(
            limits=limits, pools=pools, num_hosts=2, num_hosts_silent=0, num_events=4, num_duplicates=0, num_late=0
        ),
    )


def latency_window(
    index: int,
    *,
    cell: str = "us-east",
    latency_ms: float = 40.0,
    num_requests: int = 200,
    num_routers: int = 1,
    offered: int = 10_000,
    shed: int = 0,
    busy_us: int = 500_000,
    units_done: int = 25_000,
    window_ms: int = WINDOW_MS,
) -> ControlWindow:
    empty = histogram([])
    wide = RouteWindow(
        part="ranker",
        route="wide",
        latency=empty,
        queue_wait=empty,
        num_reporters=2,
        num_work=num_requests,
        num_answered=num_requests,
        num_late=0,
        num_lost=0,
        num_retried=0,
        busy_us=busy_us,
        units_done=units_done,
        max_pressure_micro=0,
    )
    sheds = [ShedUnits(reason="backlog", units=shed, value_micro=0)] if shed else []
    return ControlWindow(
        cell=cell,
        kind="latency",
        source_partition=3,
        window_index=index,
        start_ms=index * window_ms,
        end_ms=(index + 1) * window_ms,
        latency=LatencyWindow(
            latency=histogram([latency_ms] * num_requests),
            routes=[wide],
            accounts=[Account(lever="rma", offered=offered, admitted=offered - shed, late=0, lost=0, sheds=sheds)],
            num_routers=num_routers,
            num_rankers=2,
            num_requests=num_requests,
            num_results=num_requests,
            num_base_late=0,
            num_errors=0,
            num_intervals=4,
            num_duplicates=0,
            num_late=0,
        ),
    )


def command_window(
    index: int,
    action: str,
    *,
    cell: str = "us-east",
    candidate_target: int | None = None,
    coverage: float | None = None,
    expires_ms: int | None = None,
    window_ms: int = WINDOW_MS,
) -> ControlWindow:
    return ControlWindow(
        cell=cell,
        kind="command",
        source_partition=0,
        window_index=index,
        start_ms=index * window_ms,
        end_ms=(index + 1) * window_ms,
        command=OperatorCommand(
            action=action,  # type: ignore[arg-type]
            operator="ops",
            reason="a drill",
            candidate_target=candidate_target,
            coverage=coverage,
            expires_ms=expires_ms,
        ),
    )
