"""From an agent to Kafka, in a thread of its own: no broker and no disk, however slow, holds up a gate.

    put            never waits
    the thread     1. what was put goes to the spool  2. from there to the client, a window of records at a time
                   3. what the broker has acknowledged is done in the spool

The client keeps trying for as long as the broker is away, in order and once. When it gives up for another reason (the
topic is gone, the login is refused), it is replaced by a new one after a pause, which begins with the first record that
was not acknowledged; readers drop by their sequence what comes twice.
"""

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from confluent_kafka import KafkaException, Message

from ops.agent.spool import Spool, log_of
from ops.telemetry.logs import get_log
from schemas.errors import RecordError
from schemas.framing import decode_as, encode, frame
from schemas.kafka.admin import BrokerError
from schemas.kafka.config import Config, producer_config
from schemas.kafka.producer import DeliveryError, DurableProducer
from schemas.kafka.registry import connect_registry
from schemas.records import CapacityEvent

# In the client at once; all else waits on disk. Records of one partition stay in order behind each other.
WINDOW: Final = 256
# The client's queue is bounded by the window already; this bounds what it may hold however large a record is.
SMALL_QUEUE: Final[Config] = {
    "queue.buffering.max.messages": 2 * WINDOW,
    "queue.buffering.max.kbytes": 8_192,
    # Until the broker is back: giving up would only begin again with the same record.
    "delivery.timeout.ms": 0,
    "statistics.interval.ms": 0,
    # That no broker is there is said by us, once; the client says it at each try.
    "log_level": 2,
}
# Something that is put ends the wait for it; what the broker says does not.
_IDLE_WAIT_S: Final = 1.0
_STILL_WAIT_S: Final = 0.25
_FLOW_WAIT_S: Final = 0.05
_HANGS_S: Final = 5.0
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 10.0

_LOG = get_log(__name__)


@dataclass(frozen=True, slots=True)
class OutboxState:
    """What is seen from outside: records waiting, bytes of the spool, acknowledged, dropped by log, and what is wrong.

    ``waiting_since_s`` is when the oldest that waits now began to, on the monotonic clock; None while none does.
    """

    num_waiting: int = 0
    size_bytes: int = 0
    num_acknowledged: int = 0
    num_dropped: tuple[tuple[str, int], ...] = ()
    is_disk_well: bool = True
    problem: str = ""
    waiting_since_s: float | None = None


class Outbox:
    """Takes records of any number of hosts and brings them to one topic."""

    def __init__(
        self,
        spool: Spool,
        config: Config,
        topic: str,
        *,
        connect: Callable[[Config], DurableProducer] = DurableProducer,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """``config`` is that of ``client_config``; raises ValueError for a setting that the client does not know."""
        self._spool = spool
        self._config = producer_config(config, **SMALL_QUEUE)
        self._topic = topic
        self._connect = connect
        self._clock_s = clock_s
        self._inbox: queue.SimpleQueue[CapacityEvent | None] = queue.SimpleQueue()
        self._is_closing = threading.Event()
        self._gives_up_at_s = float("inf")
        self._num_acknowledged = 0
        self._is_flowing = False
        self._problem = ""
        self._waiting_since_s: float | None = None
        self._producer: DurableProducer | None = self._opened()
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
        self.state = OutboxState()

    def start(self) -> None:
        """Begin to send, what an earlier process left first."""
        self._thread.start()

    def put(self, record: CapacityEvent) -> None:
        """Take a record. Never waits; the order of calls is the order of the topic."""
        self._inbox.put(record)

    def close(self, *, timeout_s: float = 5.0) -> None:
        """Send what is left for at most so long; the rest stays in the spool. Twice is once."""
        self._gives_up_at_s = self._clock_s() + timeout_s
        self._is_closing.set()
        self._inbox.put(None)
        if self._thread.ident is None:
            self._let_go()
            self._spool.close()
            return
        # A disk that hangs keeps the thread, and must not keep the process.
        self._thread.join(timeout_s + _HANGS_S)

    def died(self) -> str | None:
        """Why nothing is sent any more; None while the thread is there, or is not wanted."""
        is_wanted = self._thread.ident is not None and not self._is_closing.is_set()
        return "the thread that sends has ended" if is_wanted and not self._thread.is_alive() else None

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        again_at_s = 0.0
        try:
            while True:
                try:
                    if self._is_over():
                        break
                    self._take_in(self._wait_s())
                    if self._clock_s() >= again_at_s:
                        self._send()
                except (DeliveryError, BrokerError, KafkaException, RecordError, OSError, ValueError) as error:
                    self._fail(error)
                    again_at_s = self._clock_s() + pause_s
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                if not self._problem:
                    pause_s = _FIRST_PAUSE_S
                self._show()
        finally:
            self._let_go()
            self._spool.close()

    def _is_over(self) -> bool:
        if not self._is_closing.is_set():
            return False
        # What was put before the close is taken in whatever happens.
        self._take_in(0.0)
        return self._spool.is_empty or self._clock_s() >= self._gives_up_at_s

    def _wait_s(self) -> float:
        """How long the inbox may be waited for; while records flow, acknowledgements are waited for instead."""
        if not self._spool.num_waiting:
            return _IDLE_WAIT_S
        return 0.0 if self._is_flowing else _STILL_WAIT_S

    def _take_in(self, wait_s: float) -> None:
        """Everything that was put, to the spool; waits for the first."""
        try:
            record = self._inbox.get(timeout=wait_s) if wait_s > 0.0 else self._inbox.get_nowait()
            while True:
                if record is not None:
                    self._spool.append(log_of(record.kind), encode(record))
                record = self._inbox.get_nowait()
        except queue.Empty:
            pass

    def _send(self) -> None:
        if self._producer is None:
            self._producer = self._opened()
        connect_registry()
        while self._spool.num_given < WINDOW and (entry := self._spool.next()) is not None:
            try:
                # What an older release has spooled is sent as this one writes it, framed as the readers of today want.
                record = decode_as(entry.body, CapacityEvent)
            except RecordError as error:
                _LOG.error("a spooled record cannot be read and is left out", number=entry.number, error=str(error))
                self._spool.acknowledge(entry.number)
                continue
            self._producer.send(
                self._topic,
                frame(record),
                key=record.cell.encode(),
                on_delivered=partial(self._acknowledged, entry.number),
            )
        num_before = self._num_acknowledged
        self._producer.poll(_FLOW_WAIT_S if self._is_flowing and self._spool.num_given else 0.0)
        self._is_flowing = self._num_acknowledged > num_before

    def _acknowledged(self, number: int, _message: Message) -> None:
        self._spool.acknowledge(number)
        self._num_acknowledged += 1
        self._problem = ""

    def _opened(self) -> DurableProducer:
        try:
            return self._connect(self._config)
        except KafkaException as error:
            raise ValueError(error.args[0].str()) from error

    def _fail(self, error: Exception) -> None:
        problem = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        if problem != self._problem:
            _LOG.warning("records wait in the spool", error=problem)
        self._problem = problem
        self._is_flowing = False
        self._let_go()
        self._spool.rewind()

    def _let_go(self) -> None:
        """Let the client go without what it holds: that is in the spool."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        # A failure here is known already, or of a record that the spool still has.
        with suppress(DeliveryError):
            producer.drop_queued({self._topic})
        try:
            producer.__exit__(DeliveryError, None, None)
        except KafkaException as error:
            _LOG.warning("the client did not close", error=error.args[0].str())

    def _show(self) -> None:
        spool = self._spool
        if not spool.num_waiting:
            self._waiting_since_s = None
        elif self._waiting_since_s is None:
            self._waiting_since_s = self._clock_s()
        self.state = OutboxState(
            num_waiting=spool.num_waiting,
            size_bytes=spool.size_bytes,
            num_acknowledged=self._num_acknowledged,
            num_dropped=tuple(sorted(spool.num_dropped.items())),
            is_disk_well=spool.is_disk_well,
            problem=self._problem,
            waiting_since_s=self._waiting_since_s,
        )
