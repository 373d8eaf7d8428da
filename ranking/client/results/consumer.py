"""The thin edge to Kafka of those who read results: a group member that hands out batches and keeps its place."""

import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import groupby
from typing import Final, Self

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from ops.telemetry.logs import get_log
from ranking.client.results.options import ResultsOptions
from ranking.client.results.partition import ResultsPartition
from ranking.client.results.places import Sink, Start, check_start, group_places, sink_places, start_places
from ranking.client.results.view import ResultsBatch
from schemas.kafka.admin import BrokerError
from schemas.kafka.config import client_config, consumer_config
from schemas.kafka.dead_letters import raw_record
from schemas.kafka.fatal import ends_reading
from schemas.kafka.held import HeldPartitions
from schemas.kafka.metadata import num_partitions
from schemas.kafka.ranges import poll_batch, read_ranges, watermarks
from schemas.kafka.registry import connect_registry, wait_for_schema
from schemas.topics import RANKING_RESULTS, Namespace

_log = get_log(__name__)

TIMEOUT_S: Final = 10.0
_WAIT_S: Final = 0.1
_STAY_EVERY_S: Final = 1.0


class ResultsConsumer:
    """Reads ``ranking.results``: each request's result once, in batches of one partition.

    At least once, the group keeping the place of what was acknowledged:

        with ResultsConsumer(Namespace(), group="billing") as results:
            for batch in results.batches():
                store(batch)
                results.commit()

    Effectively once, the caller's ``sink`` keeping the place in the transaction that stores the batch. It must refuse a
    batch whose ``first_offset`` is not where it stands: it comes from a process that has lost the partition meanwhile.

        with ResultsConsumer(Namespace(), group="billing", sink=sink) as results:
            for batch in results.batches():
                sink.store(batch)

    A partition that is taken over:
    1. What was acknowledged is committed before it is let go; nothing that was not ever is.
    2. Its new owner asks the sink, else the group, where it stands; ``start`` counts where neither knows.
    3. It reads the records of one horizon before that place again, for their request ids: whether a result is a
       duplicate is a matter of the log alone, whoever reads it and however often that one was killed.

    For use by one thread; ``stop`` may be called from anywhere. At most one batch of each partition waits in memory,
    beside what the client fetches ahead within its bound. While the broker is away no batch comes.
    """

    def __init__(
        self,
        namespace: Namespace,
        *,
        group: str,
        sink: Sink | None = None,
        start: Start = "earliest",
        options: ResultsOptions | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Raises ValueError for a wrong setting, BrokerError when the Schema Registry is away."""
        check_start(start, has_sink=sink is not None)
        if not group:
            raise ValueError("group must have a name")
        connect_registry(environ)
        self._options = options or ResultsOptions()
        self._sink = sink
        self._start = start
        self._topic = namespace.topic(RANKING_RESULTS)
        self._config = client_config(f"results-{group}", environ=environ)
        self._consumer = Consumer(
            consumer_config(self._config, namespace.group(f"results.{group}"), **self._options.client_settings())
        )
        self._held = HeldPartitions(self._consumer)
        self._owned: dict[int, ResultsPartition] = {}
        # Assigned by the group, and not found yet where they stand.
        self._unplaced: list[int] = []
        self._ready: deque[ResultsBatch] = deque()
        self._paused: set[int] = set()
        self._num_assignments = 0
        # A seek before anything was assigned: where everything is read from once it is.
        self._sought: datetime | None = None
        self._stayed_s = time.monotonic()
        self._stopping = threading.Event()

    def __enter__(self) -> Self:
        """Join the group; raises BrokerError when the broker or the topic is away."""
        try:
            num_partitions(self._consumer, self._topic, timeout_s=TIMEOUT_S)
        except BrokerError:
            self._consumer.close()
            raise
        self._consumer.subscribe(
            [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Commit what was acknowledged and leave the group."""
        try:
            self._commit(self._owned)
        finally:
            self._consumer.close()

    def stop(self) -> None:
        """Let ``batches`` end after the batch it is at. Safe in a signal handler and from any thread."""
        self._stopping.set()

    def batches(self) -> Iterator[ResultsBatch]:
        """Batch after batch, until ``stop``; raises as ``next_batch``."""
        while not self._stopping.is_set():
            batch = self.next_batch(_WAIT_S)
            if batch is not None:
                yield batch

    def next_batch(self, timeout_s: float) -> ResultsBatch | None:
        """The next batch, None when none came in time.

        Raises BrokerError when reading has ended for good, PositionError for a sink of another topic, and where the log
        was made anew under us.
        """
        batch = self._take_ready()
        if batch is None:
            self._read(timeout_s)
            batch = self._take_ready()
        return batch

    def commit(self, batch: ResultsBatch | None = None) -> bool:
        """Acknowledge a batch and all before it in its partition, by default everything that was handed out.

        Returns whether the broker has taken it; what it has not is committed with the next one. A batch of a partition
        that was lost meanwhile is not taken: its records are given out again. Raises ValueError where a sink keeps the
        place, BrokerError when reading has ended for good.
        """
        if self._sink is not None:
            raise ValueError("the sink keeps the place: nothing is committed")
        if batch is None:
            for partition in self._owned.values():
                partition.acknowledge()
            return self._commit(self._owned)
        held = self._owned.get(batch.partition)
        is_ours = held is not None and held.acknowledge(batch)
        return self._commit(self._owned) and is_ours

    def pause(self, partition: int) -> None:
        """Hand out nothing of a partition until ``resume``, while the others go on; forgotten on a rebalance.

        For a caller that cannot take more of it now. Whoever pauses all goes on asking for the next batch, and so
        stays in the group.
        """
        if partition in self._owned:
            self._paused.add(partition)
            self._consumer.pause([TopicPartition(self._topic, partition)])

    def resume(self, partition: int) -> None:
        """Go on with a paused partition."""
        if partition in self._paused:
            self._paused.discard(partition)
            if not self._held.holds(self._topic, partition):
                self._consumer.resume([TopicPartition(self._topic, partition)])

    def seek(self, at: datetime) -> None:
        """Read the partitions owned now from what was appended at a time or later, forwards or back.

        Before anything is assigned it counts for what is assigned first. The group is told the new place at once, or
        with the next commit. Raises ValueError where a sink keeps the place, BrokerError.
        """
        if self._sink is not None:
            raise ValueError("the sink keeps the place: it is moved there")
        check_start(at, has_sink=False)
        if self._unplaced or not self._owned:
            self._sought = at
            return
        spans = watermarks(self._consumer, self._topic, self._owned, timeout_s=TIMEOUT_S)
        paused = set(self._paused)
        places = start_places(self._consumer, self._topic, spans, at, timeout_s=TIMEOUT_S)
        self._open(spans, places, untold=places.keys())
        for number in paused:
            self.pause(number)
        self._commit(self._owned)

    def lag(self) -> dict[int, int]:
        """Records of each owned partition that have not been handed out; those are left out whose end is not known yet.

        The end is what the client heard last: it stands still while a partition is paused or the broker is away.
        """
        behind = {}
        for number, partition in self._owned.items():
            _, end = self._consumer.get_watermark_offsets(TopicPartition(self._topic, number), cached=True)
            if end >= 0:
                behind[number] = max(0, end - partition.handed_offset)
        return behind

    def _take_ready(self) -> ResultsBatch | None:
        for batch in self._ready:
            if batch.partition not in self._paused:
                self._ready.remove(batch)
                self._owned[batch.partition].hand_out(batch)
                return batch
        return None

    def _read(self, timeout_s: float) -> None:
        """Take in what comes within a time, and make batches of it."""
        if self._unplaced and not self._place(timeout_s):
            return
        if self._held.release_known():
            # What goes on was paused for its schema; the caller's pauses stay.
            for number in self._paused:
                self._consumer.pause([TopicPartition(self._topic, number)])
        messages = poll_batch(self._consumer, timeout_s, max_batch=self._options.max_batch)
        if self._unplaced:
            # The assignment changed within the call: what it returned may be of before. It comes again.
            return
        readable = [message for message in messages if self._is_record(message) and self._held.is_ready(message)]
        readable.sort(key=lambda message: message.partition() or 0)
        for number, of_partition in groupby(readable, key=lambda message: message.partition() or 0):
            batch = self._owned[number].read([raw_record(message) for message in of_partition])
            if batch.num_deleted:
                _log.warning("results deleted unread", partition=number, count=batch.num_deleted)
            for bad in batch.unreadable:
                _log.warning("result unreadable", partition=number, offset=bad.raw.offset, why=str(bad.error))
            self._ready.append(batch)

    def _is_record(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return message.partition() in self._owned
        if ends_reading(error):
            raise BrokerError(f"{self._topic}: {error.str()}")
        _log.warning("consumer", why=error.str())
        return False

    # Assignment. Callbacks only note it: where the partitions stand is asked outside, so that it can be asked again.

    def _on_assign(self, consumer: Consumer, assigned: list[TopicPartition]) -> None:
        self._unplaced = [place.partition for place in assigned]
        # Nothing is fetched before it is placed: the client would begin where it thinks best, and a record from there
        # can still come once reading has begun elsewhere.
        consumer.assign([])

    def _on_revoke(self, consumer: Consumer, revoked: list[TopicPartition]) -> None:
        # 1.
        self._commit(place.partition for place in revoked)
        self._let_go()
        consumer.unassign()

    def _on_lost(self, consumer: Consumer, lost: list[TopicPartition]) -> None:
        self._let_go()
        consumer.unassign()
        _log.warning("partitions lost", partitions=len(lost))

    def _let_go(self) -> None:
        # All at once: under the eager protocol an assignment is given up whole.
        self._owned.clear()
        self._ready.clear()
        self._paused.clear()
        self._unplaced = []

    def _place(self, timeout_s: float) -> bool:
        """Begin with the partitions that were assigned, steps 2 and 3; False when the broker does not say where."""
        numbers = self._unplaced
        try:
            # 2.
            spans = watermarks(self._consumer, self._topic, numbers, timeout_s=TIMEOUT_S)
            if self._sink is not None:
                stored = sink_places(self._sink, spans)
            elif self._sought is not None:
                stored = {}
            else:
                stored = group_places(self._consumer, self._topic, spans, timeout_s=TIMEOUT_S)
            new = {number: span for number, span in spans.items() if number not in stored}
            start = self._start if self._sought is None else self._sought
            begun = start_places(self._consumer, self._topic, new, start, timeout_s=TIMEOUT_S) if new else {}
            # 3.
            self._open(spans, stored | begun, untold=begun.keys())
        except BrokerError as error:
            _log.warning("place not found yet", why=str(error))
            self._stay(min(timeout_s, _WAIT_S))
            return False
        self._unplaced = []
        self._sought = None
        # Who starts at the end, or at a time that moves, must not start later after a crash. Refused, it is told again.
        self._commit(begun)
        _log.info("partitions assigned", partitions=sorted(numbers))
        return True

    def _stay(self, timeout_s: float = 0.0) -> None:
        """Show the group that we live, from time to time, while places are sought: it can change in here."""
        now_s = time.monotonic()
        # Once reading has begun, what a poll returns is a record, and is not to be thrown away.
        if not self._unplaced or (timeout_s == 0.0 and now_s - self._stayed_s < _STAY_EVERY_S):
            return
        self._stayed_s = now_s
        message = self._consumer.poll(timeout_s)
        if message is not None:
            self._is_record(message)

    def _open(self, spans: dict[int, tuple[int, int]], places: dict[int, int], *, untold: Collection[int]) -> None:
        """Read partitions anew from a place each, which the group has yet to hear of in those ``untold``.

        Raises BrokerError and changes nothing then.
        """
        self._num_assignments += 1
        opened = {}
        for number, offset in places.items():
            opened[number] = ResultsPartition(
                number,
                offset,
                horizon_records=self._options.horizon_records,
                owned_since=self._num_assignments,
                is_told=number not in untold,
            )
        tails = {
            number: (max(spans[number][0], offset - self._options.horizon_records), offset)
            for number, offset in places.items()
        }
        assigned = self._unplaced
        for message in read_ranges(self._config, self._topic, tails):
            wait_for_schema(message.value(), timeout_s=TIMEOUT_S)
            opened[message.partition() or 0].remember([raw_record(message)])
            self._stay()
            if self._unplaced is not assigned:
                raise BrokerError(f"{self._topic}: the group has changed meanwhile")
        self._owned = opened
        self._ready.clear()
        self._paused.clear()
        self._consumer.assign([TopicPartition(self._topic, number, offset) for number, offset in places.items()])
        self._held.release_all()
        # Being paused outlives an assignment.
        self._consumer.resume([TopicPartition(self._topic, number) for number in places])

    def _commit(self, numbers: Iterable[int]) -> bool:
        """Whether the broker knows what was acknowledged in these partitions."""
        if self._sink is not None:
            return True
        wanted = [self._owned[number] for number in numbers if number in self._owned]
        moved = [partition for partition in wanted if partition.acknowledged_offset != partition.committed_offset]
        places = [TopicPartition(self._topic, each.number, each.acknowledged_offset) for each in moved]
        if not self._tell(places):
            return False
        for partition in moved:
            partition.committed_offset = partition.acknowledged_offset
        return True

    def _tell(self, places: list[TopicPartition]) -> bool:
        if not places:
            return True
        try:
            taken = self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            if ends_reading(error.args[0]):
                raise BrokerError(f"{self._topic}: {error.args[0].str()}") from error
            # What is not committed is given out again, by us or by whoever has the partition.
            _log.warning("commit refused", why=error.args[0].str())
            return False
        return all(place.error is None for place in taken or ())
