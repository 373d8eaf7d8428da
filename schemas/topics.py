"""Every topic of the pipeline: the only place where its name, key, partitions, cleanup, time and records stand."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from schemas.framing import DEAD_LETTER_MAX_BYTES
from schemas.records import (
    CandidateTarget,
    CapacityEvent,
    CellDeclaration,
    ClockRecord,
    ControllerSnapshot,
    ControlWindow,
    DeadLetter,
    LatencyInterval,
    PoolSnapshot,
    PrecomputeJob,
    PrecomputeResult,
    RankingAnswer,
    RankingOutcome,
    RankingRequest,
    RankingResult,
    RankingWork,
    SegmentUplift,
)
from schemas.records.fields import Route

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

CONTROL_PARTITIONS = 8
REQUEST_PARTITIONS = 8
WORK_PARTITIONS = 8
DEAD_LETTER_PARTITIONS = 1

KeyKind = Literal["cell", "cell/accelerator", "cell/segment", "user", "none"]


@dataclass(frozen=True, kw_only=True)
class Topic:
    """One topic as the contract has it.

    ``key`` says what the key is made of (``none``: the producer chooses the partition). ``append_time`` topics carry
    the broker's time. ``dead_letters`` names the topic that takes what cannot be read or believed.
    """

    name: str
    key: KeyKind
    record_types: tuple[type[Struct], ...]
    num_partitions: int
    compacted: bool = False
    retention_ms: int = 7 * DAY_MS
    append_time: bool = True
    purpose: str

    @property
    def dead_letters(self) -> str:
        return f"{self.name}.dlq"

    def config(self) -> dict[str, str]:
        """Topic settings as the broker names them."""
        settings = {"message.timestamp.type": "LogAppendTime" if self.append_time else "CreateTime"}
        if self.compacted:
            settings |= {"cleanup.policy": "compact"}
        else:
            settings |= {"cleanup.policy": "delete", "retention.ms": str(self.retention_ms)}
        return settings


FLEET_CAPACITY = Topic(
    name="fleet.capacity",
    key="cell",
    record_types=(CapacityEvent, ClockRecord),
    num_partitions=CONTROL_PARTITIONS,
    purpose="Capacity events of one host: offer, update, reclaim, heartbeat, notice",
)
SERVING_LATENCY = Topic(
    name="serving.latency",
    key="cell",
    record_types=(LatencyInterval, ClockRecord),
    num_partitions=CONTROL_PARTITIONS,
    purpose="Metrics of one router or replica for one interval",
)
CONTROL_CELLS = Topic(
    name="control.cells",
    key="cell",
    record_types=(CellDeclaration,),
    num_partitions=1,
    compacted=True,
    purpose="Which cells exist, from which window on, with their limits",
)
CONTROL_WINDOWS = Topic(
    name="control.windows",
    key="cell",
    record_types=(ControlWindow,),
    num_partitions=CONTROL_PARTITIONS,
    retention_ms=90 * DAY_MS,
    purpose="Closed event-time windows and operators' commands",
)
CONTROL_STATE = Topic(
    name="control.state",
    key="cell",
    record_types=(ControllerSnapshot,),
    num_partitions=CONTROL_PARTITIONS,
    retention_ms=90 * DAY_MS,
    purpose="Snapshots of controllers, from which a replay can start",
)
CONTROL_TARGETS = Topic(
    name="control.targets",
    key="cell",
    record_types=(CandidateTarget,),
    num_partitions=1,
    compacted=True,
    purpose="The current target of each cell with reason, manifest and expiry",
)
CAPACITY_POOLS = Topic(
    name="capacity.pools",
    key="cell/accelerator",
    record_types=(PoolSnapshot,),
    num_partitions=CONTROL_PARTITIONS,
    compacted=True,
    purpose="Pool snapshots: usable and unusable units, causes, offers and reclaims",
)
RANKING_REQUESTS = Topic(
    name="ranking.requests",
    key="user",
    record_types=(RankingRequest,),
    num_partitions=REQUEST_PARTITIONS,
    purpose="Intake: requests for a ranking",
)
RANKING_WORK_BASELINE = Topic(
    name="ranking.work.baseline",
    key="none",
    record_types=(RankingWork,),
    num_partitions=WORK_PARTITIONS,
    retention_ms=HOUR_MS,
    purpose="Base work of every request, for dedicated replicas",
)
RANKING_WORK_WIDE = Topic(
    name="ranking.work.wide",
    key="none",
    record_types=(RankingWork,),
    num_partitions=WORK_PARTITIONS,
    retention_ms=HOUR_MS,
    purpose="Extra candidates, for opportunistic replicas",
)
RANKING_WORK_POWERFUL = Topic(
    name="ranking.work.powerful",
    key="none",
    record_types=(RankingWork,),
    num_partitions=WORK_PARTITIONS,
    retention_ms=HOUR_MS,
    purpose="Upgrades to the stronger model, for opportunistic replicas",
)
RANKING_ANSWERS = Topic(
    name="ranking.answers",
    key="none",
    record_types=(RankingAnswer,),
    num_partitions=REQUEST_PARTITIONS,
    retention_ms=HOUR_MS,
    purpose="What replicas say, to the partition that the work names",
)
RANKING_RESULTS = Topic(
    name="ranking.results",
    key="user",
    record_types=(RankingResult,),
    num_partitions=REQUEST_PARTITIONS,
    purpose="The final ranking of each request",
)
RANKING_OUTCOMES = Topic(
    name="ranking.outcomes",
    key="user",
    record_types=(RankingOutcome,),
    num_partitions=REQUEST_PARTITIONS,
    purpose="Views, clicks, conversions and their values",
)
SEGMENT_UPLIFT = Topic(
    name="segment.uplift",
    key="cell/segment",
    record_types=(SegmentUplift,),
    num_partitions=CONTROL_PARTITIONS,
    compacted=True,
    purpose="Measured incremental effect of each lever by segment",
)
PRECOMPUTE_JOBS = Topic(
    name="precompute.jobs",
    key="user",
    record_types=(PrecomputeJob,),
    num_partitions=REQUEST_PARTITIONS,
    purpose="Reserved for the third lever: work ahead of the request",
)
PRECOMPUTE_RESULTS = Topic(
    name="precompute.results",
    key="user",
    record_types=(PrecomputeResult,),
    num_partitions=REQUEST_PARTITIONS,
    purpose="Reserved for the third lever: what was made ahead",
)

TOPICS: tuple[Topic, ...] = (
    FLEET_CAPACITY,
    SERVING_LATENCY,
    CONTROL_CELLS,
    CONTROL_WINDOWS,
    CONTROL_STATE,
    CONTROL_TARGETS,
    CAPACITY_POOLS,
    RANKING_REQUESTS,
    RANKING_WORK_BASELINE,
    RANKING_WORK_WIDE,
    RANKING_WORK_POWERFUL,
    RANKING_ANSWERS,
    RANKING_RESULTS,
    RANKING_OUTCOMES,
    SEGMENT_UPLIFT,
    PRECOMPUTE_JOBS,
    PRECOMPUTE_RESULTS,
)

WORK_BY_ROUTE: dict[Route, Topic] = {
    "baseline": RANKING_WORK_BASELINE,
    "wide": RANKING_WORK_WIDE,
    "powerful": RANKING_WORK_POWERFUL,
}

# Changelog of the controllers' table; Faust names it <application id>-<table>-changelog.
CONTROL_APP_ID = "intertidal.control"
CONTROL_TABLE = "controllers"


@dataclass(frozen=True)
class Namespace:
    """Prefix of every topic and group of one pipeline: empty for the live one, ``replay.RUN.`` for a replay."""

    prefix: str = ""

    def topic(self, topic: Topic) -> str:
        return self.prefix + topic.name

    def dead_letters(self, topic: Topic) -> str:
        return self.prefix + topic.dead_letters

    def group(self, part: str) -> str:
        return f"{self.prefix}intertidal.{part}"

    @property
    def control_changelog(self) -> str:
        return f"{self.prefix}{CONTROL_APP_ID}-{CONTROL_TABLE}-changelog"


@dataclass(frozen=True, kw_only=True)
class PlannedTopic:
    """One topic to create: name, partitions, settings."""

    name: str
    num_partitions: int
    config: dict[str, str]


def dead_letter_config() -> dict[str, str]:
    """Settings of every dead-letter topic as the broker names them."""
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(30 * DAY_MS),
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": str(DEAD_LETTER_MAX_BYTES),
    }


def planned_topics(namespace: Namespace) -> Iterator[PlannedTopic]:
    """Every topic of a pipeline as it is created: the contract's topics, their dead letters, the changelog."""
    for topic in TOPICS:
        yield PlannedTopic(name=namespace.topic(topic), num_partitions=topic.num_partitions, config=topic.config())
        yield PlannedTopic(
            name=namespace.dead_letters(topic),
            num_partitions=DEAD_LETTER_PARTITIONS,
            config=dead_letter_config(),
        )
    yield PlannedTopic(
        name=namespace.control_changelog,
        num_partitions=CONTROL_WINDOWS.num_partitions,
        config={"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"},
    )


DEAD_LETTER_TYPES: tuple[type[Struct], ...] = (DeadLetter,)
