"""What a report reads of a pipeline's logs: records of two topics as they come, none of them kept. Joins no group."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from msgspec import Struct

from ops.read.log import Extent, extent, read_log
from ops.status.believe import Believer
from schemas.dead_letters import RawRecord
from schemas.errors import RecordError
from schemas.framing import Decoder
from schemas.kafka.config import Config
from schemas.kafka.dead_letters import raw_record
from schemas.records import ControlWindow, SegmentUplift
from schemas.settings import TimeSettings
from schemas.topics import CONTROL_WINDOWS, SEGMENT_UPLIFT, Namespace


@dataclass(kw_only=True)
class Losses:
    """What of a range could not be had."""

    num_unreadable: int = 0
    num_deleted: int = 0
    examples: list[str] = field(default_factory=list)


class ReportSource:
    """Reads windows of a range, and measured uplift. Raises BrokerError."""

    def __init__(
        self, config: Config, namespace: Namespace, *, time: TimeSettings, is_stopped: Callable[[], bool]
    ) -> None:
        self._config = config
        self._namespace = namespace
        self._time = time
        self._is_stopped = is_stopped
        self.losses = Losses()

    def windows(self, *, since_ms: int | None, advance: Callable[[int], None]) -> Iterator[ControlWindow]:
        """Windows appended since a range began: who asks picks by their times.

        A window is appended when it closes, or much later where its log is caught up with or replayed: no append time
        says that none of a range is to come.
        """
        name = self._namespace.topic(CONTROL_WINDOWS)
        early_ms = None if since_ms is None else max(0, since_ms - self._time.skew_ms)
        found = extent(self._config, name, since_ms=early_ms, until_ms=None)
        if since_ms is None:
            # Retention removes the oldest first: where a log does not begin at its first record, some are gone.
            self.losses.num_deleted += sum(found.lows.values())
        believer = Believer(num_partitions=len(found.ends), time=self._time)
        for raw in self._raw(name, found, advance=advance):
            record = self._believed(raw, lambda raw: believer.read(CONTROL_WINDOWS, raw))
            if isinstance(record, ControlWindow):
                yield record

    def uplift(self, *, advance: Callable[[int], None]) -> Iterator[SegmentUplift]:
        """Every record of measured uplift that the compacted topic holds, those of a segment in their order."""
        decoder = Decoder(SEGMENT_UPLIFT.record_types)
        name = self._namespace.topic(SEGMENT_UPLIFT)
        for raw in self._raw(name, extent(self._config, name, since_ms=None, until_ms=None), advance=advance):
            record = self._believed(raw, lambda raw: decoder.decode(raw.value))
            if isinstance(record, SegmentUplift):
                yield record

    def _raw(self, name: str, found: Extent, *, advance: Callable[[int], None]) -> Iterator[RawRecord]:
        for batch in read_log(self._config, name, found.since, found.until, is_stopped=self._is_stopped):
            for message in batch:
                raw = raw_record(message)
                # In a compacted topic: the key is gone.
                if raw.value:
                    yield raw
            advance(len(batch))

    def _believed(self, raw: RawRecord, read: Callable[[RawRecord], Struct]) -> Struct | None:
        try:
            return read(raw)
        except RecordError as error:
            self.losses.num_unreadable += 1
            if not self.losses.examples:
                self.losses.examples.append(f"{raw.topic}/{raw.partition}/{raw.offset}: {error}")
            return None
