"""Records and raw logs for the tests of ingest."""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from schemas.framing import encode
from schemas.histogram import ExponentialHistogram
from schemas.partition import partition_for
from schemas.records import (
    Account,
    CapacityEvent,
    CapacityWindow,
    CellDeclaration,
    CellLimits,
    CellRevision,
    ControlWindow,
    HistogramFields,
    LatencyInterval,
    LatencyWindow,
    Offer,
    RouteInterval,
    ShedUnits,
)
from schemas.settings import TimeSettings
from streams.ingest.aggregate import Closed
from streams.ingest.cells import Cells
from streams.ingest.partition import RawRecord

NUM_PARTITIONS = 4
LIMITS = CellLimits(base_candidates=100, max_candidates=500, latency_limit_ms=200.0)
# Small enough that a test crosses every border: windows, lateness, time to live, skew.
TIME = TimeSettings(
    window_ms=100, lateness_ms=20, heartbeat_ms=50, host_ttl_ms=200, skew_ms=50, clock_silence_ms=50, interval_ms=50
)


def declaration(cell: str, *, from_window: int = 0, until_window: int | None = None, **limits: Any) -> CellDeclaration:
    return CellDeclaration(
        cell=cell,
        window_ms=TIME.window_ms,
        revisions=[CellRevision(from_window=from_window, limits=limits_with(**limits))],
        until_window=until_window,
    )


def limits_with(**changes: Any) -> CellLimits:
    return CellLimits(**{name: getattr(LIMITS, name) for name in LIMITS.__struct_fields__} | changes)


def cells_of(*declarations: CellDeclaration, window_ms: int = TIME.window_ms) -> Cells:
    cells = Cells(window_ms=window_ms)
    for declared in declarations:
        cells.declare(declared)
    return cells


def cells_in_one_partition(count: int, *, num_partitions: int = NUM_PARTITIONS) -> tuple[int, list[str]]:
    """A partition and names of cells whose keys lead to it."""
    home = partition_for(b"us-east", num_partitions)
    names = ["us-east"]
    number = 0
    while len(names) < count:
        name = f"us-east.{number}"
        if partition_for(name.encode(), num_partitions) == home:
            names.append(name)
        number += 1
    return home, names


def foreign_cell(home: int, *, num_partitions: int = NUM_PARTITIONS) -> str:
    """A cell whose key leads to another partition."""
    return next(
        name
        for name in (f"eu-west.{number}" for number in range(100))
        if partition_for(name.encode(), num_partitions) != home
    )


def offer(accelerator: str = "h200", units: float = 1.0, **changes: Any) -> Offer:
    fields: dict[str, Any] = {"cpu_cores": 8.0, "memory_bytes": 64, "idle_cause": "off_peak", "provider": "own"}
    return Offer(accelerator=accelerator, units=units, **fields | changes)


def event(cell: str = "us-east", *, host: str = "h-1", seq: int = 1, at_ms: int, **changes: Any) -> CapacityEvent:
    fields: dict[str, Any] = {"epoch_ms": 0, "kind": "heartbeat", "offers": [offer()]}
    return CapacityEvent(cell=cell, host=host, seq=seq, event_time_ms=at_ms, **fields | changes)


def histogram(*values: float) -> HistogramFields:
    recorded = ExponentialHistogram()
    for value in values:
        recorded.record(value)
    return HistogramFields(**recorded.to_fields())


def route(name: Any = "wide", values: Iterable[float] = (), **changes: Any) -> RouteInterval:
    fields: dict[str, Any] = {"queue_wait": histogram(), "num_work": 0, "num_answered": 0}
    return RouteInterval(route=name, latency=histogram(*values), **fields | changes)


def account(lever: Any = "rma", *, admitted: int = 0, late: int = 0, lost: int = 0, **sheds: int) -> Account:
    """An account that adds up, in units; a unit is worth 10."""
    shed = [ShedUnits(reason=reason, units=units, value_micro=units * 10) for reason, units in sheds.items()]
    offered = admitted + late + lost + sum(sheds.values())
    return Account(
        lever=lever, offered=offered, admitted=admitted, late=late, lost=lost, sheds=shed,
        offered_value_micro=offered * 10, admitted_value_micro=admitted * 10,
        late_value_micro=late * 10, lost_value_micro=lost * 10,
    )  # fmt: skip


def interval(
    cell: str = "us-east", *, source: str = "r-1", seq: int = 1, at_ms: int, **changes: Any
) -> LatencyInterval:
    fields: dict[str, Any] = {
        "part": "router", "epoch_ms": 0, "interval_ms": 50, "latency": histogram(), "routes": [], "accounts": [],
    }  # fmt: skip
    return LatencyInterval(cell=cell, source=source, seq=seq, event_time_ms=at_ms, **fields | changes)


def capacity_of(window: ControlWindow | Closed) -> CapacityWindow:
    """The capacity that a window must carry."""
    assert window.capacity is not None
    return window.capacity


def latency_of(window: ControlWindow | Closed) -> LatencyWindow:
    """The latency that a window must carry."""
    assert window.latency is not None
    return window.latency


class RawLog:
    """One raw partition in the making."""

    def __init__(self) -> None:
        self.records: list[RawRecord] = []

    def add(self, record: Struct | bytes | None, append_ms: int, *, key: bytes | None = b"") -> "RawLog":
        """Append a record; by default under the key that is its cell."""
        if key == b"":
            cell = getattr(record, "cell", None)
            key = None if cell is None else str(cell).encode()
        value = encode(record) if isinstance(record, Struct) else record
        self.records.append(RawRecord(len(self.records), append_ms, key, value))
        return self
