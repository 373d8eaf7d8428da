"""A producer that knows what the broker has acknowledged: only a delivery report makes a record durable."""

import time
from collections import deque
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from msgspec import Struct

from schemas.framing import frame

# A broker forgets a producer that has been silent in a partition for `producer.id.expiration.ms`, a day by default.
_FORGOTTEN_AFTER_S: Final = 3_600.0


class DeliveryError(Exception):
    """The broker did not take a record; the message names topic, partition and cause."""


@dataclass(slots=True)
class _Known:
    """Since when the broker has known this producer in one partition, without a long silence, and until when."""

    since_s: float
    last_s: float


class DurableProducer:
    """Sends records and counts what is not yet acknowledged.

    A delivery that fails is raised as DeliveryError by the next call, so that nothing is committed past it.

    An acknowledgement without an offset is librdkafka's word for "the broker calls this retry a duplicate". After a
    broken connection that is a success: the first try had arrived. On a partition to which this producer is new it can
    be a loss: the first batch is refused, as the broker does not lead the partition yet, the second is taken for the
    producer's first, and the retry of the first batch is then out of turn. So it counts as delivered where the broker
    had acknowledged a record of this producer to the same partition before this one was handed over (its numbers are
    known there, and no later batch can be taken before an earlier one), and as a failure elsewhere.
    """

    def __init__(self, config: dict[str, Any], *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._producer = Producer(config)
        self._clock_s = clock_s
        self._num_pending = 0
        self._failure: DeliveryError | None = None
        self._known: dict[tuple[str | None, int | None], _Known] = {}
        # What `drop_queued` was asked to drop, how often it was asked, and what it hit beside that.
        self._dropped: Container[str] = ()
        self._num_drops = 0
        self._again: deque[Callable[[], None]] = deque()

    @property
    def num_pending(self) -> int:
        """Records handed over and not yet acknowledged."""
        return self._num_pending + len(self._again)

    def send(
        self,
        topic: str,
        record: Struct | bytes,
        *,
        key: bytes | None = None,
        partition: int = -1,
        headers: Sequence[tuple[str, bytes | None]] = (),
        on_delivered: Callable[[Message], None] | None = None,
    ) -> None:
        """Queue one record; ``on_delivered`` runs inside ``poll`` or ``drain`` once the broker has acknowledged it.

        The message that it is given has no offset where the broker called a retry a duplicate. Raises DeliveryError
        when an earlier record was refused.
        """
        self.check()
        value = record if isinstance(record, bytes) else frame(record)
        sent_s, num_drops = self._clock_s(), self._num_drops

        def report(error: KafkaError | None, message: Message) -> None:
            self._num_pending -= 1
            if error is not None and error.code() == KafkaError._PURGE_QUEUE:
                # Reports of a purge can come late: what was handed over after it was not meant.
                if num_drops == self._num_drops or topic not in self._dropped:
                    self._again.append(produce)
            elif error is not None:
                self._fail(f"{message.topic()}[{message.partition()}]: {error.str()}")
            elif not self._is_durable(message, sent_s):
                self._fail(f"{message.topic()}[{message.partition()}]: acknowledged without an offset")
            elif on_delivered is not None:
                on_delivered(message)

        def produce() -> None:
            self._producer.produce(
                topic, value, key=key, partition=partition, headers=list(headers), on_delivery=report
            )
            self._num_pending += 1

        while True:
            try:
                produce()
            except BufferError:
                # The queue is full: serve deliveries first, as produce() leaks headers on each refusal.
                self.poll(0.05)
            except KafkaException as error:
                raise DeliveryError(f"{topic}: {error.args[0].str()}") from error
            else:
                return

    def drop_queued(self, topics: Container[str]) -> None:
        """Drop what is queued for ``topics`` and has never left this process: its ``on_delivered`` never runs.

        Records of other topics are queued again. What is on its way to the broker stays so, and is acknowledged or not
        as ever: nobody can call it back. Raises DeliveryError.
        """
        self._dropped = topics
        self._num_drops += 1
        self._producer.purge(in_queue=True, in_flight=False, blocking=True)
        self.poll()

    def poll(self, timeout_s: float = 0.0) -> None:
        """Serve delivery reports; raises DeliveryError when one was a refusal."""
        self._producer.poll(timeout_s)
        while self._again:
            try:
                self._again[0]()
            except BufferError:
                break
            self._again.popleft()
        self.check()

    def drain(self, timeout_s: float = 30.0) -> None:
        """Return once everything sent is acknowledged; raises DeliveryError otherwise."""
        deadline = time.monotonic() + timeout_s
        while self.num_pending and time.monotonic() < deadline:
            self.poll(min(0.05, timeout_s))
        self.check()
        if self.num_pending:
            raise DeliveryError(f"{self.num_pending} records not acknowledged within {timeout_s:g} s")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Drain, unless the block failed, and let the connections go."""
        try:
            if kind is None:
                self.drain()
        finally:
            self._producer.close()

    def check(self) -> None:
        """Raise the first delivery failure, if there was one."""
        if self._failure is not None:
            raise self._failure

    def _is_durable(self, message: Message, sent_s: float) -> bool:
        """Whether an acknowledgement proves that the record is in the log."""
        place = (message.topic(), message.partition())
        known = self._known.get(place)
        if message.offset() is None:
            return known is not None and known.since_s < sent_s <= known.last_s + _FORGOTTEN_AFTER_S
        now_s = self._clock_s()
        if known is None or now_s - known.last_s > _FORGOTTEN_AFTER_S:
            self._known[place] = _Known(now_s, now_s)
        else:
            known.last_s = now_s
        return True

    def _fail(self, detail: str) -> None:
        if self._failure is None:
            self._failure = DeliveryError(detail)
