"""A bare relay: sends on what it reads, and does nothing else. ``python -m benchmarks.relay FROM:TO:BYTES ...``

It stands where the router or the replica stands, with the clients' settings that these have, polled as these are. To
each message that it reads from FROM it sends one of BYTES bytes to the same partition of TO, with the same key and
headers.
"""

import os
import sys
from collections.abc import Sequence

from confluent_kafka import OFFSET_END, Consumer, Message, Producer, TopicPartition

from schemas.kafka.config import client_config, consumer_config, producer_config

MAX_BATCH = 64
MAX_WAIT_S = 0.1
METADATA_TIMEOUT_S = 10.0


def main(links: Sequence[str]) -> None:
    """Relay until killed."""
    base = client_config("relay")
    consumer = Consumer(consumer_config(base, "relay"))
    producer = Producer(producer_config(base))
    targets: dict[str, tuple[str, bytes]] = {}
    places = []
    for link in links:
        source, target, size_bytes = link.rsplit(":", 2)
        targets[source] = target, os.urandom(int(size_bytes))
        partitions = consumer.list_topics(source, METADATA_TIMEOUT_S).topics[source].partitions
        places += [TopicPartition(source, partition, OFFSET_END) for partition in partitions]
    consumer.assign(places)
    while True:
        # As on the real request path: block for the first record, then drain what is there.
        first = consumer.poll(MAX_WAIT_S)
        batch = [] if first is None else [first, *consumer.consume(MAX_BATCH - 1, 0.0)]
        for message in batch:
            if message.error() is None:
                _send_on(producer, message, targets)
        producer.poll(0.0)


def _send_on(producer: Producer, message: Message, targets: dict[str, tuple[str, bytes]]) -> None:
    target, value = targets[message.topic() or ""]
    producer.produce(target, value, message.key(), message.partition() or 0, headers=message.headers() or [])


if __name__ == "__main__":
    main(sys.argv[1:])
