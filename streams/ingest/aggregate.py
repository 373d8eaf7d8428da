"""What the processor of a partition asks of a kind of records: all in which the kinds differ."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from msgspec import Struct

from schemas.records import CapacityWindow, CellLimits, LatencyWindow, OutcomesWindow, ResultsWindow
from schemas.settings import TimeSettings
from schemas.topics import Topic
from streams.ingest.seen_before import ByNumber, SeenBefore

Record = Any  # a record of the kind's topic, as its decoder gives it
KindName = Literal["capacity", "latency", "results", "outcomes"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Closed:
    """Content of one closed window; ``note`` says what a reader must know about its figures."""

    capacity: CapacityWindow | None = None
    latency: LatencyWindow | None = None
    results: ResultsWindow | None = None
    outcomes: OutcomesWindow | None = None
    note: str = ""


class RecordDecoder(Protocol):
    """What reads the records of one partition."""

    def decode(self, value: bytes | None) -> Struct:
        """Record in ``value``; raises RecordError."""


class CellAggregate(Protocol):
    """Windows of one cell. Windows are closed in order, each once; records come only for windows not yet closed."""

    def accept(self, record: Record, *, window: int, append_ms: int, late: bool) -> None:
        """Take in one record that is no duplicate, for an open window."""

    def count_duplicate(self, window: int) -> None:
        """Note one duplicate that belongs to an open window."""

    def close(self, window: int, limits: CellLimits) -> Closed | None:
        """Close a window and return its content; None where it has none and none is missed."""


class Kind(Protocol):
    """One kind of raw topic. ``cell`` is a field of its records."""

    @property
    def name(self) -> KindName:
        """The kind of its windows."""

    @property
    def topic(self) -> Topic:
        """Where its records come from."""

    @property
    def is_of_users(self) -> bool:
        """Whether records are keyed by ``user_id``, of any cell, and windows without any are no fact. Else by cell."""

    @property
    def settings(self) -> str:
        """Settings on which the bytes of its windows depend, for the commit; empty where there are none."""

    def decoder(self) -> RecordDecoder:
        """A decoder for one partition; records may share what they have in common, so nobody may change them."""

    def believe(self, record: Record, time: TimeSettings) -> None:
        """Raise RecordError where a record contradicts itself; its fields are within their bounds already."""

    def event_ms(self, record: Record, append_ms: int) -> int:
        """Time by which a record belongs to a window."""

    def times(self, record: Record) -> Sequence[tuple[str, int]]:
        """Fields with a time that cannot lie ahead, and what stands in them."""

    def seen_before(self, time: TimeSettings) -> SeenBefore:
        """What recognises duplicates in one partition."""

    def horizon_ms(self, time: TimeSettings) -> int:
        """How long before the start of a window the oldest record was appended that matters to it."""

    def aggregate(self, time: TimeSettings) -> CellAggregate:
        """An empty aggregate of one cell."""


class NumberedKind:
    """What kinds have in common whose records are keyed by cell and numbered by their source within an epoch.

    A host lives for one ttl, whether its record was a duplicate depends on one ttl before that, and records of a window
    may be appended up to ``skew`` before it starts.
    """

    is_of_users = False
    settings = ""

    def source(self, record: Record) -> str:
        """Who numbers the record, within its cell."""
        raise NotImplementedError

    def event_ms(self, record: Record, append_ms: int) -> int:
        return int(record.event_time_ms)

    def times(self, record: Record) -> Sequence[tuple[str, int]]:
        return ("event_time_ms", record.event_time_ms), ("epoch_ms", record.epoch_ms)

    def seen_before(self, time: TimeSettings) -> SeenBefore:
        return ByNumber(time.host_ttl_ms, self.source)

    def horizon_ms(self, time: TimeSettings) -> int:
        return horizon_ms(time)


def horizon_ms(time: TimeSettings) -> int:
    """How long before the start of a window the oldest record of a numbered source was appended that matters to it."""
    return time.host_ttl_ms + max(time.host_ttl_ms, time.skew_ms)
