"""Errors after which a consumer reads nothing any more, though librdkafka does not flag each of them as fatal."""

from typing import Final

from confluent_kafka import KafkaError

_ENDS_READING: Final = frozenset({KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID})


def ends_reading(error: KafkaError) -> bool:
    """Whether the consumer that met the error must be given up."""
    return error.fatal() or error.code() in _ENDS_READING
