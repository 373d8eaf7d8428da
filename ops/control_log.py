"""What the logs of a pipeline say of operators' holds. Reads tails of bounded length, joins no group."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final, Self, TypeVar

from msgspec import Struct

from ops.holds import CellFacts
from ops.status.believe import Believer
from ops.status.positions import Extent, Positions
from ops.status.tails import Place, Span, Tails
from ranking.client.fence import ShutOutError
from ranking.client.target_table import TargetTable
from schemas.dead_letters import RawRecord
from schemas.epochs import NO_EPOCH, epoch_of
from schemas.errors import RecordError, SchemaPendingError
from schemas.framing import Decoder
from schemas.kafka.admin import BrokerError
from schemas.kafka.config import Config
from schemas.kafka.dead_letters import raw_record
from schemas.partition import partition_for
from schemas.records import CandidateTarget, ControllerSnapshot, ControlWindow
from schemas.settings import TimeSettings
from schemas.topics import CONTROL_STATE, CONTROL_TARGETS, CONTROL_WINDOWS, Namespace, Topic
from streams.control.state import StateError, decode_state

R = TypeVar("R", bound=Struct)

_TOPICS: Final = (CONTROL_STATE, CONTROL_WINDOWS, CONTROL_TARGETS)
_RECORDS_OF_A_CELL: Final = 8
_SPARE_RECORDS: Final = 64
# What stands between a controller's last two snapshots, of all cells of a partition: far less than this. Of a cell
# whose controller has been dead for longer only the end of the log is read.
_MAX_WINDOWS: Final = 20_000


class ControlLog:
    """Reads the commands, snapshots and targets of some cells, once."""

    def __init__(self, config: Config, namespace: Namespace, *, time: TimeSettings) -> None:
        self._namespace = namespace
        self._time = time
        self._positions = Positions(config)
        self._tails = Tails(config)
        self.newest_ms = 0
        # Of cells whose state another release has written.
        self.unreadable: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._tails.close()

    def read(self, cells: Iterable[str]) -> dict[str, CellFacts]:
        """What is said of each cell; raises BrokerError naming what is missing.

        1. the topics are there; 2. where each partition begins and ends; 3. the last snapshots; 4. the windows since
        those that they were made from, for the commands among them; 5. the last targets.
        """
        facts = {cell: CellFacts() for cell in cells}
        places = self._places()  # 1
        extents = self._positions.extents(place for of_topic in places.values() for place in of_topic)  # 2
        self.newest_ms = max((extent.newest_ms or 0 for extent in extents.values()), default=0)
        believer = Believer(num_partitions=len(places[CONTROL_WINDOWS.name]), time=self._time)
        snapshots = self._snapshots(facts, _tails(places[CONTROL_STATE.name], extents, facts))  # 3
        for _, window in self._records(  # 4
            self._since(places[CONTROL_WINDOWS.name], extents, facts, snapshots), CONTROL_WINDOWS, believer
        ):
            if isinstance(window, ControlWindow) and window.command is not None and window.cell in facts:
                facts[window.cell].command = window.command
        table = TargetTable()
        for raw, target in self._records(  # 5
            _tails(places[CONTROL_TARGETS.name], extents, facts), CONTROL_TARGETS, believer
        ):
            if isinstance(target, CandidateTarget) and target.cell in facts:
                with suppress(ShutOutError):
                    table.update(target, epoch=epoch_of(raw.headers))
                facts[target.cell].target = table.last(target.cell)
        return facts

    def _places(self) -> dict[str, list[Place]]:
        num_partitions = self._positions.partitions()
        names = {topic.name: self._namespace.topic(topic) for topic in _TOPICS}
        missing = [name for name in names.values() if name not in num_partitions]
        if missing:
            raise BrokerError(f"topic {missing[0]} is missing: run `intertidal topics create`")
        return {topic: [(name, number) for number in range(num_partitions[name])] for topic, name in names.items()}

    def _snapshots(self, facts: Mapping[str, CellFacts], spans: Mapping[Place, Span]) -> dict[str, int]:
        """Take the hold of each cell's last snapshot; returns since when commands may be missing in it.

        The last one is that of the highest epoch: a controller that another has taken over from may still write.
        """
        decoder = Decoder(CONTROL_STATE.record_types)
        epochs: dict[str, int] = {}
        since_ms = {}
        for message in self._tails.read(spans):
            raw = raw_record(message)
            try:
                snapshot, epoch = decoder.decode(raw.value), epoch_of(raw.headers)
            except (RecordError, SchemaPendingError):
                continue
            if not isinstance(snapshot, ControllerSnapshot) or snapshot.cell not in facts or snapshot.segment:
                continue
            if epoch < epochs.get(snapshot.cell, NO_EPOCH):
                continue
            epochs[snapshot.cell] = epoch
            try:
                state = decode_state(snapshot.state)
            except StateError as error:
                self.unreadable[snapshot.cell] = str(error)
                continue
            self.unreadable.pop(snapshot.cell, None)
            facts[snapshot.cell].snapshot_hold = state.hold
            # A controller that was down appends late what it makes of an early window: the words in between it has
            # yet to hear.
            since_ms[snapshot.cell] = min(raw.timestamp_ms, (snapshot.window_index + 1) * state.window_ms)
        return since_ms

    def _since(
        self,
        places: Iterable[Place],
        extents: Mapping[Place, Extent],
        cells: Iterable[str],
        since_ms: Mapping[str, int],
    ) -> dict[Place, Span]:
        """Of each partition that holds a cell, what was appended since the oldest of its cells' times."""
        by_number = {number: (name, number) for name, number in places}
        # Without a snapshot everything that may be read is.
        oldest_ms: dict[Place, int] = {}
        for cell in cells:
            place = by_number[partition_for(cell.encode(), len(by_number))]
            oldest_ms[place] = min(oldest_ms.get(place, self.newest_ms), since_ms.get(cell, 0))
        spans = {}
        for place, time_ms in oldest_ms.items():
            extent = extents[place]
            # A snapshot is appended after the windows that it comes from.
            early_ms = max(0, time_ms - self._time.window_ms)
            start = self._positions.offsets_at([place], early_ms)[place] if early_ms else extent.low
            first = max(extent.low, extent.end - _MAX_WINDOWS, extent.end if start is None else start)
            spans[place] = Span(start=first, end=extent.end)
        return spans

    def _records(
        self, spans: Mapping[Place, Span], topic: Topic, believer: Believer
    ) -> Iterator[tuple[RawRecord, Struct]]:
        for message in self._tails.read(spans):
            raw = raw_record(message)
            if raw.value is None:
                continue
            try:
                yield raw, believer.read(topic, raw)
            except (RecordError, SchemaPendingError):
                # Its own reader refuses it, and names it.
                continue


def _tails(places: Iterable[Place], extents: Mapping[Place, Extent], cells: Iterable[str]) -> dict[Place, Span]:
    """The last records of each partition, enough to meet each of its cells."""
    places = list(places)
    num_cells = Counter(partition_for(cell.encode(), len(places)) for cell in cells)
    spans = {}
    for place in places:
        extent = extents[place]
        num_records = _RECORDS_OF_A_CELL * num_cells[place[1]] + _SPARE_RECORDS
        spans[place] = Span(start=max(extent.low, extent.end - num_records), end=extent.end)
    return spans
