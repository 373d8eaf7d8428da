"""From a record of a topic that is looked at to what may be believed of it. Pure."""

from msgspec import Struct

from ranking.client.target_table import doubt
from schemas.dead_letters import RawRecord
from schemas.framing import Decoder
from schemas.records import CandidateTarget
from schemas.settings import TimeSettings
from schemas.topics import (
    CAPACITY_POOLS,
    CONTROL_CELLS,
    CONTROL_TARGETS,
    CONTROL_WINDOWS,
    SEGMENT_UPLIFT,
    SERVING_LATENCY,
    Topic,
)
from streams.control.believe import believed


class Believer:
    """Reads records as their own readers do: windows as control, targets as the routers."""

    def __init__(self, *, num_partitions: int, time: TimeSettings) -> None:
        """``num_partitions`` is that of control.windows."""
        self._num_partitions = num_partitions
        self._skew_ms = time.skew_ms
        self._decoders = {
            topic.name: Decoder(topic.record_types)
            for topic in (CONTROL_CELLS, CONTROL_TARGETS, CAPACITY_POOLS, SERVING_LATENCY, SEGMENT_UPLIFT)
        }

    def read(self, topic: Topic, raw: RawRecord) -> Struct:
        """The record; raises RecordError with the reason why it is refused."""
        if topic is CONTROL_WINDOWS:
            return believed(raw, num_partitions=self._num_partitions, skew_ms=self._skew_ms)
        record = self._decoders[topic.name].decode(raw.value)
        if isinstance(record, CandidateTarget):
            refused = doubt(record, key=raw.key, append_ms=raw.timestamp_ms)
            if refused is not None:
                raise refused
        return record
