"""The loop of an ingest worker.

Order is what makes it safe. A turn:
    1. poll one record, then drain what is there, bounded in number and bytes;
    2. take in new declarations of cells;
    3. process each partition's records, send its windows and dead letters;
    4. tell partitions that are silent, and read to their end, the time;
    5. from time to time: wait for every acknowledgement, then commit offsets and their metadata.

A rebalance, in the consumer's callbacks (they run inside poll, between two turns, so nothing is half processed):
    revoke: 1. wait for every acknowledgement; 2. commit; 3. forget the partitions.
    lost:   forget the partitions: whoever owns them now has read the older commit.
    assign: see Assignment.take_over.

Shutdown, on SIGTERM or SIGINT:
    1. finish the turn; 2. wait for every acknowledgement; 3. commit; 4. leave the group; 5. close the rest.

A delivery that fails within the client's own time limit (30 s) ends the worker without a commit: DeliveryError.
"""

import threading
import time
from itertools import groupby, takewhile
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from ops.telemetry.health import HealthServer
from ops.telemetry.logs import get_log
from ops.telemetry.stop_signals import stop_event
from schemas.kafka.admin import BrokerError, TopicAdmin
from schemas.kafka.config import client_config, consumer_config, producer_config
from schemas.kafka.held import HeldPartitions
from schemas.kafka.producer import DurableProducer
from schemas.kafka.registry import connect_registry
from schemas.topics import CONTROL_CELLS, CONTROL_WINDOWS
from streams.ingest.aggregate import Kind
from streams.ingest.capacity import CapacityKind
from streams.ingest.cells import Cells
from streams.ingest.latency import LatencyKind
from streams.ingest.outcomes import OutcomesKind
from streams.ingest.partition import RawRecord
from streams.ingest.results import ResultsKind
from streams.ingest.worker.assignment import Assignment, Owned, Place
from streams.ingest.worker.cell_log import CellLog, raise_unless_transient
from streams.ingest.worker.metering import Metering
from streams.ingest.worker.options import IngestOptions
from streams.ingest.worker.output import Output

log = get_log(__name__)

POLL_S = 0.1
CHUNK_RECORDS = 256
BATCH_RECORDS = 2_048
BATCH_BYTES = 8 << 20
COMMIT_EVERY_S = 1.0
# Not on the request path: the broker's default bounds, with a heartbeat quick enough for a short rebalance.
SESSION_MS = 6_000
HEARTBEAT_MS = 1_000


def run(options: IngestOptions) -> None:
    """Run an ingest worker until SIGTERM or SIGINT.

    Raises ValueError (ProgressError among them), BrokerError or DeliveryError with one line for the user.
    """
    config = client_config(f"ingest-{options.worker_id}")
    num_partitions = _topics(config, options)
    with stop_event() as stop:
        _Worker(options, config, num_partitions).run(stop)


class _Worker:
    def __init__(self, options: IngestOptions, config: dict[str, Any], num_partitions: dict[str, int]) -> None:
        namespace = options.namespace
        self._options = options
        self._has_registry = connect_registry() is not None
        self._metering = Metering()
        self._cells = Cells(window_ms=options.time.window_ms)
        self._cell_log = CellLog(
            config, namespace, self._cells, num_partitions=num_partitions[namespace.topic(CONTROL_CELLS)]
        )
        self._output = Output(
            DurableProducer(producer_config(config)),
            namespace,
            worker_id=options.worker_id,
            epoch_ms=time.time_ns() // 1_000_000,
        )
        self._consumer = Consumer(
            consumer_config(config, namespace.group("ingest"), **_membership(options), **{"enable.partition.eof": True})
        )
        self._held = HeldPartitions(self._consumer)
        self._kinds = {namespace.topic(kind.topic): kind for kind in kinds_of(options)}
        self._assignment = Assignment(
            self._consumer, self._kinds, num_partitions=num_partitions, time=options.time, cells=self._cells
        )
        self._committed_s = time.monotonic()

    def run(self, stop: threading.Event) -> None:
        metering = self._metering
        health = HealthServer(
            metering.metrics,
            live={"loop": metering.why_not_live},
            ready={"work": metering.why_not_ready, "schemas": self._why_waiting},
            port=self._options.health_port,
        )
        try:
            health.start()
            self._cell_log.read_to_end()
            self._consumer.subscribe(
                list(self._kinds), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
            )
            log.info("started", worker=self._options.worker_id, cells=len(self._cells), health=health.url)
            while not stop.is_set():
                self._turn()
            # Shutdown. 1. The turn is finished.
            self._finish()
        finally:
            # 4. Leave the group, 5. close the rest; after an error there was no commit, and closing makes none.
            self._assignment.let_go([TopicPartition(*place) for place in self._assignment.owned])
            self._consumer.close()
            self._cell_log.close()
            health.close()
        log.info("stopped", worker=self._options.worker_id)

    def _turn(self) -> None:
        metering = self._metering
        # 1. One record, then what is there.
        messages, ends = self._drain()
        # 2. New declarations.
        self._cell_log.poll()
        # 3. Each partition's records, up to one whose schema is not known yet.
        self._held.release_known()
        for place, batch in groupby(sorted(messages, key=_place), key=_place):
            owned = self._assignment.owned.get(place)
            # A record fetched before a rebalance belongs to whoever owns its partition now.
            if owned is None:
                continue
            records = list(batch)
            if self._has_registry:
                records = list(takewhile(self._held.is_ready, records))
            if records:
                self._process(owned, place[0], records)
        for place in ends & self._assignment.owned.keys():
            self._assignment.owned[place].end_reached()
        # 4. Silent partitions.
        now_s = time.monotonic()
        for place, owned in self._assignment.owned.items():
            if owned.silence is not None and not self._held.holds(*place) and owned.silence.needs_clock(now_s):
                self._output.send_clock(owned.topic, owned.partition)
        self._output.poll()
        # 5. Commit.
        if now_s - self._committed_s >= COMMIT_EVERY_S:
            self._finish()
        metering.num_partitions = len(self._assignment.owned)
        metering.num_cells = len(self._cells)
        metering.turned()

    def _drain(self) -> tuple[list[Message], set[Place]]:
        """Block for the first record, then take what is there without waiting, up to the bounds of a batch.

        Returns the records, and the partitions that they reach the end of.
        """
        messages: list[Message] = []
        ends: set[Place] = set()
        num_bytes = 0
        first = self._consumer.poll(POLL_S)
        fetched = [] if first is None else [first]
        while fetched:
            for message in fetched:
                error = message.error()
                if error is None:
                    messages.append(message)
                    num_bytes += len(message.value() or b"")
                    ends.discard(_place(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ends.add(_place(message))
                else:
                    raise_unless_transient(message.topic() or "the raw topics", error)
            if len(messages) >= BATCH_RECORDS or num_bytes >= BATCH_BYTES:
                break
            fetched = self._consumer.consume(CHUNK_RECORDS, 0.0)
        return messages, ends

    def _process(self, owned: Owned, name: str, batch: list[Message]) -> None:
        clock_ms = owned.processor.clock_ms
        raws = [_raw(message) for message in batch]
        out = owned.processor.process(raws)
        if owned.silence is not None:
            owned.silence.records_read(clock_moved=owned.processor.clock_ms != clock_ms, now_s=time.monotonic())
        self._output.send_windows(out.windows)
        self._output.send_dead_letters(owned.topic, batch, out.refusals)
        self._metering.processed(name, owned.partition, appends_ms=[raw.append_ms for raw in raws], out=out)

    def _why_waiting(self) -> str | None:
        return self._held.trouble() or self._cell_log.trouble()

    def _finish(self) -> None:
        """Shutdown's steps 2 and 3, and step 5 of a turn: nothing is committed that is not durable."""
        self._output.drain()
        self._assignment.commit()
        self._committed_s = time.monotonic()

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._assignment.take_over(partitions)
        self._held.release_all()
        log.info("assigned", partitions=[f"{place.topic}[{place.partition}]" for place in partitions])

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # After an error nothing is owned any more: what came out may not be durable.
        if not self._assignment.owned:
            return
        # 1. Wait for every acknowledgement, 2. commit, 3. forget.
        self._finish()
        self._assignment.let_go(partitions)

    def _lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        log.warning("partitions lost", num_partitions=len(partitions))
        self._assignment.let_go(partitions)


def kinds_of(options: IngestOptions) -> tuple[Kind, ...]:
    """What a worker reads."""
    return (
        CapacityKind(),
        LatencyKind(),
        ResultsKind(options.measurement),
        OutcomesKind(options.measurement, options.keys),
    )


def _topics(config: dict[str, Any], options: IngestOptions) -> dict[str, int]:
    """Partitions of each topic that the worker needs; raises BrokerError naming what is missing or of a wrong shape."""
    admin, namespace = TopicAdmin(config), options.namespace
    raw = [kind.topic for kind in kinds_of(options)]
    needed = {namespace.topic(topic) for topic in (*raw, CONTROL_CELLS, CONTROL_WINDOWS)}
    needed |= {namespace.dead_letters(topic) for topic in raw}
    num_partitions = admin.require(needed)
    for difference in admin.differences(namespace):
        # Event time rests on the broker's append time; other differences are an operator's choice.
        if difference.topic in needed and difference.setting == "message.timestamp.type":
            raise BrokerError(str(difference))
    return num_partitions


def _membership(options: IngestOptions) -> dict[str, Any]:
    settings: dict[str, Any] = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
    if options.static_member:
        settings["group.instance.id"] = options.worker_id
    return settings


def _place(message: Message) -> Place:
    return message.topic() or "", message.partition() or 0


def _raw(message: Message) -> RawRecord:
    return RawRecord(message.offset() or 0, message.timestamp()[1], message.key(), message.value())
