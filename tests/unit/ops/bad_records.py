"""Records that nobody may believe, of every topic whose reader refuses: made by hand, by rule and by chance."""

import io
import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ops.intake import key_of
from schemas.avro import parsed_schema, schema_fingerprint
from schemas.framing import SINGLE_OBJECT_HEADER_BYTES, SINGLE_OBJECT_MARKER, encode
from schemas.partition import partition_for
from schemas.parts import PARTS
from schemas.records import RankingWork
from schemas.topics import WORK_BY_ROUTE, Topic

GOLDEN = json.loads((Path(__file__).parents[2] / "contract" / "golden_records.json").read_text(encoding="utf-8"))
REFUSING: tuple[Topic, ...] = tuple(dict.fromkeys(topic for part in PARTS for topic in part.refuses))
FUZZED_OF_A_TOPIC = 8
LEVERS = {"baseline": None, "wide": "rma", "powerful": "sbm"}


@dataclass(frozen=True, kw_only=True)
class Bad:
    """A record as it lies on its topic, and what is said of it; ``field`` is None where any field may be to blame."""

    topic: Topic
    name: str
    key: bytes | None
    partition: int
    value: bytes
    reasons: tuple[str, ...]
    field: str | None


def good(topic: Topic) -> Any:
    """A record of a topic that its reader believes."""
    record_type = topic.record_types[0]
    record = msgspec.convert(GOLDEN[record_type.__name__]["record"], record_type, strict=True)
    if isinstance(record, RankingWork):
        route = next(route for route, known in WORK_BY_ROUTE.items() if known is topic)
        return replace(record, route=route, lever=LEVERS[route], reply_partition=1)
    return record


def place(topic: Topic, record: Struct) -> tuple[bytes | None, int]:
    """Key and partition of a good record."""
    key = key_of(topic, record)
    return key, 0 if key is None else partition_for(key, topic.num_partitions)


def unchecked(record_type: type[Struct], data: Any) -> bytes:
    """A framed record of plain data that need not be believable."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed_schema(record_type), data)
    return SINGLE_OBJECT_MARKER + schema_fingerprint(record_type) + out.getvalue()


def bad_records(topic: Topic) -> Iterator[Bad]:
    """Bad records of one topic, the same at every call."""
    record = good(topic)
    key, partition = place(topic, record)
    value = encode(record)

    def bad(name: str, value: bytes, *reasons: str, field: str | None = "", **placed: Any) -> Bad:
        where = {"key": key, "partition": partition} | placed
        return Bad(topic=topic, name=name, value=value, reasons=reasons, field=field, **where)

    yield bad("nothing", b"", "empty")
    yield bad("no frame", b"hello", "bad_framing")
    yield bad("half a frame", value[:5], "truncated")
    yield bad("a schema of nobody", value[:2] + b"\1" * 8 + value[10:], "unknown_schema")
    yield bad("an id without a registry", b"\0\0\0\0\7" + value[10:], "unknown_schema")
    yield bad("something behind it", value + b"\0", "malformed")
    yield bad("huge", value + b"\0" * (1 << 20), "too_large")
    if key is not None:
        field = "user_id" if topic.key == "user" else "cell"
        yield bad("another's key", value, "key_mismatch", field=field, key=b"somebody")
        yield bad("no key", value, "key_mismatch", field=field, key=None)
        if topic.num_partitions > 1:
            elsewhere = (partition + 1) % topic.num_partitions
            yield bad(
                "a place that its key does not lead to", value, "wrong_partition", field=field, partition=elsewhere
            )
    data = msgspec.to_builtins(record, builtin_types=(bytes,))
    for path, changed in out_of_bounds(msgspec.inspect.type_info(type(record)), data, ""):
        yield bad(f"bounds of {path}", unchecked(type(record), changed), "invalid_field", field=path)
    drawn = random.Random(topic.name)
    for number in range(FUZZED_OF_A_TOPIC):
        end = drawn.randrange(SINGLE_OBJECT_HEADER_BYTES, len(value))
        yield bad(f"cut {number}", value[:end], "truncated", "malformed", field=None)


def out_of_bounds(info: msgspec.inspect.Type, data: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The data with one value beyond its bounds, once for each value that has some."""
    match info:
        case msgspec.inspect.StructType() if isinstance(data, dict):
            for field in info.fields:
                inside = f"{path}.{field.encode_name}" if path else field.encode_name
                for where, changed in out_of_bounds(field.type, data[field.encode_name], inside):
                    yield where, data | {field.encode_name: changed}
        case msgspec.inspect.ListType() if data:
            for where, changed in out_of_bounds(info.item_type, data[0], f"{path}[0]"):
                yield where, [changed, *data[1:]]
        case msgspec.inspect.UnionType() if data is not None:
            for kind in info.types:
                if not isinstance(kind, msgspec.inspect.NoneType):
                    yield from out_of_bounds(kind, data, path)
        case _:
            yield from ((path, value) for value in beyond(info))


def beyond(info: msgspec.inspect.Type) -> Iterator[Any]:
    """A value that a field of this type may not have, where there is one that Avro can say."""
    match info:
        case msgspec.inspect.IntType() if info.ge is not None:
            yield info.ge - 1
        case msgspec.inspect.FloatType() if info.ge is not None:
            yield math.nan
        case msgspec.inspect.LiteralType():
            yield "no word of ours"
        case msgspec.inspect.StrType() if info.min_length:
            yield ""
        case msgspec.inspect.StrType() if info.max_length:
            yield "x" * (info.max_length + 1)


def all_bad_records(topics: Sequence[Topic] = REFUSING) -> list[Bad]:
    """Every bad record of every topic."""
    return [bad for topic in topics for bad in bad_records(topic)]
