"""The thread that reads one route: takes work in, decodes it while the batch before is scored, and commits offsets.

One pass:

    1. wait for places in the room; while there are none, work waits at the broker
    2. take in what is there, as much as there are places for
    3. decode; what cannot be believed is refused
    4. commit what is answered and acknowledged
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Message

from ops.telemetry.metrics import Metrics
from ranking.client.broker_time import local_ms
from ranking.clock import BrokerClock
from ranking.consumer.task import IntakeLimits, Moment, Task, task_of
from ranking.consumer.waiting_room import WaitingRoom
from ranking.consumer.worker.route_consumer import Origin, RouteConsumer
from schemas.errors import RecordError
from schemas.framing import Decoder
from schemas.kafka.dead_letters import message_headers
from schemas.records import RankingWork
from schemas.tracing import trace_from

WAIT_S: Final = 0.1
COMMIT_EVERY_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that could not be believed, and why; it is finished once its letter is durable."""

    consumer: RouteConsumer
    message: Message
    error: RecordError
    origin: Origin


@dataclass(frozen=True, kw_only=True)
class Intake:
    """What the threads of all routes share. ``refuse`` takes what cannot be believed, from any of them."""

    room: WaitingRoom
    clock: BrokerClock
    limits: IntakeLimits
    metrics: Metrics
    refuse: Callable[[Refused], None]


class ReadingThread(threading.Thread):
    """Reads until told to stop, then keeps its membership until told to leave."""

    def __init__(self, consumer: RouteConsumer, intake: Intake) -> None:
        # Not waited for where the process ends with an error: the broker will miss it as it misses one that was killed.
        super().__init__(name=f"read-{consumer.route}", daemon=True)
        self.consumer = consumer
        self._intake = intake
        self._decoder = Decoder([RankingWork])
        self._stopping = threading.Event()
        self._leaving = threading.Event()
        self._next_commit_s = 0.0
        self.last_pass_s = time.monotonic()

    def stop(self) -> None:
        """Take nothing in any more."""
        self._stopping.set()

    def leave(self, timeout_s: float) -> None:
        """Commit what is finished, leave the group, end."""
        self._stopping.set()
        self._leaving.set()
        self.join(timeout_s)

    def run(self) -> None:
        """From joining the group to leaving it."""
        try:
            self.consumer.subscribe()
            while not self._stopping.is_set():
                self._pass()
            self._leaving.wait()
            self.consumer.commit(wait=True)
            self.consumer.close()
        except Exception as error:  # noqa: BLE001  # raised again by the replica's thread, which ends the process
            self._intake.room.fail(error)

    def _pass(self) -> None:
        route = self.consumer.route
        num_places = self._intake.room.await_places(route, WAIT_S)  # 1
        messages = self.consumer.take(WAIT_S, num_places) if num_places else []  # 2
        if messages:
            tasks = self._decode(messages)  # 3
            if tasks:
                self._intake.room.put(route, tasks)
        now_s = self.last_pass_s = time.monotonic()
        if now_s >= self._next_commit_s:
            self._next_commit_s = now_s + COMMIT_EVERY_S
            self.consumer.commit()  # 4

    def _decode(self, messages: Sequence[Message]) -> list[Task]:
        clock = self._intake.clock
        receipt_ms = local_ms()
        now_ns = time.monotonic_ns()
        append_times_ms = [message.timestamp()[1] for message in messages]
        for append_ms in append_times_ms:
            clock.observe(receipt_ms=receipt_ms, append_ms=append_ms)
        moment = Moment(now_ns=now_ns, broker_ms=clock.broker_ms(receipt_ms))
        tasks: list[Task] = []
        for message, append_ms in zip(messages, append_times_ms, strict=True):
            origin = self.consumer.begin(message, _answer_headers(message))
            try:
                work = self._decoder.decode(message.value())
                assert isinstance(work, RankingWork)
                tasks.append(
                    task_of(
                        work,
                        route=self.consumer.route,
                        partition=message.partition() or 0,
                        append_ms=append_ms,
                        moment=moment,
                        limits=self._intake.limits,
                        origin=origin,
                    )
                )
            except RecordError as error:
                self._intake.refuse(Refused(self.consumer, message, error, origin))
        self._intake.metrics.counter("intertidal_records_read_total").labels(self.consumer.topic).inc(len(messages))
        return tasks


def _answer_headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    """Trace context of an answer: that of its work, with a span of its own."""
    if not message.headers():
        return ()
    trace = trace_from(message_headers(message))
    return () if trace is None else (trace.child().header(),)
