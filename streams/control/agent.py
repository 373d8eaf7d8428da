"""The controllers of all cells as one Faust agent over control.windows: a thin edge around ``processor.apply``.

For each record, one at a time, in this order (before the first one of a cell its epoch is claimed: ``epochs``):

1. apply: pure, from the table's state of the cell;
2. the new state into the table: the local database at once, the changelog records on their way; the sums of segments
   before the state of their cell, which must never know of windows that they do not;
3. the outputs on their way; then wait until the broker has acknowledged outputs and changelog record;
4. acknowledge the event: only now may its offset be committed.

What a crash leaves behind:

- before 2: nothing has happened; the window is read again.
- between 2 and 3, or in 3: the local table is ahead of the topics and perhaps of the changelog. The window is read
  again, recognised, its records are sent again, and the state is written to the changelog again.
- between 3 and 4, or before the offset is committed: the same; readers see some records twice, byte for byte.
- the local database is lost or damaged: it is read from the changelog, which is never behind a committed offset, since
  4 waits for it. It may be behind the local one by the event in hand only, which is read again and, as ``apply`` is
  pure, gives the same.
- the broker lost the changelog's acknowledged tail: with the local database nothing is missing (Faust's own check would
  refuse to start here, so it is off). Without it the state is older than the committed offset: the next target says how
  many windows were skipped, and rises from base when the gap was longer than a target's validity.

A process that stood still for so long that another may own its partitions ends before 2 and before each send of 3:
whoever took over has said all that it could still say, and newer things since.

A record that cannot be read or believed is dead-lettered in place of 1 to 3. Anything else that goes wrong stops the
process with the event unacknowledged: Faust would acknowledge and skip it.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faust
from faust.transport.drivers import aiokafka as faust_aiokafka
from msgspec import Struct

from ops.telemetry.declared import METRICS
from ops.telemetry.health import HealthServer
from ops.telemetry.logs import get_log
from ops.telemetry.metrics import Metrics
from schemas.dead_letters import RawRecord, dead_letter_key
from schemas.epochs import epoch_header
from schemas.errors import RecordError, SchemaPendingError
from schemas.framing import frame, require_schema
from schemas.kafka.admin import BrokerError, TopicAdmin
from schemas.kafka.config import client_config
from schemas.kafka.producer import DeliveryError
from schemas.kafka.registry import connect_registry
from schemas.partition import partition_for
from schemas.records import ControlWindow
from schemas.settings import TimeSettings
from schemas.topics import CONTROL_APP_ID, CONTROL_TABLE, CONTROL_WINDOWS, Namespace
from streams.control.believe import believed
from streams.control.checked_topics import checked_topics
from streams.control.connection import Connection, connection
from streams.control.epochs import Epochs, epoch_key, stored_epoch
from streams.control.gauges import show
from streams.control.in_order import InOrder
from streams.control.local_store import set_aside_damaged, sole_user
from streams.control.outputs import destination
from streams.control.progress import Progress
from streams.control.quiet import quiet_libraries
from streams.control.raw_message import raw_record
from streams.control.settings import ControlSettings
from streams.control.stall import StallGuard
from streams.control.state import CellState, StateError, decode_state, encode_state, with_segments
from streams.control.step import applied, letter_of
from streams.control.uplift import entries

_log = get_log(__name__)
# Faust's own steps in the classes derived from it stay as quiet as the rest of Faust.
_FAUST_LOGGER = logging.getLogger("faust.intertidal")

# A static member that is back within the session keeps its partitions; one gone for good is noticed in ten seconds.
SESSION_TIMEOUT_S = 10.0
HEARTBEAT_S = 3.0
# The broker counts the session from the last heartbeat, which may be that old when the process stops.
STILL_LIMIT_S = SESSION_TIMEOUT_S - HEARTBEAT_S - 1.0
BEAT_S = 0.2
COMMIT_INTERVAL_S = 0.5
DELIVERY_TIMEOUT_S = 30.0
MAX_REQUEST_BYTES = 4 << 20
# How long nothing may move before readiness says so, and before the process gives up to be started anew.
STALL_S = 10.0
GIVE_UP_S = 60.0
LOOK_INTERVAL_S = 0.5
SCHEMA_LOOK_S = 0.1
# Records that wait so long while nothing is taken were let fall on the way: they are sought.
FALLEN_S = 1.0
# A broker that is away would keep the producer flushing for ever.
STOP_TIMEOUT_S = 10.0
# Sized for kilobytes per cell, hundreds per measured segment; Faust's defaults are 64 MiB and 2 GiB per partition.
STORE_OPTIONS = {"write_buffer_size": 4 << 20, "block_cache_size": 8 << 20, "driver": "rocksdict"}


@dataclass(frozen=True, kw_only=True)
class ControlOptions:
    """What a control agent is started with. ``instance_id`` is the same after a restart; ``data_dir`` is its own."""

    namespace: Namespace
    time: TimeSettings
    instance_id: str
    data_dir: Path
    health_port: int = 0
    snapshot_ticks: int = 30


class ControllerTable(faust.Table):  # type: ignore[type-arg]
    """Faust's table, with the acknowledgement of the last change within reach."""

    logger = _FAUST_LOGGER
    last_change: Any = None

    def send_changelog(self, *args: Any, **kwargs: Any) -> Any:
        """Send a change to the changelog and keep the future of its acknowledgement."""
        self.last_change = super().send_changelog(*args, **kwargs)
        return self.last_change


class _IdempotentProducer(faust_aiokafka.Producer):
    """A retry must not put an older state or target behind a newer one; Faust is idempotent in transactions only."""

    logger = _FAUST_LOGGER

    def _settings_extra(self) -> Mapping[str, Any]:
        return {"acks": "all", "enable_idempotence": True}


class _Consumer(faust_aiokafka.Consumer):
    """Faust seeks only where an offset above 0 is committed; elsewhere it goes on behind what it has thrown away."""

    logger = _FAUST_LOGGER
    on_start_offset: Callable[[int, int], None]

    async def perform_seek(self) -> None:
        """Seek each source partition to what is committed, else to its beginning, and tell where that is."""
        await super().perform_seek()
        source = [tp for tp in self.assignment() if not self._is_changelog_tp(tp)]
        if not source:
            return
        earliest = await self.earliest_offsets(*source)
        # Not the offsets read: those may have moved on by now.
        committed = {tp: self._committed_offset[tp] or 0 for tp in source}
        starts = {tp: max(offset, earliest.get(tp) or 0) for tp, offset in committed.items()}
        await self.seek_wait({tp: offset for tp, offset in starts.items() if not committed[tp]})
        for tp, offset in starts.items():
            self.on_start_offset(tp.partition, offset)


class _Transport(faust_aiokafka.Transport):
    Consumer = _Consumer
    Producer = _IdempotentProducer


class ControlAgent:
    """One Faust app with one agent and one table. Made inside the running event loop that it lives in."""

    def __init__(
        self, options: ControlOptions, link: Connection, *, num_partitions: Mapping[str, int], metrics: Metrics
    ) -> None:
        self._options = options
        self._num_partitions = num_partitions
        self._metrics = metrics
        self._settings = ControlSettings(
            validity_windows=options.time.validity_windows, snapshot_ticks=options.snapshot_ticks
        )
        self._epochs = Epochs(start_ms=time.time_ns() // 1_000_000)
        self._source = options.namespace.topic(CONTROL_WINDOWS)
        self.progress = Progress(clock=time.monotonic, stall_s=STALL_S)
        self._order = InOrder(clock=time.monotonic)
        self.pending_schema: str | None = None
        self._stall = StallGuard(clock=time.monotonic, limit_s=STILL_LIMIT_S)
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.app = _new_app(options, link)
        self.app.consumer.on_start_offset = self._starts
        self._table = ControllerTable(
            self.app, name=CONTROL_TABLE, key_type=bytes, value_type=bytes, options=dict(STORE_OPTIONS)
        )
        self.app.tables.add(self._table)
        source = self.app.topic(
            self._source,
            key_serializer="raw",
            value_serializer="raw",
            key_type=bytes,
            value_type=bytes,
            allow_empty=True,
        )
        self.app.agent(source, name="control", concurrency=1)(self._consume)

    async def _consume(self, stream: Any) -> None:
        try:
            async for event in stream.noack().events():
                await self._take(event)
        except Exception as error:  # noqa: BLE001  # Faust would go on with the next event, whatever it is
            if not self.failed.done():
                self.failed.set_exception(error)
            await asyncio.get_running_loop().create_future()

    def _starts(self, partition: int, offset: int) -> None:
        self._order.start(partition, offset=offset)
        self._epochs.take_over(partition)
        self.progress.starts(partition, next_offset=offset)

    async def _take(self, event: Any) -> None:
        record = raw_record(event.message)
        match self._order.judge(record.partition, offset=record.offset):
            case "seen":
                event.ack()
                return
            case "wait":
                return
            case "seek":
                await self._seek(event.message.tp)
                return
        self._metrics.counter("intertidal_records_read_total").labels(CONTROL_WINDOWS.name).inc()
        await self._wait_for_schema(record)
        try:
            window = believed(
                record,
                num_partitions=self._num_partitions[self._source],
                skew_ms=self._options.time.skew_ms,
            )
        except RecordError as error:
            await self._refuse(record, error)
        else:
            await self._control(window, record)
        event.ack()  # step 4
        self._order.took(record.partition, offset=record.offset)
        self.progress.took(record.partition, offset=record.offset)

    async def _wait_for_schema(self, record: RawRecord) -> None:
        """Return once the record can be read: a registry that is away is no reason to refuse it."""
        while True:
            try:
                require_schema(record.value)
            except SchemaPendingError as error:
                self.pending_schema = f"{record.topic}[{record.partition}] waits: {error}"
                await asyncio.sleep(SCHEMA_LOOK_S)
            else:
                self.pending_schema = None
                return

    async def _seek(self, tp: Any) -> None:
        offset = self._order.expected(tp.partition)
        if offset is not None:
            _log.info("records were let fall on the way: read again", partition=tp.partition, offset=offset)
            await self.app.consumer.seek_wait({tp: offset})

    async def _control(self, window: ControlWindow, record: RawRecord) -> None:
        epoch = await self._epoch(window.cell, record.partition)
        key = window.cell.encode()
        try:
            before = self._state(key, window)
            state, records = applied(before, window, settings=self._settings)  # step 1
        except RecordError as error:
            _log.exception("window cannot be applied", cell=window.cell, window=window.window_index)
            await self._refuse(record, error)
            return
        self._check_stall()
        changes = self._store(key, before, state)  # step 2
        sends = [self._send(said, epoch=epoch) for said in records]  # step 3
        await _acknowledged(*changes, *sends)
        show(self._metrics, records)

    async def _epoch(self, cell: str, partition: int) -> int:
        """Epoch to speak for a cell with; a new one is in the changelog before anything is said under it."""
        epoch = self._epochs.held(cell, partition=partition)
        if epoch is None:
            key = epoch_key(cell)
            epoch = self._epochs.claim(cell, partition=partition, stored=self._table.get(key))
            self._check_stall()
            self._table[key] = stored_epoch(epoch)
            await _acknowledged(self._table.last_change)
        return epoch

    def _state(self, key: bytes, window: ControlWindow) -> CellState:
        data = self._table.get(key)
        state = CellState(cell=key.decode())
        if data is not None:
            try:
                state = decode_state(data)
            except StateError as error:
                # Base is where a controller without a past begins, so that a release gone back does no harm.
                _log.error("state of a cell cannot be read: it begins anew", cell=key.decode(), reason=str(error))
        return with_segments(state, entries.read(self._table.get, state, window))

    def _store(self, key: bytes, before: CellState, state: CellState) -> list[Any]:
        """Write what has changed, the cell's own entry last; returns what acknowledges each."""
        changes = []
        for name, data in (*entries.changed(before, state), (key, encode_state(state))):
            self._table[name] = data
            changes.append(self._table.last_change)
        return changes

    async def _send(self, record: Struct, *, epoch: int) -> None:
        topic, key = destination(record)
        await self._produce(self._options.namespace.topic(topic), key, frame(record), [epoch_header(epoch)])
        self._metrics.counter("intertidal_records_sent_total").labels(topic.name).inc()

    async def _refuse(self, record: RawRecord, error: RecordError) -> None:
        _log.warning("window refused", partition=record.partition, offset=record.offset, reason=str(error))
        letter = letter_of(record, error)
        name = self._options.namespace.dead_letters(CONTROL_WINDOWS)
        await _acknowledged(self._produce(name, dead_letter_key(letter), frame(letter), []))
        self._metrics.counter("intertidal_dead_letters_total").labels(CONTROL_WINDOWS.name, error.reason).inc()

    async def _produce(self, topic: str, key: bytes, value: bytes, headers: list[tuple[str, bytes]]) -> None:
        partition = partition_for(key, self._num_partitions[topic])
        self._check_stall()
        await self.app.producer.send_and_wait(topic, key, value, partition, None, headers)

    def _check_stall(self) -> None:
        stalled_s = self._stall.stalled_s()
        if stalled_s is not None:
            raise BrokerError(f"control stood still for {stalled_s:.1f} s: another may have taken its partitions over")

    async def beat(self) -> None:
        """Say for ever that the process runs; raises BrokerError when it did not for too long."""
        while True:
            self._stall.beat()
            self._check_stall()
            await asyncio.sleep(BEAT_S)

    async def watch(self) -> None:
        """Compare what is taken with the ends of the log, for ever; raises BrokerError when nothing moves for long."""
        well_at_s = time.monotonic()
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._look(), STALL_S)
            trouble = self.progress.trouble()
            # To be started anew would not bring a schema that is not known yet.
            if trouble is None or self.pending_schema is not None:
                well_at_s = time.monotonic()
            elif time.monotonic() - well_at_s > GIVE_UP_S:
                raise BrokerError(f"control stands still: {trouble}")
            await asyncio.sleep(LOOK_INTERVAL_S)

    async def _look(self) -> None:
        owned = {tp.partition: tp for tp in self.app.consumer.assignment() if tp.topic == self._source}
        self.progress.owns(owned)
        end_offsets = await self.app.consumer.highwaters(*owned.values())
        self.progress.ends({tp.partition: end for tp, end in end_offsets.items() if end is not None})
        if self.pending_schema is not None:
            return
        for partition in self.progress.waiting(longer_than_s=FALLEN_S):
            await self._seek(owned[partition])


def run(options: ControlOptions) -> None:
    """Run the agent until SIGTERM or SIGINT.

    Raises ValueError, BrokerError or DeliveryError with one line for the user.
    """
    quiet_libraries()
    config = client_config(f"control-{options.instance_id}")
    connect_registry()
    link = connection(config)
    num_partitions = checked_topics(TopicAdmin(config).require, options.namespace)
    with sole_user(_data_dir(options)):
        asyncio.run(_serve(options, link, num_partitions))


async def _serve(options: ControlOptions, link: Connection, num_partitions: Mapping[str, int]) -> None:
    """Start, run and stop:

    1. databases that cannot be read are moved aside;
    2. health answers, not ready;
    3. the app joins its group, restores its table and takes windows, until a signal or a failure;
    4. the app stops: the agent is cancelled between or within events, acknowledged offsets are committed, the group is
       left to the session (a static member that is back soon keeps its partitions);
    5. health stops.
    """
    started_s = time.monotonic()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    metrics = Metrics(METRICS)
    agent = ControlAgent(options, link, num_partitions=num_partitions, metrics=metrics)
    for path in set_aside_damaged(agent.app.conf.tabledir, label=str(time.time_ns() // 1_000_000)):  # 1
        _log.warning("local database is damaged: moved aside, read anew from the changelog", path=str(path))
    with _health(agent, metrics, options.health_port) as health:  # 2
        beating = asyncio.ensure_future(agent.beat())
        try:
            await agent.app.start()  # 3
            ready_s = time.monotonic() - started_s
            _log.info("control agent is ready", health=health.url, startup_s=round(ready_s, 2))
            await _until_stopped(agent, stop, beating)
        finally:
            beating.cancel()
            await _stop(agent)  # 4


async def _stop(agent: ControlAgent) -> None:
    """Stop the app, or leave at once: a crash is harmless, a process that hangs is never started anew."""
    failure = sys.exc_info()[1]
    # Faust would wait for a record that waits for its schema. It is not acknowledged, and comes again.
    agent.app.conf.stream_wait_empty &= agent.pending_schema is None
    stopping = asyncio.ensure_future(agent.app.stop())
    # Not wait_for: it cancels what is late and waits for that too, and Faust does not let itself be cancelled.
    done, _ = await asyncio.wait({stopping}, timeout=STOP_TIMEOUT_S)
    if not done:
        _log.error("control agent cannot stop: leaves at once", after=repr(failure) if failure else "a signal")
        os._exit(1)
    stopping.result()


async def _until_stopped(agent: ControlAgent, stop: asyncio.Event, beating: asyncio.Future[None]) -> None:
    """Return on a signal; raise what the agent, its beat or the watch failed with, or what Faust crashed with."""
    waits: set[asyncio.Future[Any]] = {
        beating,
        asyncio.ensure_future(stop.wait()),
        asyncio.ensure_future(agent.watch()),
        asyncio.ensure_future(agent.app.wait_until_stopped()),
        agent.failed,
    }
    done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in pending:
        wait.cancel()
    for wait in done:
        wait.result()
    if not stop.is_set():
        raise BrokerError(f"the stream stopped by itself: {agent.app.crash_reason!r}")


def _health(agent: ControlAgent, metrics: Metrics, port: int) -> HealthServer:
    ready = {"progress": agent.progress.trouble, "schemas": lambda: agent.pending_schema}
    try:
        return HealthServer(metrics, ready=ready, port=port)
    except OSError as error:
        raise ValueError(f"health port {port}: {error.strerror}") from None


def _new_app(options: ControlOptions, link: Connection) -> Any:
    brokers = [f"kafka://{server}" for server in link.bootstrap]
    app = faust.App(
        options.namespace.prefix + CONTROL_APP_ID,
        broker=brokers,
        broker_credentials=_credentials(link),
        broker_session_timeout=SESSION_TIMEOUT_S,
        broker_heartbeat_interval=HEARTBEAT_S,
        broker_commit_interval=COMMIT_INTERVAL_S,
        broker_client_id=f"control-{options.instance_id}",
        consumer_group_instance_id=options.instance_id,
        consumer_auto_offset_reset="earliest",
        producer_acks=-1,
        producer_request_timeout=DELIVERY_TIMEOUT_S,
        producer_max_request_size=MAX_REQUEST_BYTES,
        store="rocksdb://?driver=rocksdict",
        datadir=_data_dir(options),
        recovery_consistency_check=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        autodiscover=False,
        web_enabled=False,
        worker_redirect_stdouts=False,
    )
    app.transport = _Transport(app.conf.broker_consumer, app)
    app.producer_transport = _Transport(app.conf.broker_producer, app)
    return app


def _credentials(link: Connection) -> Any:
    if link.sasl is not None:
        return faust.SASLCredentials(
            username=link.sasl.username,
            password=link.sasl.password,
            mechanism=link.sasl.mechanism,
            ssl_context=link.tls,
        )
    return faust.SSLCredentials(link.tls) if link.tls is not None else None


def _data_dir(options: ControlOptions) -> Path:
    return options.data_dir / (options.namespace.prefix + CONTROL_APP_ID)


async def _acknowledged(*sends: Any) -> None:
    try:
        await asyncio.wait_for(asyncio.gather(*sends), DELIVERY_TIMEOUT_S)
    except TimeoutError:
        raise DeliveryError(f"records not acknowledged within {DELIVERY_TIMEOUT_S:g} s") from None
