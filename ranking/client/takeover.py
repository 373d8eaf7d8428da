"""What the logs say to a new owner of request partitions: where to begin, and what has its result already."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from ops.telemetry.logs import get_log
from ranking.handover import Takeover, results_floor
from schemas.avro import schema_fingerprint
from schemas.errors import RecordError, SchemaPendingError
from schemas.framing import SINGLE_OBJECT_MARKER, Decoder
from schemas.kafka.ranges import read_ranges, watermarks
from schemas.kafka.registry import wait_for_schema
from schemas.kafka.registry_api import RegistryError
from schemas.records import RankingResult

_log = get_log(__name__)

_OWN_FRAME: Final = SINGLE_OBJECT_MARKER + schema_fingerprint(RankingResult)
# More than the length of an id ever takes.
_MAX_VARINT_BITS: Final = 28
_decode = Decoder((RankingResult,)).decode

SCHEMA_TIMEOUT_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Estate:
    """One partition as it is found. ``answers_end`` is the end of its answers; ``answered`` are the ids of requests
    with a result behind the floor; ``is_new`` says that nothing was ever committed."""

    takeover: Takeover
    answers_end: int
    answered: set[str]
    is_new: bool


def read_estates(
    consumer: Consumer,
    config: dict[str, Any],
    numbers: Sequence[int],
    *,
    requests: str,
    answers: str,
    results: str,
    timeout_s: float,
) -> dict[int, Estate]:
    """Each partition as it is found now; raises BrokerError or KafkaException when the broker does not say.

    1. The committed offsets with their metadata, and both ends of requests, answers and results.
    2. The results from the floor in the metadata to their end. Those that are appended later are not seen: whoever asks
       is the only one who appends any.
    """
    # 1.
    asked = [TopicPartition(requests, number) for number in numbers]
    committed = {place.partition: place for place in consumer.committed(asked, timeout=timeout_s)}
    request_spans = watermarks(consumer, requests, numbers)
    answer_spans = watermarks(consumer, answers, numbers)
    result_spans = watermarks(consumer, results, numbers)
    takeovers = {}
    for number in numbers:
        (low, high), (results_low, results_end) = request_spans[number], result_spans[number]
        offset = committed[number].offset
        floor = results_floor(committed[number].metadata) if offset >= 0 else None
        takeovers[number] = Takeover(
            start=offset if low <= offset <= high else low,
            floor=results_low if floor is None else min(max(floor, results_low), results_end),
            horizon=high,
            results_end=results_end,
        )
    # 2.
    ranges = {number: (takeover.floor, takeover.results_end) for number, takeover in takeovers.items()}
    answered = _answered_ids(config, results, ranges)
    return {
        number: Estate(
            takeover=takeover,
            answers_end=answer_spans[number][1],
            answered=answered[number],
            is_new=committed[number].offset < 0,
        )
        for number, takeover in takeovers.items()
    }


def _answered_ids(config: dict[str, Any], topic: str, ranges: dict[int, tuple[int, int]]) -> dict[int, set[str]]:
    answered: dict[int, set[str]] = {number: set() for number in ranges}
    patience_s = SCHEMA_TIMEOUT_S
    for message in read_ranges(config, topic, ranges):
        try:
            wait_for_schema(message.value(), timeout_s=patience_s)
            request_id = request_id_of(message.value())
        except RecordError as error:
            # Not ours: no request of ours can have it as its result.
            _log.warning("result unreadable", offset=message.offset(), why=str(error))
            continue
        except (RegistryError, SchemaPendingError) as error:
            # A second result, which readers know by its request id, is better than no base work at all.
            _log.warning("result passed over", offset=message.offset(), why=str(error))
            patience_s = 0.0
            continue
        answered[message.partition() or 0].add(request_id)
    return answered


def request_id_of(value: bytes | None) -> str:
    """Id of the request that a result belongs to; raises RecordError.

    A takeover reads thousands of results and needs nothing else of them. In the framing and schema that routers of this
    version write, it is the first field: a length as a zigzag varint, then so many bytes of UTF-8 (Avro specification,
    binary encoding).
    """
    if value is not None and value.startswith(_OWN_FRAME):
        length, at = 0, len(_OWN_FRAME)
        for shift in range(0, _MAX_VARINT_BITS, 7):
            byte = value[at] if at < len(value) else 0x80
            length, at = length | (byte & 0x7F) << shift, at + 1
            if byte < 0x80:
                length >>= 1
                if 0 < length <= len(value) - at:
                    return value[at : at + length].decode("utf-8", "replace")
                break
    result = _decode(value)
    assert isinstance(result, RankingResult)
    return result.request_id
