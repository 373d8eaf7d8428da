"""Sends as callers do: each waits so long for the broker and no longer, and nobody ends because it is away."""

from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from msgspec import Struct

from schemas.framing import frame
from schemas.kafka.config import Config, producer_config
from schemas.kafka.producer import DeliveryError

_DRAIN_GRAIN_S = 0.05


class ImpatientSender:
    """Hands records to the broker for at most ``patience_ms`` each; what it did not take by then is counted.

    A record that was given up may be in the log all the same, where only its acknowledgement was lost.
    """

    def __init__(self, config: Config, *, patience_ms: int) -> None:
        self._producer = Producer(producer_config(config, **{"delivery.timeout.ms": patience_ms}))
        self._patience_ms = patience_ms
        self._num_pending = 0
        self._fatal: str | None = None
        self.num_accepted = 0
        self.num_not_accepted = 0

    def send(
        self,
        topic: str,
        record: Struct,
        *,
        key: bytes,
        headers: Sequence[tuple[str, bytes | None]] = (),
        on_accepted: Callable[[Message], None],
    ) -> None:
        """Queue one record; raises DeliveryError only when the client can send nothing any more."""

        def report(error: KafkaError | None, message: Message) -> None:
            self._num_pending -= 1
            if error is not None:
                self.num_not_accepted += 1
                self._note(error)
            else:
                self.num_accepted += 1
                on_accepted(message)

        self._check()
        try:
            self._producer.produce(topic, frame(record), key=key, headers=list(headers), on_delivery=report)
        except BufferError:
            # So much waits for a broker that is away that this one would be given up as well.
            self.num_not_accepted += 1
        except KafkaException as error:
            raise DeliveryError(f"{topic}: {error.args[0].str()}") from error
        else:
            self._num_pending += 1

    def poll(self, timeout_s: float = 0.0) -> None:
        """Serve acknowledgements; raises as ``send``."""
        self._producer.poll(timeout_s)
        self._check()

    def drain(self) -> None:
        """Return once everything sent was taken or given up; raises as ``send``."""
        while self._num_pending:
            self.poll(_DRAIN_GRAIN_S)

    def _note(self, error: Any) -> None:
        if error.fatal() and self._fatal is None:
            self._fatal = error.str()

    def _check(self) -> None:
        if self._fatal is not None:
            raise DeliveryError(self._fatal)
