"""What the processor of a partition asks of an aggregator: all in which capacity and latency differ."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from msgspec import Struct

from schemas.records import CapacityWindow, CellLimits, LatencyWindow
from schemas.settings import TimeSettings
from schemas.topics import Topic

Record = Any  # a record of the kind's topic, as its decoder gives it


@dataclass(frozen=True, kw_only=True, slots=True)
class Closed:
    """Content of one closed window; ``note`` says what a reader must know about its figures."""

    capacity: CapacityWindow | None = None
    latency: LatencyWindow | None = None
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

    def close(self, window: int, limits: CellLimits) -> Closed:
        """Close a window and return its content."""


class Kind(Protocol):
    """One kind of raw topic. ``cell``, ``epoch_ms``, ``seq`` and ``event_time_ms`` are fields of its records."""

    @property
    def name(self) -> Literal["capacity", "latency"]:
        """The kind of its windows."""

    @property
    def topic(self) -> Topic:
        """Where its records come from."""

    def decoder(self) -> RecordDecoder:
        """A decoder for one partition; records may share what they have in common, so nobody may change them."""

    def believe(self, record: Record) -> None:
        """Raise RecordError where a record contradicts itself; its fields are within their bounds already."""

    def source(self, record: Record) -> str:
        """Who numbers the record, within its cell."""

    def aggregate(self, time: TimeSettings) -> CellAggregate:
        """An empty aggregate of one cell."""
