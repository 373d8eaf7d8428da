"""A dead-letter topic on a broker: read without a group, worked on by one at a time, who holds its group."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final, Self

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from ops.dlq.letters import Letter, letter_of
from ops.dlq.marks import Marks, Run, letters_group, marks_of, read_back
from ops.dlq.redrive import Place, Redriven, place_in
from ops.errors import UserError
from ops.status.commits import Commits
from ops.status.positions import Extent, Positions
from ops.status.tails import Span, Tails
from schemas.dead_letters import dead_letter_key
from schemas.kafka.admin import BrokerError
from schemas.kafka.config import Config, consumer_config, producer_config
from schemas.kafka.dead_letters import message_headers
from schemas.kafka.producer import DeliveryError, DurableProducer
from schemas.kafka.ranges import offsets_at, watermarks
from schemas.records import DeadLetter
from schemas.topics import Namespace, Topic

_JOIN_TIMEOUT_S: Final = 30.0
# Of brokers among each other: append times of one topic come from several.
_CLOCKS_MS: Final = 60_000
_MEMBERSHIP: Final[Config] = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 2_000}


class BusyError(UserError):
    """Somebody else works on the same dead letters."""


class LetterLog:
    """The dead letters of one topic, and the way back into it. Reading changes nothing; all else needs `hold` first."""

    def __init__(self, config: Config, namespace: Namespace, topic: Topic) -> None:
        """Look where the topics begin and end; raises BrokerError where they are missing."""
        self._config = config
        self._letters_topic = namespace.dead_letters(topic)
        self._topic = namespace.topic(topic)
        self._group = letters_group(namespace, topic)
        self._positions = Positions(config)
        existing = self._positions.partitions()
        for name in (self._letters_topic, self._topic):
            if name not in existing:
                raise BrokerError(f"topic {name} is missing: run `intertidal topics create`")
        self._num_partitions = existing[self._topic]
        self._numbers = range(existing[self._letters_topic])
        self.extents: dict[int, Extent] = {}
        self._look()
        self._tails = Tails(config)
        self._holder: Consumer | None = None
        self._has_lost = False
        self._producer: DurableProducer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._tails.close()
        if self._holder is not None:
            self._holder.close()

    def marks(self) -> dict[int, Marks]:
        """Which letters are done, by partition; raises MarksError, BrokerError."""
        commits = Commits(self._config)
        try:
            places = [(self._letters_topic, number) for number in self._numbers]
            found = commits.read({self._group: places})[self._group]
        finally:
            commits.close()
        marks = {
            number: marks_of(commit.offset, commit.metadata)
            for number in self._numbers
            if (commit := found.get((self._letters_topic, number))) is not None
        }
        if len(marks) < len(self._numbers):
            marks = self._noted() | marks
        for number, held in marks.items():
            held.forget_before(self.extents[number].low)
        return marks

    def _noted(self) -> dict[int, Marks]:
        """Marks of the last note in the log: of a group that was silent for a week the broker knows no commit."""
        fresh = {number: Marks() for number in self._numbers}
        last = max(
            (letter for letter in self.letters(fresh) if letter.is_note),
            key=lambda note: note.append_ms,
            default=None,
        )
        if last is None or last.letter is None:
            return fresh
        noted = fresh | read_back(last.letter.value)
        noted[last.partition].mark(last.offset)
        return noted

    def letters(self, marks: Mapping[int, Marks]) -> Iterator[Letter]:
        spans = {
            (self._letters_topic, number): Span(
                start=max(self.extents[number].low, held.position), end=self.extents[number].end
            )
            for number, held in marks.items()
        }
        for message in self._tails.read(spans):
            yield _letter(message)

    def at(self, partition: int, offset: int) -> Letter | None:
        """One letter; None where the log holds none there."""
        span = {(self._letters_topic, partition): Span(start=offset, end=offset + 1)}
        extent = self.extents.get(partition)
        if extent is None or not extent.low <= offset < extent.end:
            return None
        return next((_letter(message) for message in self._tails.read(span)), None)

    def hold(self, producer: DurableProducer) -> dict[int, Marks]:
        """Become the only one who works on these letters, and return the marks; raises BusyError, BrokerError."""
        self._producer = producer
        # Somebody else may have just finished: whoever is here now has committed before it left.
        holder = self._holder = Consumer(consumer_config(self._config, self._group, **_MEMBERSHIP))
        assigned: list[TopicPartition] = []

        def take(consumer: Consumer, places: list[TopicPartition]) -> None:
            assigned.extend(places)
            consumer.assign(places)
            # It holds them; reading is the work of another consumer.
            consumer.pause(places)

        def lose(_: Consumer, __: list[TopicPartition]) -> None:
            self._has_lost = True
            # Whoever comes next reads back what was sent: it must be there by then.
            with suppress(DeliveryError):
                producer.drain()

        holder.subscribe([self._letters_topic], on_assign=take, on_revoke=lose, on_lost=lose)
        deadline_s = time.monotonic() + _JOIN_TIMEOUT_S
        while not assigned and time.monotonic() < deadline_s:
            holder.poll(0.1)
        if len(assigned) < len(self._numbers):
            raise BusyError(f"group {self._group} has another member: one works on {self._letters_topic} at a time")
        self._look()
        return self.marks()

    def newest_ms(self) -> int:
        return max((extent.newest_ms or 0 for extent in self._extents(self._topic, self._num_partitions)), default=0)

    def sent_by(self, run: Run) -> Iterable[Place]:
        consumer = Consumer(consumer_config(self._config, f"{self._group}.read"))
        try:
            spans = watermarks(consumer, self._topic, range(self._num_partitions))
            starts = offsets_at(consumer, self._topic, spans, run.since_ms - _CLOCKS_MS)
        finally:
            consumer.close()
        wanted = {(self._topic, number): Span(start=starts[number], end=high) for number, (_, high) in spans.items()}
        with Tails(self._config) as tails:
            for message in tails.read(wanted):
                place = place_in(message_headers(message), run.name)
                if place is not None and place[0] in self._numbers:
                    yield place

    def send(self, record: Redriven, *, on_acked: Callable[[], None]) -> None:
        assert self._producer is not None, "held before anything is sent"
        self._check_held()
        self._producer.send(
            self._topic,
            record.value or b"",
            key=record.key,
            partition=record.partition,
            headers=record.headers,
            on_delivered=lambda _: on_acked(),
        )
        self._producer.poll()

    def note(self, letter: DeadLetter) -> Place:
        assert self._producer is not None, "held before anything is noted"
        places: list[Place] = []

        def noted(message: Message) -> None:
            places.append((message.partition() or 0, message.offset() or 0))

        self._producer.send(self._letters_topic, letter, key=dead_letter_key(letter), on_delivered=noted)
        self._producer.drain()
        return places[0]

    def drain(self) -> None:
        assert self._producer is not None, "held before anything is sent"
        self._producer.drain()

    def commit(self, marks: Mapping[int, Marks]) -> None:
        assert self._holder is not None, "held before anything is committed"
        self._check_held()
        places = [
            TopicPartition(self._letters_topic, number, held.position, held.metadata())
            for number, held in marks.items()
        ]
        try:
            for place in self._holder.commit(offsets=places, asynchronous=False) or ():
                if place.error is not None:
                    raise KafkaException(place.error)
        except KafkaException as error:
            raise BrokerError(f"group {self._group}: {error.args[0].str()}") from error

    def _check_held(self) -> None:
        assert self._holder is not None, "held before the work begins"
        with suppress(KafkaException):
            self._holder.poll(0.0)
        if self._has_lost:
            raise BusyError(f"group {self._group} has a new member: what is marked stays so, start again to go on")

    def _look(self) -> None:
        self.extents = dict(enumerate(self._extents(self._letters_topic, len(self._numbers))))

    def _extents(self, name: str, num_partitions: int) -> list[Extent]:
        places = [(name, number) for number in range(num_partitions)]
        found = self._positions.extents(places)
        return [found[place] for place in places]


def dead_letter_producer(config: Config) -> DurableProducer:
    """What sends records again, and notes what is given up."""
    return DurableProducer(producer_config(config))


def _letter(message: Message) -> Letter:
    return letter_of(
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        append_ms=message.timestamp()[1],
        value=message.value(),
    )
