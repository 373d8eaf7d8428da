"""Commits of the router's requests: the offset, with where its results stand in the metadata."""

from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ops.telemetry.logs import get_log
from ranking.router.events import Commit

_log = get_log(__name__)


def place_of(topic: str, commit: Commit) -> TopicPartition:
    """A commit as the client takes it."""
    return TopicPartition(topic, commit.partition, commit.offset, metadata=commit.metadata)


def commit_now(consumer: Consumer, topic: str, commits: Sequence[Commit]) -> bool:
    """Whether the broker has taken the commits; it has where there are none."""
    if not commits:
        return True
    try:
        taken = consumer.commit(offsets=[place_of(topic, commit) for commit in commits], asynchronous=False)
    except KafkaException as error:
        # The next owner then begins further back and finds the results in the log.
        _log.warning("commit refused", why=error.args[0].str())
        return False
    return all(place.error is None for place in taken or ())
