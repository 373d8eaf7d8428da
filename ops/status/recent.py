"""Which tails of which topics tell the present of a pipeline, and how they become facts."""

from collections.abc import Mapping, Sequence
from typing import Final

from ops.status.believe import Believer
from ops.status.facts import RECENT_WINDOWS, Facts
from ops.status.positions import Extent, Positions
from ops.status.tails import Place, Span, Tails
from schemas.epochs import epoch_of
from schemas.errors import RecordError, SchemaPendingError
from schemas.kafka.dead_letters import raw_record
from schemas.partition import partition_for
from schemas.segments import MAX_SEGMENTS
from schemas.settings import TimeSettings
from schemas.topics import (
    CAPACITY_POOLS,
    CONTROL_CELLS,
    CONTROL_TARGETS,
    CONTROL_WINDOWS,
    REQUEST_PARTITIONS,
    SEGMENT_UPLIFT,
    SERVING_LATENCY,
    Topic,
)

# A compacted topic still holds every record since its last clean-up: its tail is read, not the topic.
_MAX_DECLARATIONS: Final = 10_000
_MAX_RECORDS: Final = 4_000
# They are larger than others.
_MAX_UPLIFT: Final = 512
# Of one cell and window: capacity, latency, and later results and outcomes of each of their partitions.
_RECORDS_PER_WINDOW: Final = 2 + 2 * REQUEST_PARTITIONS
# Room for what a controller sends again, and for a cell that is some ticks behind the others.
_TARGETS_OF_A_CELL: Final = 8
_POOLS_OF_A_CELL: Final = 4
# Each segment and the whole, in any of the partitions; said once a cohort.
_UPLIFT_OF_A_CELL: Final = MAX_SEGMENTS + 2
_SPARE_RECORDS: Final = 64
# Routers and replicas report once a second; whoever was heard of in this time before the newest record is shown.
_REPORTERS_MS: Final = 30_000
_MAX_INTERVALS: Final = 1_000


class RecentReader:
    """Reads the tails of one look. ``places`` and ``extents`` are those of every topic of the contract, by its name."""

    def __init__(
        self,
        tails: Tails,
        positions: Positions,
        *,
        places: Mapping[str, Sequence[Place]],
        extents: Mapping[Place, Extent],
        time: TimeSettings,
    ) -> None:
        self._tails = tails
        self._positions = positions
        self._places = places
        self._extents = extents
        self._believer = Believer(num_partitions=len(places[CONTROL_WINDOWS.name]), time=time)

    def read(self) -> Facts:
        """What the tails tell; cells first, as their number says how much is to be read. Raises BrokerError."""
        facts = Facts()
        self._take(facts, CONTROL_CELLS, self._last(CONTROL_CELLS, _MAX_DECLARATIONS))
        num_cells = len(facts.cells)
        targets = self._last(CONTROL_TARGETS, min(_MAX_RECORDS, _TARGETS_OF_A_CELL * num_cells + _SPARE_RECORDS))
        self._take(facts, CONTROL_TARGETS, targets)
        if any(cell.target is None for cell in facts.cells.values()):
            # One that has long been silent stands behind all the others' targets.
            older = {place: self._tail(place, _MAX_RECORDS, end=span.start) for place, span in targets.items()}
            self._take(facts, CONTROL_TARGETS, older)
        pools = self._last(CAPACITY_POOLS, min(_MAX_RECORDS, _POOLS_OF_A_CELL * num_cells + _SPARE_RECORDS))
        self._take(facts, CAPACITY_POOLS, pools)
        uplift = self._last(SEGMENT_UPLIFT, min(_MAX_UPLIFT, _UPLIFT_OF_A_CELL * num_cells))
        self._take(facts, SEGMENT_UPLIFT, uplift)
        self._take(facts, CONTROL_WINDOWS, self._windows(facts))
        self._take(facts, SERVING_LATENCY, self._intervals())
        return facts

    def _windows(self, facts: Facts) -> dict[Place, Span]:
        """The last windows of the cells that each partition holds; an empty one may hold strangers' records."""
        places = self._places[CONTROL_WINDOWS.name]
        num_cells = [0] * len(places)
        for name in facts.cells:
            num_cells[partition_for(name.encode(), len(places))] += 1
        of_a_cell = (RECENT_WINDOWS + 1) * _RECORDS_PER_WINDOW
        return {place: self._tail(place, min(_MAX_RECORDS, num_cells[place[1]] * of_a_cell + 1)) for place in places}

    def _intervals(self) -> dict[Place, Span]:
        """The last seconds of serving.latency before its newest record, at most _MAX_INTERVALS of each partition."""
        places = self._places[SERVING_LATENCY.name]
        newest_ms = max((self._extents[place].newest_ms or 0 for place in places), default=0)
        if not newest_ms:
            return {}
        since = self._positions.offsets_at(places, max(0, newest_ms - _REPORTERS_MS))
        spans = {}
        for place, offset in since.items():
            last = self._tail(place, _MAX_INTERVALS)
            spans[place] = Span(start=last.end if offset is None else max(offset, last.start), end=last.end)
        return spans

    def _last(self, topic: Topic, num_records: int) -> dict[Place, Span]:
        return {place: self._tail(place, num_records) for place in self._places[topic.name]}

    def _tail(self, place: Place, num_records: int, *, end: int | None = None) -> Span:
        extent = self._extents[place]
        end = extent.end if end is None else end
        return Span(start=max(extent.low, end - num_records), end=end)

    def _take(self, facts: Facts, topic: Topic, spans: Mapping[Place, Span]) -> None:
        for message in self._tails.read(spans):
            raw = raw_record(message)
            if raw.value is None and topic.compacted:
                # A key that was taken back.
                continue
            try:
                facts.add(self._believer.read(topic, raw), append_ms=raw.timestamp_ms, epoch=epoch_of(raw.headers))
            except (RecordError, SchemaPendingError) as error:
                facts.add_unreadable(raw.topic, f"partition {raw.partition}, offset {raw.offset}: {error}")
