"""How the simulator's parts reach the broker: topics must be there and served before anything is sent or read."""

from collections.abc import Sequence

from schemas.kafka.admin import BrokerError, TopicAdmin
from schemas.kafka.config import Config, client_config, producer_config
from schemas.kafka.producer import DurableProducer


def checked_config(client_id: str, topics: Sequence[str]) -> Config:
    """Client settings, after seeing that the broker answers, has the topics and leads their partitions.

    Raises BrokerError where it does not, ValueError for a wrong setting: at once, not after a delivery time-out.
    """
    config = client_config(client_id)
    admin = TopicAdmin(config)
    existing = admin.existing()
    missing = [topic for topic in topics if topic not in existing]
    if missing:
        raise BrokerError(f"the broker has no topic {', '.join(missing)}; create them with `intertidal topics create`")
    admin.wait_until_served({topic: existing[topic] for topic in topics})
    return config


def open_producer(client_id: str, topics: Sequence[str]) -> DurableProducer:
    """A producer for topics that exist; raises as ``checked_config``."""
    return DurableProducer(producer_config(checked_config(client_id, topics)))
