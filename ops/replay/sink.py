"""Where a replay's records go: the topics of its run, in transactions.

A transaction holds what a stretch of the log led to, and the progress behind it. A process that is killed leaves its
last transaction open; whoever opens a sink of the same name next ends it, and its records are read by nobody. A process
that was only asleep is refused from then on.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ops.replay.names import require_shadow
from ops.replay.said import Said
from schemas.framing import frame
from schemas.kafka.config import Config, producer_config
from schemas.kafka.producer import DeliveryError
from schemas.topics import Namespace

_TIMEOUT_S: Final = 60.0
# Whole batches: nobody waits for a single record.
_BATCHED: Final[Config] = {"linger.ms": 20, "transaction.timeout.ms": 60_000}


class Sink:
    """Writes the records of one partition of one part of a run. Raises DeliveryError, after which it is of no use."""

    def __init__(self, config: Config, space: Namespace, *, name: str, log_topic: str, log_partition: int) -> None:
        require_shadow(space, log_topic)
        self._space = space
        self._log_topic = log_topic
        self._log_partition = log_partition
        self._failure: KafkaError | None = None
        transactional = {"transactional.id": f"{space.prefix}{name}", **_BATCHED}
        self._producer = Producer(producer_config(config, **transactional))
        try:
            self._producer.init_transactions(_TIMEOUT_S)
        except KafkaException as error:
            raise DeliveryError(f"{space.prefix}{name}: {error.args[0].str()}") from error

    def write(self, said: Iterable[Said], log: Mapping[bytes, bytes]) -> None:
        """Write records and what the run's log says of them: all, or, whatever happens, nothing."""
        producer = self._producer
        try:
            producer.begin_transaction()
            for topic, key, record, time_ms in said:
                self._produce(self._space.prefix + topic, key, frame(record), time_ms=time_ms)
            for key, value in log.items():
                self._produce(self._log_topic, key, value, partition=self._log_partition)
            producer.commit_transaction(_TIMEOUT_S)
        except KafkaException as error:
            raise DeliveryError((self._failure or error.args[0]).str()) from error

    def close(self) -> None:
        """Let the connections go; a transaction in the making is left to the next sink of this name."""
        self._producer.close()

    def _produce(self, topic: str, key: bytes, value: bytes, *, partition: int = -1, time_ms: int = 0) -> None:
        require_shadow(self._space, topic)
        while True:
            try:
                self._producer.produce(
                    topic, value, key=key, partition=partition, timestamp=time_ms, on_delivery=self._delivered
                )
            except BufferError:
                self._producer.poll(0.05)
            else:
                return

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None and self._failure is None:
            self._failure = error
