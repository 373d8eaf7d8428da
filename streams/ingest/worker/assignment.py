"""The partitions that a worker owns: how it takes one over and how it lets go."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ops.telemetry.logs import get_log
from schemas.kafka.admin import BrokerError
from schemas.settings import TimeSettings
from schemas.topics import Topic
from streams.ingest.aggregate import Kind
from streams.ingest.cells import Cells
from streams.ingest.partition import PartitionProcessor
from streams.ingest.progress import Progress, ProgressError, from_metadata, to_metadata
from streams.ingest.silence import SilenceWatch

log = get_log(__name__)

Place = tuple[str, int]
_TIMEOUT_S = 30.0


@dataclass(slots=True)
class Owned:
    """One partition in work. ``silence`` is None where nobody tells it the time: its readers are customers."""

    topic: Topic
    partition: int
    processor: PartitionProcessor
    silence: SilenceWatch | None
    committed: Progress
    settings: str

    def end_reached(self) -> None:
        """Note that everything in the partition has been read."""
        if self.silence is not None:
            self.silence.end_reached()


class Assignment:
    """The owned partitions of the raw topics, and their commits.

    A commit whose metadata cannot be gone on from (another tool wrote it, or another window length was in force) is
    refused with ProgressError: nothing is known then of which windows are out, and a window that is sent twice must
    be the same bytes twice. Whoever deletes the group's offset of the partition has it read again from its earliest
    record, which is safe: the same windows come out, and those that know them already pass over them.
    """

    def __init__(
        self,
        consumer: Consumer,
        kinds: Mapping[str, Kind],
        *,
        num_partitions: Mapping[str, int],
        time: TimeSettings,
        cells: Cells,
    ) -> None:
        self._consumer = consumer
        self._kinds = kinds
        self._num_partitions = num_partitions
        self._time = time
        self._cells = cells
        self.owned: dict[Place, Owned] = {}

    def take_over(self, partitions: Sequence[TopicPartition]) -> None:
        """Start to own partitions.

        1. fetch what is committed; 2. where nothing is, commit the earliest offset first, so that a crash before the
        first commit cannot start elsewhere; 3. read from there on. Raises BrokerError or ProgressError.
        """
        try:
            # 1. What is committed.
            committed = self._consumer.committed(list(partitions), timeout=_TIMEOUT_S)
            starts = [self._start(place) for place in committed]
            for place, start in zip(committed, starts, strict=True):
                self._own(place, start)
            # 2. The starting offset of what has none.
            fresh = [place for place in committed if place.offset < 0]
            if fresh:
                self._commit([self.owned[place.topic, place.partition] for place in fresh])
            # 3. From there on.
            self._consumer.assign(
                [
                    TopicPartition(place.topic, place.partition, start.offset)
                    for place, start in zip(committed, starts, strict=True)
                ]
            )
        except KafkaException as error:
            raise BrokerError(f"cannot take partitions over: {error.args[0].str()}") from error

    def let_go(self, partitions: Sequence[TopicPartition]) -> None:
        """Own the partitions no longer, without a commit."""
        for place in partitions:
            self.owned.pop((place.topic, place.partition), None)

    def commit(self) -> None:
        """Commit every owned partition that moved. Everything that came out of it must be durable already.

        A commit that the group refuses is not an error: somebody else owns the partitions now, or will read again
        what an older commit leaves to be read.
        """
        moved = [owned for owned in self.owned.values() if owned.processor.progress() != owned.committed]
        if not moved:
            return
        try:
            self._commit(moved)
        except KafkaException as error:
            log.warning("commit refused", error=error.args[0].str())

    def _commit(self, moved: Sequence[Owned]) -> None:
        progress = [owned.processor.progress() for owned in moved]
        answers = self._consumer.commit(
            offsets=[
                TopicPartition(
                    self._name(owned),
                    owned.partition,
                    done.offset,
                    metadata=to_metadata(done, window_ms=self._time.window_ms, settings=owned.settings),
                )
                for owned, done in zip(moved, progress, strict=True)
            ],
            asynchronous=False,
        )
        for answer in answers or ():
            if answer.error is not None:
                raise KafkaException(answer.error)
        for owned, done in zip(moved, progress, strict=True):
            owned.committed = done

    def _name(self, owned: Owned) -> str:
        return next(name for name, kind in self._kinds.items() if kind.topic is owned.topic)

    def _start(self, place: TopicPartition) -> Progress:
        if place.error is not None:
            raise KafkaException(place.error)
        low = self._earliest(place)
        if place.offset < 0:
            return Progress(offset=low)
        try:
            settings = self._kinds[place.topic].settings
            start = from_metadata(place.offset, place.metadata, window_ms=self._time.window_ms, settings=settings)
        except ProgressError as error:
            raise ProgressError(
                f"{place.topic}[{place.partition}] at offset {place.offset}: {error}; "
                "delete the group's offset of this partition to have it read again from its earliest record"
            ) from error
        if low > start.offset:
            log.warning(
                "retention was faster than reading",
                topic=place.topic,
                partition=place.partition,
                committed=start.offset,
                earliest=low,
            )
        return start

    def _earliest(self, place: TopicPartition) -> int:
        """Earliest offset of a partition; a partition just created has no leader for a moment."""
        deadline_s = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                low, _ = self._consumer.get_watermark_offsets(
                    TopicPartition(place.topic, place.partition), timeout=_TIMEOUT_S
                )
            except KafkaException:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.1)
            else:
                return low

    def _own(self, place: TopicPartition, start: Progress) -> None:
        kind = self._kinds[place.topic]
        self.owned[place.topic, place.partition] = Owned(
            topic=kind.topic,
            partition=place.partition,
            processor=PartitionProcessor(
                kind,
                place.partition,
                num_partitions=self._num_partitions[place.topic],
                time=self._time,
                cells=self._cells,
                start=start,
            ),
            silence=None
            if kind.is_of_users
            else SilenceWatch(silence_s=self._time.clock_silence_ms / 1000.0, now_s=time.monotonic()),
            committed=start,
            settings=kind.settings,
        )
