"""Records of a small pipeline and the status made of them, on a fake clock."""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ops.status.build import DeadLetterFacts, PartFacts, Readings, build_status
from ops.status.facts import Facts
from ops.status.model import Status
from ops.status.parts import Part, PartitionFacts, parts_of
from schemas.records import (
    CandidateTarget,
    CapacityWindow,
    CellDeclaration,
    CellLimits,
    CellRevision,
    ControlWindow,
    LabelledUnits,
    LatencyInterval,
    PoolSnapshot,
    PoolWindow,
    ShedUnits,
)
from schemas.settings import TimeSettings
from schemas.topics import Namespace
from tests.unit.streams import control_makers

WINDOW_MS = control_makers.WINDOW_MS
TIME = TimeSettings(window_ms=WINDOW_MS, lateness_ms=500)
NAMESPACE = Namespace("t.")
# The end of window 99: the pipeline is looked at half a second later.
END_MS = 100 * WINDOW_MS
NOW_MS = END_MS + 500
LIMITS = CellLimits(base_candidates=64, max_candidates=256, latency_limit_ms=150.0)


def declaration(cell: str = "us-east", *, from_window: int = 0, until_window: int | None = None) -> CellDeclaration:
    return CellDeclaration(
        cell=cell,
        window_ms=WINDOW_MS,
        revisions=[CellRevision(from_window=from_window, limits=LIMITS)],
        until_window=until_window,
        providers=["own"],
    )


def target(
    index: int = 99, *, cell: str = "us-east", candidates: int = 112, reason: str = "rising", detail: str = "p99 leaves"
) -> CandidateTarget:
    return CandidateTarget(
        cell=cell,
        window_index=index,
        window_end_ms=(index + 1) * WINDOW_MS,
        valid_until_ms=(index + 4) * WINDOW_MS,
        base_candidates=64,
        max_candidates=256,
        candidate_target=candidates,
        extra_budget_units_s=28_000.0,
        coverage=0.0,
        segment_shares=[],
        reason=reason,
        detail=detail,
        manifest=[],
        latency_limit_ms=150.0,
        latency_p99_ms=96.1,
        request_rate_per_s=55.0,
        controller_version="v",
    )


def pool(accelerator: str = "a100", *, units: float = 3.0, num_reclaims: int = 1) -> PoolWindow:
    return PoolWindow(
        accelerator=accelerator,
        num_hosts=2,
        units_micro=round(units * 1e6),
        cpu_cores_micro=8_000_000,
        memory_bytes=5 << 30,
        unusable=[LabelledUnits(label="missing_cpu", units_micro=1_000_000)],
        causes=[LabelledUnits(label="off_peak", units_micro=round(units * 1e6))],
        providers=[LabelledUnits(label="own", units_micro=round(units * 1e6))],
        num_reclaims=num_reclaims,
    )


def capacity_window(index: int = 99, *, pools: Sequence[PoolWindow] | None = None, **fields: object) -> ControlWindow:
    window = control_makers.capacity_window(index, limits=LIMITS, **fields)  # type: ignore[arg-type]
    assert window.capacity is not None
    held: CapacityWindow = replace(window.capacity, pools=[pool()] if pools is None else list(pools))
    return replace(window, capacity=held)


def latency_window(
    index: int = 99, *, latency_ms: float = 40.0, sheds: Sequence[tuple[str, int]] = (), **fields: object
) -> ControlWindow:
    shed = sum(units for _, units in sheds)
    window = control_makers.latency_window(index, latency_ms=latency_ms, shed=shed, **fields)  # type: ignore[arg-type]
    assert window.latency is not None
    named = [ShedUnits(reason=reason, units=units, value_micro=0) for reason, units in sheds]
    accounts = [replace(account, sheds=named) for account in window.latency.accounts]
    return replace(window, latency=replace(window.latency, accounts=accounts))


def snapshot(index: int = 99, *, accelerator: str = "a100", bottleneck: str = "") -> PoolSnapshot:
    seen = pool(accelerator)
    return PoolSnapshot(
        cell="us-east",
        accelerator=accelerator,
        window_index=index,
        window_end_ms=(index + 1) * WINDOW_MS,
        valid_until_ms=(index + 4) * WINDOW_MS,
        num_hosts=seen.num_hosts,
        units_micro=seen.units_micro,
        cpu_cores_micro=seen.cpu_cores_micro,
        memory_bytes=seen.memory_bytes,
        unusable=seen.unusable,
        causes=seen.causes,
        providers=seen.providers,
        noticed_units_micro=0,
        num_offers=0,
        num_reclaims=1,
        expected_survival_s=120.0,
        bottleneck=bottleneck,
    )


def interval(source: str = "router-1", *, cell: str = "us-east", interval_ms: int = 1_000) -> LatencyInterval:
    return LatencyInterval(
        cell=cell,
        source=source,
        part="router" if source.startswith("router") else "ranker",
        epoch_ms=1,
        seq=1,
        event_time_ms=END_MS,
        interval_ms=interval_ms,
        latency=control_makers.histogram([20.0, 30.0]),
        routes=[],
        accounts=[],
    )


WELL: tuple[Struct, ...] = (
    declaration(),
    target(98, candidates=100),
    target(),
    capacity_window(98),
    capacity_window(),
    latency_window(98, sheds=[("gate_closed", 30)]),
    latency_window(sheds=[("pressure", 5), ("gate_closed", 2)]),
    interval(),
    interval("wide-1"),
)


def part(name: str, topic: str = "") -> Part:
    return next(p for p in parts_of(NAMESPACE) if p.name == name and p.topic.name.startswith(topic))


def read_to_end(name: str, topic: str = "", *, num_members: int | None = 1) -> PartFacts:
    """A part that has done everything."""
    metadata = f'{{"v":1,"w":{WINDOW_MS},"n":100,"c":{NOW_MS},"o":9,"b":null}}' if name == "ingest" else None
    done = PartitionFacts(partition=0, low=0, end=10, committed=10, metadata=metadata, newest_ms=NOW_MS)
    return PartFacts(part=part(name, topic), num_members=num_members, partitions=[done])


ALL_WELL = (
    read_to_end("ingest", "fleet"),
    read_to_end("ingest", "serving"),
    read_to_end("control"),
    read_to_end("router"),
    read_to_end("ranker.baseline"),
    read_to_end("ranker.wide"),
)


def facts_of(records: Iterable[Struct], *, append_ms: int = END_MS + 100) -> Facts:
    facts = Facts()
    for record in records:
        facts.add(record, append_ms=append_ms)
    return facts


def status_of(
    records: Iterable[Struct] = WELL,
    *,
    now_ms: int = NOW_MS,
    parts: Sequence[PartFacts] = ALL_WELL,
    dead_letters: Sequence[DeadLetterFacts] = (),
    facts: Facts | None = None,
) -> Status:
    readings = Readings(facts=facts or facts_of(records), parts=parts, dead_letters=dead_letters)
    return build_status(readings, NAMESPACE, time=TIME, now_ms=now_ms)
