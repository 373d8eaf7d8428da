"""What the broker's administration says of partitions and groups: ends, newest times, members."""

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from ops.status.tails import Place
from schemas.kafka.admin import BrokerError
from schemas.kafka.config import Config

_TIMEOUT_S: Final = 10.0
_LOOK_AGAIN_S: Final = 0.1
K = TypeVar("K", bound=Hashable)

_NEWEST: Final = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
_EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]

# A broker that has just created a topic, or is loading a group, says so with these for a moment.
_PASSING: Final = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)


@dataclass(frozen=True, slots=True)
class Extent:
    """First offset and end of a partition, and the largest append time in it; None where it holds no record."""

    low: int
    end: int
    newest_ms: int | None


class Positions:
    """Asks for many partitions and groups at once."""

    def __init__(self, config: Config) -> None:
        self._client = AdminClient(config)

    def partitions(self) -> dict[str, int]:
        """Topics on the broker with their number of partitions; raises BrokerError when it does not answer."""
        try:
            topics = self._client.list_topics(timeout=_TIMEOUT_S).topics
        except KafkaException as error:
            raise BrokerError(f"no answer from the broker: {error.args[0].str()}") from error
        return {name: len(topic.partitions) for name, topic in topics.items()}

    def extents(self, places: Iterable[Place]) -> dict[Place, Extent]:
        """Extent of each partition; raises BrokerError."""
        wanted = [TopicPartition(*place) for place in places]

        def ask(client: AdminClient) -> "dict[tuple[OffsetSpec, Place], Future[Any]]":
            return {
                (spec, (at.topic, at.partition)): future
                for spec in (_NEWEST, _EARLIEST, _LATEST)
                for at, future in client.list_offsets(dict.fromkeys(wanted, spec), request_timeout=_TIMEOUT_S).items()
            }

        answers = self._answers(ask)
        return {
            place: Extent(
                low=_said(answers[_EARLIEST, place], _name(place)).offset,
                end=_said(future, _name(place)).offset,
                newest_ms=_timestamp(answers[_NEWEST, place]),
            )
            for (spec, place), future in answers.items()
            if spec is _LATEST
        }

    def offsets_at(self, places: Iterable[Place], time_ms: int) -> dict[Place, int | None]:
        """First offset appended at or after a time in each partition; None where nothing was. Raises BrokerError."""
        wanted = dict.fromkeys((TopicPartition(*place) for place in places), OffsetSpec.for_timestamp(time_ms))
        answers = self._answers(
            lambda client: {
                (at.topic, at.partition): future
                for at, future in client.list_offsets(wanted, request_timeout=_TIMEOUT_S).items()
            }
        )
        offsets = {place: _said(future, _name(place)).offset for place, future in answers.items()}
        return {place: offset if offset >= 0 else None for place, offset in offsets.items()}

    def num_members(self, groups: Sequence[str]) -> dict[str, int | None]:
        """Members of each group; None where the broker does not let one look."""
        answers = self._answers(
            lambda client: client.describe_consumer_groups(list(groups), request_timeout=_TIMEOUT_S)
        )
        return {
            group: len(future.result().members) if future.exception() is None else _members_of_unknown(future)
            for group, future in answers.items()
        }

    def _answers(self, ask: "Callable[[AdminClient], Mapping[K, Future[Any]]]") -> "Mapping[K, Future[Any]]":
        """Futures that are done; asks again while the broker is only getting ready. Raises BrokerError.

        All are waited for, whatever one of them says: a client that goes before its futures are done takes the process
        with it.
        """
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            answers = ask(self._client)
            # The client's own limit ends each of them before this.
            _, open_ = wait(answers.values(), timeout=2 * _TIMEOUT_S)
            if open_:
                raise BrokerError(f"no answer from the broker within {2 * _TIMEOUT_S:g} s")
            if time.monotonic() > deadline or not any(_code(future) in _PASSING for future in answers.values()):
                return answers
            time.sleep(_LOOK_AGAIN_S)
            # A client that has cached "no leader" for a topic goes on saying so until it looks again. It must not be
            # another client: the last callback of this one may still be running, and would end it from inside.
            self.partitions()


def _code(future: "Future[Any]") -> int | None:
    error = future.exception()
    if error is None:
        return None
    if not isinstance(error, KafkaException):
        raise error
    return int(error.args[0].code())


def _said(future: "Future[Any]", what: str) -> Any:
    """Answer of a future that is done; raises BrokerError."""
    error = future.exception()
    if isinstance(error, KafkaException):
        raise BrokerError(f"{what}: {error.args[0].str()}") from error
    return future.result()


def _timestamp(future: "Future[Any]") -> int | None:
    """Largest append time; None in an empty partition, and of a broker too old to be asked (before Kafka 3.0)."""
    if _code(future) is not None:
        return None
    time_ms: int = future.result().timestamp
    return time_ms if time_ms >= 0 else None


def _members_of_unknown(future: "Future[Any]") -> int | None:
    """A group that never was has no members; of one that may not be described they are unknown."""
    return 0 if _code(future) == KafkaError.GROUP_ID_NOT_FOUND else None


def _name(place: Place) -> str:
    return f"{place[0]}[{place[1]}]"
