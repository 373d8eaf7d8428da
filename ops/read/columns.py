"""The columns of a topic's files, as Arrow has them, and records as batches of columns."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct

from ops.read.rows import LOG_COLUMNS, STANDING_COLUMN, LogRecord, Row, log_columns
from ops.record_json import PACKED
from schemas.records import RankingResult

_Field = tuple[str, Callable[[Any], Any] | None]
_Place = tuple[str, str]


def columns_of(record_types: Sequence[type[Struct]]) -> pa.Schema:
    """Columns of the log, then the fields of all record types of a topic; null where a record has no such field."""
    columns = {name: pa.string() if kind is not int else pa.int64() for name, kind in LOG_COLUMNS.items()}
    if RankingResult in record_types:
        columns[STANDING_COLUMN] = pa.string()
    for record_type in record_types:
        info = msgspec.inspect.type_info(record_type)
        assert isinstance(info, msgspec.inspect.StructType)
        for field in info.fields:
            arrow_type = _arrow_type(field.type, (record_type.__name__, field.name))
            known = columns.setdefault(field.name, arrow_type)
            assert known == arrow_type, f"{field.name} has two types in one topic"
    return pa.schema(list(columns.items()))


def to_batch(records: Iterable[LogRecord], columns: pa.Schema) -> pa.RecordBatch:
    """Records in their order as one batch of columns.

    A packed array becomes a list of its numbers; one that is no whole number of items, a null.
    """
    rows = [log_columns(read) | ({} if read.record is None else _plain(read.record)) for read in records]
    arrays = [pa.array([row.get(column.name) for row in rows], type=column.type) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _plain(record: Struct) -> Row:
    return {
        name: value if (value := getattr(record, name)) is None or convert is None else convert(value)
        for name, convert in _fields(type(record))
    }


@cache
def _fields(record_type: type[Struct]) -> tuple[_Field, ...]:
    """Names of the fields, each with what makes its value plain where it is not so already."""
    info = msgspec.inspect.type_info(record_type)
    assert isinstance(info, msgspec.inspect.StructType)
    return tuple((field.name, _converter(field.type, (record_type.__name__, field.name))) for field in info.fields)


def _converter(info: msgspec.inspect.Type, place: _Place) -> Callable[[Any], Any] | None:
    match info:
        case msgspec.inspect.BytesType() if place in PACKED:
            dtype = PACKED[place]
            return lambda packed: None if len(packed) % dtype.itemsize else np.frombuffer(packed, dtype=dtype)
        case msgspec.inspect.StructType():
            return _plain
        case msgspec.inspect.ListType():
            of_item = _converter(info.item_type, place)
            return None if of_item is None else lambda items: [of_item(item) for item in items]
        case msgspec.inspect.UnionType():
            (inner,) = (kind for kind in info.types if not isinstance(kind, msgspec.inspect.NoneType))
            return _converter(inner, place)
    return None


def _arrow_type(info: msgspec.inspect.Type, place: _Place) -> pa.DataType:
    match info:
        case msgspec.inspect.IntType():
            return pa.int64()
        case msgspec.inspect.FloatType():
            return pa.float64()
        case msgspec.inspect.BoolType():
            return pa.bool_()
        case msgspec.inspect.StrType() | msgspec.inspect.LiteralType():
            return pa.string()
        case msgspec.inspect.BytesType():
            return pa.list_(pa.from_numpy_dtype(PACKED[place])) if place in PACKED else pa.binary()
        case msgspec.inspect.ListType():
            return pa.list_(_arrow_type(info.item_type, place))
        case msgspec.inspect.UnionType():
            (inner,) = (kind for kind in info.types if not isinstance(kind, msgspec.inspect.NoneType))
            return _arrow_type(inner, place)
        case msgspec.inspect.StructType():
            name = info.cls.__name__
            return pa.struct([(field.name, _arrow_type(field.type, (name, field.name))) for field in info.fields])
    raise AssertionError(f"no Arrow type for {info}")
