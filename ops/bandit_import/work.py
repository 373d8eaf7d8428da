"""An import on its broker, from wherever it stands to its end.

1. topics, declarations of cells and the manifest, where it has not begun;
2. open the sink: what a killed process left open is ended, one that only slept is shut out;
3. read the log of the import: it says where to go on;
4. write the rows by time, so many in one transaction with the progress behind them;
5. read results and outcomes back, and write their windows, the uplift and that it is done in one transaction.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from confluent_kafka import Message

from ops.bandit_import.files import LogFile
from ops.bandit_import.measure import Counts, Ingest, kinds, measured
from ops.bandit_import.names import declaration, import_topics
from ops.bandit_import.records import cells_of
from ops.bandit_import.run_log import MANIFEST_KEY, PROGRESS_KEY, Manifest, Progress, read_import_log
from ops.bandit_import.stretches import stretches
from ops.replay.names import run_log
from ops.replay.reading import RangeReader
from ops.replay.said import Said
from ops.replay.sink import Sink
from ops.replay.work import extent
from schemas.kafka.admin import TopicAdmin
from schemas.kafka.config import Config
from schemas.kafka.ranges import read_ranges
from schemas.topics import CONTROL_CELLS, Namespace, Topic
from streams.ingest.partition import RawRecord

_BATCH: Final = 4_096


@dataclass(frozen=True, kw_only=True)
class Import:
    """One import of one log. Raises BrokerError, DeliveryError, ImportLogError and OpenBanditError."""

    config: Config
    space: Namespace
    files: Sequence[LogFile]
    manifest: Manifest

    def log(self) -> tuple[Manifest | None, Progress]:
        """How far it is; no manifest where it has not begun."""
        if run_log(self.space) not in TopicAdmin(self.config).existing():
            return None, Progress()
        return self._log()

    def run(self, advance: Callable[[int], None]) -> Progress:
        """Go on to the end; ``advance`` is told of rows as they become durable."""
        TopicAdmin(self.config).create_planned(import_topics(self.space))  # 1
        sink = Sink(self.config, self.space, name="import", log_topic=run_log(self.space), log_partition=0)  # 2
        try:
            began, progress = self._log()  # 3
            if began is None:
                self._begin(sink)
            advance(progress.num_rows)
            progress = self._write(sink, progress, advance)  # 4
            return progress if progress.measured is not None else self._measure(sink, progress)  # 5
        finally:
            sink.close()

    def _log(self) -> tuple[Manifest | None, Progress]:
        topic = run_log(self.space)
        latest = {}
        for message in read_ranges(self.config, topic, {0: extent(self.config, topic, 0)}):
            key, value = message.key(), message.value()
            if key is not None and value is not None:
                latest[key] = value
        return read_import_log(latest)

    def _begin(self, sink: Sink) -> None:
        cells = [
            Said(CONTROL_CELLS.name, cell.encode(), declaration(cell)) for cell in cells_of(self.manifest.campaign)
        ]
        sink.write(cells, {MANIFEST_KEY: msgspec.json.encode(self.manifest)})

    def _write(self, sink: Sink, progress: Progress, advance: Callable[[int], None]) -> Progress:
        for said, reached in stretches(self.files, progress, min_propensity=self.manifest.min_propensity):
            sink.write(said, {PROGRESS_KEY: msgspec.json.encode(reached)})
            advance(reached.num_rows - progress.num_rows)
            progress = reached
        return progress

    def _measure(self, sink: Sink, progress: Progress) -> Progress:
        counts = Counts()
        windows = []
        for kind in kinds():
            ingest = Ingest(kind, cells_of(self.manifest.campaign))
            self._ingest(kind.topic, ingest)
            windows += ingest.windows()
            counts.num_refused += ingest.num_refused
        said = measured(windows, counts)
        progress = msgspec.structs.replace(progress, measured=counts)
        sink.write(said, {PROGRESS_KEY: msgspec.json.encode(progress)})
        return progress

    def _ingest(self, topic: Topic, ingest: Ingest) -> None:
        name = self.space.topic(topic)
        start, end = extent(self.config, name, 0)
        with RangeReader(
            self.config, f"{self.space.prefix}import", topic=name, partition=0, start=start, end=end
        ) as reader:
            while batch := reader.read(_BATCH):
                ingest.take([_raw(message) for message in batch])


def _raw(message: Message) -> RawRecord:
    return RawRecord(message.offset() or 0, message.timestamp()[1], message.key(), message.value())
