"""What groups have committed, asked without joining them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ops.status.tails import Place
from schemas.kafka.admin import BrokerError
from schemas.kafka.config import Config, consumer_config

_TIMEOUT_S: Final = 10.0
_LOOK_AGAIN_S: Final = 0.1
_PASSING: Final = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)


@dataclass(frozen=True, slots=True)
class Commit:
    """One committed offset with its metadata."""

    offset: int
    metadata: str | None


class Commits:
    """Asks for the commits of some groups, with a consumer in the name of each that never subscribes.

    A consumer waits for a coordinator that is still loading its group; the administration's client fails then.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._consumers: dict[str, Consumer] = {}

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()

    def read(self, places_by_group: Mapping[str, Sequence[Place]]) -> dict[str, dict[Place, Commit]]:
        """Commits of each group by partition; those without a commit are left out. Raises BrokerError."""
        return {group: self._of_group(group, places) for group, places in places_by_group.items()}

    def _of_group(self, group: str, places: Sequence[Place]) -> dict[Place, Commit]:
        consumer = self._consumers.get(group)
        if consumer is None:
            consumer = self._consumers[group] = Consumer(consumer_config(self._config, group))
        answers = _committed(consumer, group, [TopicPartition(*place) for place in places])
        return {(at.topic, at.partition): Commit(at.offset, at.metadata or None) for at in answers if at.offset >= 0}


def _committed(consumer: Consumer, group: str, places: list[TopicPartition]) -> list[TopicPartition]:
    """Commits as the broker has them; raises BrokerError."""
    deadline_s = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            answers = consumer.committed(places, timeout=_TIMEOUT_S)
            for at in answers:
                if at.error is not None:
                    raise KafkaException(at.error)
        except KafkaException as error:
            # A broker that has just begun, or one that a group moves to, says so for a moment.
            if error.args[0].code() not in _PASSING or time.monotonic() > deadline_s:
                raise BrokerError(f"group {group}: {error.args[0].str()}") from error
            time.sleep(_LOOK_AGAIN_S)
        else:
            return answers
