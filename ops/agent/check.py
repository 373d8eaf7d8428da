"""Reads a range of ``fleet.capacity`` for the conformance check; joins no group and commits nothing."""

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from ops.agent.check_document import CheckDocument
from ops.agent.conformance import Conformance
from ops.telemetry.progress import progress
from schemas.errors import RecordError
from schemas.kafka.admin import BrokerError
from schemas.kafka.config import Config, consumer_config
from schemas.kafka.metadata import num_partitions
from schemas.kafka.ranges import latest_by_key, read_ranges, watermarks
from schemas.kafka.registry import wait_for_schema
from schemas.settings import TimeSettings
from schemas.topics import CONTROL_CELLS, FLEET_CAPACITY, Namespace
from streams.ingest.cells import Cells
from streams.ingest.partition import RawRecord

_TIMEOUT_S = 10.0


def check(
    config: Config, namespace: Namespace, *, time: TimeSettings, since_ms: int, until_ms: int, host: str = ""
) -> CheckDocument:
    """Judge what was appended from ``since_ms`` up to ``until_ms``; raises BrokerError."""
    topic = namespace.topic(FLEET_CAPACITY)
    spans = _spans(config, topic, since_ms)
    conformance = Conformance(
        time=time,
        num_partitions=len(spans),
        cells=_declared(config, namespace, time),
        since_ms=since_ms,
        host=host,
    )
    with progress("reading", total=sum(end - start for start, end in spans.values())) as advance:
        for message in read_ranges(config, topic, spans):
            raw = _raw(message)
            wait_for_schema(raw.value, timeout_s=_TIMEOUT_S)
            if raw.append_ms < until_ms:
                conformance.see(message.partition() or 0, raw)
            advance(1)
    return conformance.document()


def _spans(config: Config, topic: str, since_ms: int) -> dict[int, tuple[int, int]]:
    """Of each partition the first offset appended at ``since_ms`` or later, and its end."""
    consumer = Consumer(consumer_config(config, f"{topic}.check"))
    try:
        count = num_partitions(consumer, topic, timeout_s=_TIMEOUT_S)
        ends = watermarks(consumer, topic, range(count), timeout_s=_TIMEOUT_S)
        asked = [TopicPartition(topic, partition, max(0, since_ms)) for partition in range(count)]
        try:
            starts = {place.partition: place.offset for place in consumer.offsets_for_times(asked, timeout=_TIMEOUT_S)}
        except KafkaException as error:
            raise BrokerError(f"{topic}: {error.args[0].str()}") from error
    finally:
        consumer.close()
    # A negative offset says that nothing is that young.
    return {
        partition: (max(low, starts[partition]) if starts[partition] >= 0 else high, high)
        for partition, (low, high) in ends.items()
    }


def _declared(config: Config, namespace: Namespace, time: TimeSettings) -> Cells:
    cells = Cells(window_ms=time.window_ms)
    for key, value in latest_by_key(config, namespace.topic(CONTROL_CELLS)).items():
        try:
            cells.read(key, value)
        except RecordError as error:
            raise BrokerError(f"{namespace.topic(CONTROL_CELLS)}: {error}") from error
    return cells


def _raw(message: Message) -> RawRecord:
    return RawRecord(
        offset=message.offset() or 0, append_ms=message.timestamp()[1], key=message.key(), value=message.value()
    )
