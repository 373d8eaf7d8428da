"""One look at a running pipeline: topics and groups in, a status out. Reads tails of bounded length, never a topic."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Self

from ops.dlq.marks import Marks, MarksError, letters_group, marks_of
from ops.replay.runs import Runs
from ops.status.build import DeadLetterFacts, PartFacts, Readings, build_status, pipeline_window_ms
from ops.status.commits import Commit, Commits
from ops.status.model import ReplayStatus, Status
from ops.status.parts import PartitionFacts, parts_of, position
from ops.status.positions import Extent, Positions
from ops.status.recent import RecentReader
from ops.status.tails import Place, Span, Tails
from schemas.kafka.admin import BrokerError
from schemas.kafka.config import Config
from schemas.settings import TimeSettings
from schemas.topics import TOPICS, Namespace, Topic


class Looker:
    """Looks at one pipeline as often as asked; joins no group and commits nothing."""

    def __init__(self, config: Config, namespace: Namespace, time_settings: TimeSettings) -> None:
        self._namespace = namespace
        self._time = time_settings
        self._positions = Positions(config)
        self._commits = Commits(config)
        self._tails = Tails(config)
        self._runs = Runs(config, namespace)
        self._num_letters: dict[str, int] = {}

    def close(self) -> None:
        self._tails.close()
        self._commits.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def look(self) -> Status:
        """The pipeline now; raises BrokerError naming what is missing.

        1. the topics are there; 2. where each partition begins and ends; 3. what the groups have committed, after
        their topics' ends, so that the time between shows no lag; 4. the tails; 5. the first record that each part has
        not done; 6. all of it put together.
        """
        topics = {topic.name: topic for topic in TOPICS}
        num_partitions = self._num_partitions(topics.values())  # 1
        parts = parts_of(self._namespace)
        places = {
            name: [(self._namespace.topic(topic), number) for number in range(num_partitions[name])]
            for name, topic in topics.items()
        }
        letters = {
            name: [
                (self._namespace.dead_letters(topic), number) for number in range(num_partitions[topic.dead_letters])
            ]
            for name, topic in topics.items()
        }
        extents = self._positions.extents(  # 2
            place for of_topic in (*places.values(), *letters.values()) for place in of_topic
        )
        # Everything is told as of these ends, however long the reading takes.
        now_ms = time.time_ns() // 1_000_000
        by_group: dict[str, list[Place]] = {}
        letter_groups = {
            name: letters_group(self._namespace, topics[name])
            for name, of_topic in letters.items()
            if any(extents[place].end > extents[place].low for place in of_topic)
        }
        for part in parts:
            by_group.setdefault(part.group, []).extend(places[part.topic.name])
        commits = self._commits.read(  # 3
            by_group | {group: letters[name] for name, group in letter_groups.items()}
        )
        members = self._positions.num_members(list(by_group))
        facts = RecentReader(  # 4
            self._tails, self._positions, places=places, extents=extents, time=self._time
        ).read()
        window_ms = pipeline_window_ms(facts, default=self._time.window_ms)
        known = [
            PartFacts(
                part=part,
                num_members=members[part.group],
                partitions=[
                    _partition(place, extents[place], commits[part.group].get(place))
                    for place in places[part.topic.name]
                ],
            )
            for part in parts
        ]
        known = self._with_first_times(known, window_ms=window_ms)  # 5
        readings = Readings(  # 6
            facts=facts,
            parts=known,
            dead_letters=[
                _dead_letters(letters[name], extents, commits[group]) for name, group in letter_groups.items()
            ],
            num_letters_before=self._num_letters,
            replays=list(self._replays()),
        )
        status = build_status(readings, self._namespace, time=self._time, now_ms=now_ms)
        self._num_letters = {found.topic: found.count for found in readings.dead_letters}
        return status

    def _num_partitions(self, topics: Iterable[Topic]) -> dict[str, int]:
        """Partitions of each topic and its dead letters, by the names of the contract."""
        existing = self._positions.partitions()
        wanted = [name for topic in topics for name in (topic.name, topic.dead_letters)]
        missing = [name for name in wanted if self._namespace.prefix + name not in existing]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise BrokerError(
                f"the broker has no topic {self._namespace.prefix}{missing[0]}{more}: run `intertidal topics create`, "
                "or set INTERTIDAL_NAMESPACE to the pipeline's"
            )
        return {name: existing[self._namespace.prefix + name] for name in wanted}

    def _replays(self) -> Iterator[ReplayStatus]:
        """Replays of this pipeline that are not done."""
        for run in self._runs.list():
            if run.state != "done":
                yield ReplayStatus(
                    run=run.run,
                    state=run.state,
                    parts=run.parts,
                    num_records=run.num_records,
                    num_read=run.num_read,
                    detail=run.detail,
                )

    def _with_first_times(self, known: list[PartFacts], *, window_ms: int) -> list[PartFacts]:
        """The same with the append time of the first record that each part has not done in each partition."""
        spans: dict[Place, Span] = {}
        for part in known:
            for at in part.partitions:
                done = position(part.part, at.committed, at.metadata, window_ms=window_ms).offset
                start = max(done or 0, at.low)
                spans[self._namespace.topic(part.part.topic), at.partition] = Span(
                    start=start, end=at.end, num_records=1
                )
        first_ms = {
            (message.topic(), message.partition()): message.timestamp()[1] for message in self._tails.read(spans)
        }
        return [
            replace(
                part,
                partitions=[
                    replace(at, first_ms=first_ms.get((self._namespace.topic(part.part.topic), at.partition)))
                    for at in part.partitions
                ],
            )
            for part in known
        ]


def _partition(place: Place, extent: Extent, commit: Commit | None) -> PartitionFacts:
    return PartitionFacts(
        partition=place[1],
        low=extent.low,
        end=extent.end,
        committed=None if commit is None else commit.offset,
        metadata=None if commit is None else commit.metadata,
        newest_ms=extent.newest_ms,
    )


def _dead_letters(
    places: Sequence[Place], extents: Mapping[Place, Extent], commits: Mapping[Place, Commit]
) -> DeadLetterFacts:
    times = [ms for place in places if (ms := extents[place].newest_ms) is not None]
    return DeadLetterFacts(
        topic=places[0][0],
        count=sum(extents[place].end - extents[place].low for place in places),
        num_open=sum(_marks(commits.get(place)).num_open(extents[place].low, extents[place].end) for place in places),
        newest_ms=max(times, default=None),
    )


def _marks(commit: Commit | None) -> Marks:
    """Which letters are done; none where the commit is of somebody else, as `intertidal dlq` will say."""
    try:
        return Marks() if commit is None else marks_of(commit.offset, commit.metadata)
    except MarksError:
        return Marks()
