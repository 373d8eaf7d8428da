"""How the simulator's parts reach the broker: topics must be there and served before anything is sent or read."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from schemas.kafka.admin import BrokerError, TopicAdmin
from schemas.kafka.config import Config, client_config, producer_config
from schemas.kafka.producer import DurableProducer

_SERVED_TIMEOUT_S: Final = 15.0
_LOOK_AGAIN_S: Final = 0.05


def checked_config(client_id: str, topics: Sequence[str]) -> Config:
    """Client settings, after seeing that the broker answers, has the topics and leads their partitions.

    Raises BrokerError where it does not, ValueError for a wrong setting: at once, not after a delivery time-out.
    """
    config = client_config(client_id)
    existing = TopicAdmin(config).existing()
    missing = [topic for topic in topics if topic not in existing]
    if missing:
        raise BrokerError(f"the broker has no topic {', '.join(missing)}; create them with `intertidal topics create`")
    wait_until_served(config, {topic: existing[topic] for topic in topics})
    return config


def open_producer(client_id: str, topics: Sequence[str]) -> DurableProducer:
    """A producer for topics that exist; raises as ``checked_config``."""
    return DurableProducer(producer_config(checked_config(client_id, topics)))


def wait_until_served(config: Config, num_partitions: Mapping[str, int]) -> None:
    """Return once the broker answers as the leader of every partition of the topics; raises BrokerError.

    A new topic is in the metadata before the broker serves it. An idempotent producer that starts in between can lose
    a batch: the first is refused ("not leader"), the second, in flight behind it, is accepted as the first that the
    partition sees of this producer, and the retry of the first is then taken for a duplicate, hence for delivered.
    """
    client = AdminClient(config)
    places = [TopicPartition(topic, p) for topic, count in num_partitions.items() for p in range(count)]
    deadline_s = time.monotonic() + _SERVED_TIMEOUT_S
    while True:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        futures = client.list_offsets(dict.fromkeys(places, latest), request_timeout=_SERVED_TIMEOUT_S)
        places = [place for place, future in futures.items() if not _succeeded(future)]
        if not places:
            return
        if time.monotonic() > deadline_s:
            topics = sorted({place.topic for place in places})
            raise BrokerError(f"the broker does not serve {', '.join(topics)} after {_SERVED_TIMEOUT_S:g} s")
        time.sleep(_LOOK_AGAIN_S)


def _succeeded(future: "Future[Any]") -> bool:
    try:
        future.result()
    except KafkaException:
        return False
    return True
