"""Reading a topic once, from its beginning to the end it has now."""

from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from schemas.kafka.admin import BrokerError
from schemas.kafka.metadata import num_partitions


def read_to_end(config: dict[str, Any], topic: str, *, timeout_s: float = 15.0) -> Iterator[Message]:
    """Yield every message of a topic up to the end that each partition has at the call, partition by partition.

    ``config`` is that of ``client_config``; no group takes part and nothing is committed. Raises BrokerError when the
    broker does not answer or the topic does not exist.
    """
    consumer = Consumer(
        {**config, "group.id": "intertidal.snapshot", "enable.auto.commit": False, "enable.partition.eof": False}
    )
    try:
        for partition in range(num_partitions(consumer, topic, timeout_s=timeout_s)):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=timeout_s)
            if low < high:
                consumer.assign([TopicPartition(topic, partition, low)])
                yield from _read_until(consumer, high, topic=topic, partition=partition, timeout_s=timeout_s)
    except KafkaException as error:
        raise BrokerError(f"cannot read {topic}: {error.args[0].str()}") from error
    finally:
        consumer.close()


def latest_by_key(config: dict[str, Any], topic: str, *, timeout_s: float = 15.0) -> dict[bytes, bytes]:
    """The last value of each key of a compacted topic; a key whose last value is empty is left out."""
    latest: dict[bytes, bytes] = {}
    for message in read_to_end(config, topic, timeout_s=timeout_s):
        key, value = message.key(), message.value()
        if key is None:
            continue
        if value:
            latest[key] = value
        else:
            latest.pop(key, None)
    return latest


def _read_until(consumer: Consumer, high: int, *, topic: str, partition: int, timeout_s: float) -> Iterator[Message]:
    # The position moves past control records and compacted gaps too, where no message is handed over.
    place = [TopicPartition(topic, partition)]
    idle_s = 0.0
    while consumer.position(place)[0].offset < high:
        message = consumer.poll(0.1)
        if message is None:
            idle_s += 0.1
            if idle_s >= timeout_s:
                raise BrokerError(f"{topic}[{partition}]: no record for {timeout_s:g} s, before offset {high}")
            continue
        if message.error() is not None:
            raise KafkaException(message.error())
        idle_s = 0.0
        yield message
