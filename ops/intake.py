"""A record held against what its own readers believe, before it is sent: the very checks that they make. Pure.

So nothing is sent that would come back as a dead letter: not by `intertidal send`, and not when one is redriven.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from ops.status.believe import Believer
from ranking.consumer.task import IntakeLimits, Moment, task_of
from ranking.router.events import Intake as RequestIntake
from ranking.router.intake import refusal
from ranking.router.policy import RouterPolicy
from schemas.attribution_keys import UNSIGNED, AttributionKeys
from schemas.dead_letters import RawRecord
from schemas.epochs import epoch_of
from schemas.errors import RecordError
from schemas.framing import Decoder
from schemas.partition import partition_for
from schemas.records import CellDeclaration, ClockRecord, RankingRequest, RankingWork
from schemas.settings import MeasurementSettings, TimeSettings
from schemas.topics import (
    CONTROL_CELLS,
    CONTROL_TARGETS,
    CONTROL_WINDOWS,
    FLEET_CAPACITY,
    RANKING_ANSWERS,
    RANKING_OUTCOMES,
    RANKING_REQUESTS,
    RANKING_RESULTS,
    SERVING_LATENCY,
    TOPICS,
    WORK_BY_ROUTE,
    Topic,
)
from streams.ingest.aggregate import Kind
from streams.ingest.capacity import CapacityKind
from streams.ingest.cells import Cells
from streams.ingest.latency import LatencyKind
from streams.ingest.outcomes import OutcomesKind
from streams.ingest.partition import PartitionProcessor
from streams.ingest.partition import RawRecord as RawTopicRecord
from streams.ingest.results import ResultsKind

BY_NAME: Final[Mapping[str, Topic]] = {topic.name: topic for topic in TOPICS}
# What ingest reads, and refuses where it is of an undeclared cell.
_INGESTED: Final = frozenset(
    topic.name for topic in (FLEET_CAPACITY, SERVING_LATENCY, RANKING_RESULTS, RANKING_OUTCOMES)
)
_ROUTES: Final[Mapping[str, Any]] = {topic.name: route for route, topic in WORK_BY_ROUTE.items()}
_POLICY: Final = RouterPolicy()
# Whether work is too late is for its replica to say: no time counts here.
_ANY_MOMENT: Final = Moment(now_ns=0, broker_ms=0.0)


def needs_cells(topic: Topic) -> bool:
    """Whether a topic's reader refuses records of undeclared cells."""
    return topic.name in _INGESTED


def key_of(topic: Topic, record: Struct) -> bytes | None:
    """The key that a record has on a topic; None where its sender chooses the partition."""
    fields: Any = record
    match topic.key:
        case _ if isinstance(record, ClockRecord):
            return None
        case "cell":
            return str(fields.cell).encode()
        case "user":
            return str(fields.user_id).encode()
        case "cell/accelerator":
            return f"{fields.cell}/{fields.accelerator}".encode()
        case "cell/segment":
            return f"{fields.cell}/{fields.segment}".encode()
        case "none":
            return None


class Intake:
    """Takes records in as their readers would.

    ``num_partitions`` by the contract's names of topics; ``declarations`` are the cells that ingest would know, and
    ``keys`` what it verifies attribution tokens with.
    """

    def __init__(
        self,
        num_partitions: Mapping[str, int],
        *,
        time: TimeSettings,
        declarations: Iterable[CellDeclaration] = (),
        keys: AttributionKeys = UNSIGNED,
    ) -> None:
        self._num_partitions = num_partitions
        self._time = time
        self._cells = Cells(window_ms=time.window_ms)
        for declaration in declarations:
            self._cells.declare(declaration)
        self._believer = Believer(num_partitions=num_partitions[CONTROL_WINDOWS.name], time=time)
        self._decoders = {topic.name: Decoder(topic.record_types) for topic in TOPICS}
        # How outcomes are counted has no part in which are refused.
        counted = MeasurementSettings()
        kinds: tuple[Kind, ...] = (CapacityKind(), LatencyKind(), ResultsKind(counted), OutcomesKind(counted, keys))
        self._kinds = {kind.topic.name: kind for kind in kinds}

    def num_partitions(self, topic: Topic) -> int:
        """Partitions of a topic."""
        return self._num_partitions[topic.name]

    def check(self, topic: Topic, raw: RawRecord) -> Struct:
        """The record; raises RecordError with the reason why its reader would refuse it.

        ``raw`` has the partition that it is meant for, and a time not after that of its append.
        """
        record = self._decoders[topic.name].decode(raw.value)
        epoch_of(raw.headers)
        if topic.name in self._kinds:
            self._check_by_ingest(topic, raw)
        elif topic is CONTROL_WINDOWS or topic is CONTROL_TARGETS:
            self._believer.read(topic, raw)
            self._check_key(topic, record, raw)
        elif topic is CONTROL_CELLS:
            Cells(window_ms=self._time.window_ms).read(raw.key, raw.value)
        elif isinstance(record, RankingRequest):
            self._check_request(record, raw)
        elif isinstance(record, RankingWork):
            self._check_work(topic, record, raw)
        else:
            self._check_key(topic, record, raw)
        return record

    def _check_by_ingest(self, topic: Topic, raw: RawRecord) -> None:
        """Drive ingest's own processor, of this record alone: what came before it is no reason to refuse one."""
        processor = PartitionProcessor(
            self._kinds[topic.name],
            raw.partition,
            num_partitions=self._num_partitions[topic.name],
            time=self._time,
            cells=self._cells,
        )
        for refused in processor.process([RawTopicRecord(0, raw.timestamp_ms, raw.key, raw.value)]).refusals:
            raise refused.error

    def _check_request(self, request: RankingRequest, raw: RawRecord) -> None:
        taken = RequestIntake(
            partition=raw.partition, offset=0, key=raw.key, append_ms=raw.timestamp_ms, record=request
        )
        refused = refusal(
            taken,
            request,
            num_partitions=self._num_partitions[RANKING_REQUESTS.name],
            skew_ms=_POLICY.skew_ms,
        )
        if refused is not None:
            raise refused

    def _check_work(self, topic: Topic, work: RankingWork, raw: RawRecord) -> None:
        task_of(
            work,
            route=_ROUTES[topic.name],
            partition=raw.partition,
            append_ms=raw.timestamp_ms,
            moment=_ANY_MOMENT,
            limits=IntakeLimits(num_reply_partitions=self._num_partitions[RANKING_ANSWERS.name], margin_ms=0.0),
        )

    def _check_key(self, topic: Topic, record: Struct, raw: RawRecord) -> None:
        """What the contract says of the keys of topics whose readers do not look at them."""
        key = key_of(topic, record)
        if key is None:
            return
        if raw.key != key:
            raise RecordError("key_mismatch", f"the key is {raw.key!r}, should be {key!r}", field=_key_field(topic))
        expected = partition_for(key, self._num_partitions[topic.name])
        if raw.partition != expected:
            raise RecordError(
                "wrong_partition",
                f"in partition {raw.partition}, the key leads to {expected}",
                field=_key_field(topic),
            )


def _key_field(topic: Topic) -> str:
    return "user_id" if topic.key == "user" else "cell"
