"""What a client that is already there can ask the broker of a topic."""

from confluent_kafka import Consumer, KafkaException

from schemas.kafka.admin import BrokerError


def num_partitions(consumer: Consumer, topic: str, *, timeout_s: float = 10.0) -> int:
    """Number of partitions of a topic; raises BrokerError when the broker is away or has no such topic."""
    try:
        metadata = consumer.list_topics(topic, timeout=timeout_s).topics[topic]
    except KafkaException as error:
        raise BrokerError(f"no answer from the broker: {error.args[0].str()}") from error
    if metadata.error is not None or not metadata.partitions:
        why = "no partitions" if metadata.error is None else metadata.error.str()
        raise BrokerError(f"the broker does not serve topic {topic} ({why}); run `intertidal topics create`")
    return len(metadata.partitions)
