"""Topics on a broker against the contract: create what is missing, name each difference."""

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from schemas.topics import Namespace, PlannedTopic, planned_topics

_SERVED_TIMEOUT_S: Final = 30.0
_LOOK_AGAIN_S: Final = 0.1
_LOOK_S: Final = 0.5


class BrokerError(Exception):
    """The broker is away or refused an administrative request; one line for the user."""


@dataclass(frozen=True)
class TopicDifference:
    """One way in which a topic on the broker is not what the contract says."""

    topic: str
    setting: str
    expected: str
    actual: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.setting} is {self.actual}, should be {self.expected}"


class TopicAdmin:
    """Creates, lists and checks the topics of one pipeline. Keeps its AdminClient until its futures are done."""

    def __init__(self, config: dict[str, Any], *, timeout_s: float = 15.0) -> None:
        self._config = config
        self._client = AdminClient(config)
        self._bootstrap = config.get("bootstrap.servers", "")
        self._timeout_s = timeout_s

    def existing(self) -> dict[str, int]:
        """Topics on the broker with their number of partitions; raises BrokerError when it does not answer."""
        try:
            topics = self._client.list_topics(timeout=self._timeout_s).topics
        except KafkaException as error:
            raise BrokerError(f"no answer from the broker at {self._bootstrap}: {error.args[0].str()}") from error
        return {name: len(topic.partitions) for name, topic in topics.items()}

    def require(self, topics: Iterable[str]) -> dict[str, int]:
        """Number of partitions of each topic; raises BrokerError naming those that do not exist."""
        existing = self.existing()
        wanted = sorted(topics)
        missing = [name for name in wanted if name not in existing]
        if missing:
            raise BrokerError(f"the broker has no topic {', '.join(missing)}; run `intertidal topics create`")
        return {name: existing[name] for name in wanted}

    def create(self, namespace: Namespace, *, replication_factor: int = -1) -> list[str]:
        """Create the planned topics that do not exist and return their names once they are served.

        Raises BrokerError.
        """
        return self.create_planned(planned_topics(namespace), replication_factor=replication_factor)

    def create_planned(self, topics: Iterable[PlannedTopic], *, replication_factor: int = -1) -> list[str]:
        """Create those of the topics that do not exist, as ``create`` does."""
        existing = self.existing()
        missing = [planned for planned in topics if planned.name not in existing]
        if not missing:
            return []
        futures = self._client.create_topics(
            [_new_topic(planned, replication_factor) for planned in missing], request_timeout=self._timeout_s
        )
        created = []
        for name, future in futures.items():
            try:
                future.result(self._timeout_s)
            except KafkaException as error:
                # Another process may create the same topics at the same time.
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise BrokerError(f"cannot create {name}: {error.args[0].str()}") from error
            else:
                created.append(name)
        self.wait_until_served({planned.name: planned.num_partitions for planned in missing})
        return created

    def delete(self, namespace: Namespace) -> None:
        """Delete every topic of a namespace; refuses the live one. Raises ValueError or BrokerError."""
        if not namespace.prefix:
            raise ValueError("only the topics of a namespace with a prefix are deleted")
        names = [name for name in self.existing() if name.startswith(namespace.prefix)]
        if not names:
            return
        for name, future in self._client.delete_topics(names, request_timeout=self._timeout_s).items():
            try:
                future.result(self._timeout_s)
            except KafkaException as error:
                raise BrokerError(f"cannot delete {name}: {error.args[0].str()}") from error

    def wait_until_served(self, num_partitions: Mapping[str, int]) -> None:
        """Return once the broker answers as the leader of every partition of the topics; raises BrokerError.

        A new topic is in the metadata before the broker serves it. An idempotent producer that starts in between can
        lose a batch: the first is refused ("not leader"), the second, in flight behind it, is accepted as the first
        that the partition sees of this producer, and the retry of the first is then taken for a duplicate.
        """
        places = [TopicPartition(topic, p) for topic, count in num_partitions.items() for p in range(count)]
        began_s = time.monotonic()
        # A look at a topic that has no leader yet lasts for seconds inside the client: rather look again. Only where
        # that does not help, as with many topics on a slow broker, is a look given its time.
        look_s = _LOOK_S
        while places := self._not_served(places, timeout_s=look_s):
            waited_s = time.monotonic() - began_s
            if waited_s > _SERVED_TIMEOUT_S:
                raise BrokerError(f"the broker does not serve {places[0].topic} after {_SERVED_TIMEOUT_S:g} s")
            if waited_s > _SERVED_TIMEOUT_S / 3.0:
                look_s = self._timeout_s
            time.sleep(_LOOK_AGAIN_S)

    def _not_served(self, places: list[TopicPartition], *, timeout_s: float) -> list[TopicPartition]:
        # A client of its own for each look: one that has cached "no leader" for a topic may go on saying so.
        client = AdminClient(self._config)
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        futures = client.list_offsets(dict.fromkeys(places, latest), request_timeout=timeout_s) if places else {}
        return [place for place, future in futures.items() if not _succeeded(future)]

    def differences(self, namespace: Namespace) -> Iterator[TopicDifference]:
        """Each way in which the broker's topics differ from the contract; raises BrokerError."""
        existing = self.existing()
        planned = list(planned_topics(namespace))
        present = [topic for topic in planned if topic.name in existing]
        configs = self._configs([topic.name for topic in present])
        for topic in planned:
            if topic.name not in existing:
                yield TopicDifference(topic.name, "topic", "present", "missing")
                continue
            if existing[topic.name] != topic.num_partitions:
                yield TopicDifference(topic.name, "partitions", str(topic.num_partitions), str(existing[topic.name]))
            for setting, expected in topic.config.items():
                actual = configs[topic.name].get(setting, "unset")
                if actual != expected:
                    yield TopicDifference(topic.name, setting, expected, actual)

    def _configs(self, names: list[str]) -> dict[str, dict[str, str]]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        if not resources:
            return {}
        configs = {}
        for resource, future in self._client.describe_configs(resources).items():
            try:
                entries = future.result(self._timeout_s)
            except KafkaException as error:
                raise BrokerError(f"cannot describe {resource.name}: {error.args[0].str()}") from error
            configs[resource.name] = {name: entry.value for name, entry in entries.items()}
        return configs


def _new_topic(planned: PlannedTopic, replication_factor: int) -> NewTopic:
    return NewTopic(
        planned.name,
        num_partitions=planned.num_partitions,
        replication_factor=replication_factor,
        config=planned.config,
    )


def _succeeded(future: "Future[Any]") -> bool:
    try:
        future.result()
    except KafkaException:
        return False
    return True
