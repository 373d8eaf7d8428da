"""How the simulator's parts reach the broker: topics must be there and served before anything is sent or read."""

from collections.abc import Sequence

from schemas.kafka.admin import TopicAdmin
from schemas.kafka.config import PATIENT_SEND, Config, client_config, producer_config
from schemas.kafka.producer import DurableProducer
from schemas.kafka.registry import connect_registry


def checked_config(client_id: str, topics: Sequence[str]) -> Config:
    """Client settings, after seeing that the broker answers, has the topics and leads their partitions.

    Raises BrokerError where it does not, ValueError for a wrong setting: at once, not after a delivery time-out.
    """
    config = client_config(client_id)
    connect_registry()
    admin = TopicAdmin(config)
    admin.wait_until_served(admin.require(topics))
    return config


def open_producer(client_id: str, topics: Sequence[str]) -> DurableProducer:
    """A producer for topics that exist, which outlives a broker that goes away; raises as ``checked_config``."""
    return DurableProducer(producer_config(checked_config(client_id, topics), **PATIENT_SEND))
