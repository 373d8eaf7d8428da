"""A producer that knows what the broker has acknowledged: only a delivery report makes a record durable."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from msgspec import Struct

from schemas.framing import encode


class DeliveryError(Exception):
    """The broker did not take a record; the message names topic, partition and cause."""


class DurableProducer:
    """Sends records and counts what is not yet acknowledged.

    A delivery that fails is raised as DeliveryError by the next call, so that nothing is committed past it.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._producer = Producer(config)
        self._num_pending = 0
        self._failure: DeliveryError | None = None

    @property
    def num_pending(self) -> int:
        """Records handed over and not yet acknowledged."""
        return self._num_pending

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

        Raises DeliveryError when an earlier record was refused.
        """
        self.check()
        value = record if isinstance(record, bytes) else encode(record)

        def report(error: KafkaError | None, message: Message) -> None:
            self._num_pending -= 1
            if error is not None:
                self._fail(f"{message.topic()}[{message.partition()}]: {error.str()}")
            elif message.offset() is None:
                # A retry that the broker took for a duplicate: what it says is there may be another batch.
                self._fail(f"{message.topic()}[{message.partition()}]: acknowledged without an offset")
            elif on_delivered is not None:
                on_delivered(message)

        while True:
            try:
                self._producer.produce(
                    topic, value, key=key, partition=partition, headers=list(headers), on_delivery=report
                )
            except BufferError:
                # The queue is full: serve deliveries first, as produce() leaks headers on each refusal.
                self._producer.poll(0.05)
                self.check()
            except KafkaException as error:
                raise DeliveryError(f"{topic}: {error.args[0].str()}") from error
            else:
                self._num_pending += 1
                return

    def poll(self, timeout_s: float = 0.0) -> None:
        """Serve delivery reports; raises DeliveryError when one was a refusal."""
        self._producer.poll(timeout_s)
        self.check()

    def drain(self, timeout_s: float = 30.0) -> None:
        """Return once everything sent is acknowledged; raises DeliveryError otherwise."""
        deadline = time.monotonic() + timeout_s
        while self._num_pending and time.monotonic() < deadline:
            self._producer.poll(min(0.05, timeout_s))
            self.check()
        self.check()
        if self._num_pending:
            raise DeliveryError(f"{self._num_pending} records not acknowledged within {timeout_s:g} s")

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

    def _fail(self, detail: str) -> None:
        if self._failure is None:
            self._failure = DeliveryError(detail)
