"""The control plane of a simulation: the real ingest and the real controller between logs in memory.

Records are framed and read as on Kafka; they are few. What is refused would be a mistake of the simulation itself.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec import Struct

from ops.cells import declare
from ops.simulator.scenario_model import Scenario
from ops.twin.requests.engine import MS, Engine, S
from ops.twin.requests.hops import Hops, Log
from schemas import dead_letters
from schemas.framing import frame
from schemas.partition import partition_for
from schemas.records import CapacityEvent, ClockRecord, ControlWindow, LatencyInterval
from schemas.topics import CONTROL_PARTITIONS, CONTROL_WINDOWS
from streams.control.believe import believed
from streams.control.processor import apply
from streams.control.settings import ControlSettings
from streams.control.state import CellState
from streams.ingest.aggregate import Kind
from streams.ingest.capacity import CapacityKind
from streams.ingest.cells import Cells
from streams.ingest.latency import LatencyKind
from streams.ingest.partition import PartitionProcessor, RawRecord
from streams.ingest.silence import SilenceWatch

# As often as an ingest worker looks whether a partition is silent while nothing comes.
_LOOK_NS = 100 * MS
_CLOCK_WRITER = "twin"


@dataclass(slots=True)
class _Source:
    """One partition of a raw topic and its processor."""

    processor: PartitionProcessor
    silence: SilenceWatch
    log: Log
    num_appended: int = 0


@dataclass(slots=True)
class _Cell:
    state: CellState
    log: Log
    partition: int
    num_windows: int = 0


@dataclass(slots=True)
class ControlEnds:
    """Who is told: of each window closed, and of each record that a controller sends, when it can be read."""

    on_window: Callable[[ControlWindow], None]
    on_record: Callable[[Struct], None]


@dataclass(slots=True, kw_only=True)
class ControlPlane:
    """Takes in what agents, routers and replicas report; ``start`` once."""

    scenario: Scenario
    engine: Engine
    hops: Hops
    ends: ControlEnds
    _sources: dict[tuple[str, int], _Source] = field(default_factory=dict)
    _cells: dict[str, _Cell] = field(default_factory=dict)
    _settings: ControlSettings = field(init=False)

    def __post_init__(self) -> None:
        self._settings = ControlSettings(validity_windows=self.scenario.time.validity_windows)

    def start(self) -> None:
        """Declare the cells from the running window on, and watch for silence."""
        time = self.scenario.time
        declared = Cells(window_ms=time.window_ms)
        from_window = self.engine.now_ns // MS // time.window_ms
        for cell in self.scenario.cells:
            declared.declare(
                declare(None, cell.name, limits=cell.limits, from_window=from_window, window_ms=time.window_ms)
            )
            partition = partition_for(cell.name.encode(), CONTROL_PARTITIONS)
            self._cells[cell.name] = _Cell(CellState(cell=cell.name), Log(self.hops), partition)
            kinds: tuple[Kind, ...] = (CapacityKind(), LatencyKind())
            for kind in kinds:
                if (kind.name, partition) in self._sources:
                    continue
                processor = PartitionProcessor(
                    kind, partition, num_partitions=CONTROL_PARTITIONS, time=time, cells=declared
                )
                silence = SilenceWatch(silence_s=time.clock_silence_ms / 1_000, now_s=self.engine.now_ns / S)
                self._sources[kind.name, partition] = _Source(processor, silence, Log(self.hops))
        self.engine.at(self.engine.now_ns + _LOOK_NS, self._look, None)

    def tell_capacity(self, record: CapacityEvent) -> None:
        """What an agent says now."""
        self._append("capacity", record.cell, record)

    def tell_latency(self, record: LatencyInterval) -> None:
        """What a router or a replica says now."""
        self._append("latency", record.cell, record)

    def _append(self, kind: str, cell: str, record: Struct) -> None:
        key = cell.encode()
        self._append_raw(self._sources[kind, partition_for(key, CONTROL_PARTITIONS)], key, record)

    def _append_raw(self, source: _Source, key: bytes | None, record: Struct) -> None:
        appended_ns, read_ns = source.log.append(self.engine.now_ns)
        raw = RawRecord(source.num_appended, appended_ns // MS, key, frame(record))
        source.num_appended += 1
        self.engine.at(read_ns, self._ingest, (source, raw))

    def _ingest(self, what: tuple[_Source, RawRecord]) -> None:
        source, raw = what
        clock_ms = source.processor.clock_ms
        out = source.processor.process([raw])
        assert not out.refusals, f"the simulation made a record that is refused: {out.refusals[0].error}"
        has_moved = source.processor.clock_ms != clock_ms
        source.silence.records_read(clock_moved=has_moved, now_s=self.engine.now_ns / S)
        source.silence.end_reached()
        for window in out.windows:
            self._append_window(window)

    def _look(self, _: None) -> None:
        for source in self._sources.values():
            if source.silence.needs_clock(self.engine.now_ns / S):
                self._append_raw(source, None, ClockRecord(writer=_CLOCK_WRITER))
        self.engine.at(self.engine.now_ns + _LOOK_NS, self._look, None)

    def _append_window(self, window: ControlWindow) -> None:
        cell = self._cells[window.cell]
        appended_ns, read_ns = cell.log.append(self.engine.now_ns)
        raw = dead_letters.RawRecord(
            topic=CONTROL_WINDOWS.name,
            partition=cell.partition,
            offset=cell.num_windows,
            timestamp_ms=appended_ns // MS,
            timestamp_kind="append",
            key=window.cell.encode(),
            value=frame(window),
        )
        cell.num_windows += 1
        self.engine.at(read_ns, self._control, (cell, raw))

    def _control(self, what: tuple[_Cell, dead_letters.RawRecord]) -> None:
        cell, raw = what
        window = believed(raw, num_partitions=CONTROL_PARTITIONS, skew_ms=self.scenario.time.skew_ms)
        self.ends.on_window(window)
        cell.state, records = apply(cell.state, window, settings=self._settings)
        for record in records:
            self.engine.at(self.engine.now_ns + self.hops.next_ns(), self.ends.on_record, record)
