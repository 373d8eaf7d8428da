"""A record as JSON, and back: what `intertidal read` prints and `intertidal send` takes. Pure.

    to_json(record) -> dict               from_json(record_type, dict) -> record

An object with the record's fields by name, nested records likewise. Numbers, strings, booleans and null are what they
are; of bytes there are two sorts:

- a packed array (``PACKED``) is a list of its numbers, float32 ones with all the digits of their value; what JSON has
  no number for is one of the words ``NaN``, ``Infinity`` and ``-Infinity``;
- other bytes are base64. So is a packed array that is no whole number of items, and both are read back as they were.

``from_json(type(record), to_json(record)) == record`` for every record. A field with a default may be left out; one
that the record does not have is refused, so that a misspelt name cannot pass for a default.
"""

import base64
import binascii
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
from msgspec import Struct

from schemas.avro import validate
from schemas.errors import RecordError

R = TypeVar("R", bound=Struct)

_INT64: Final = np.dtype("<i8")
_FLOAT32: Final = np.dtype("<f4")
# Every field that is a packed array, by record and name, with the type of its items.
PACKED: Final[Mapping[tuple[str, str], np.dtype[Any]]] = {
    ("HistogramFields", "counts"): _INT64,
    ("RankingAnswer", "scores"): _FLOAT32,
    ("RankingRequest", "ad_ids"): _INT64,
    ("RankingRequest", "bids"): _FLOAT32,
    ("RankingRequest", "history_ids"): _INT64,
    ("RankingRequest", "retrieval_scores"): _FLOAT32,
    ("RankingRequest", "user_features"): _FLOAT32,
    ("RankingResult", "ad_ids"): _INT64,
    ("RankingResult", "scores"): _FLOAT32,
    ("RankingWork", "ad_ids"): _INT64,
    ("RankingWork", "bids"): _FLOAT32,
    ("RankingWork", "history_ids"): _INT64,
    ("RankingWork", "retrieval_scores"): _FLOAT32,
    ("RankingWork", "user_features"): _FLOAT32,
}
_WORDS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_MAX_INT64: Final = 2**63 - 1

_Show = Callable[[Any], Any]
_Read = Callable[[Any, str], Any]


def to_json(record: Struct) -> dict[str, Any]:
    """The record as a JSON object: plain data that any JSON encoder takes."""
    return plain_to_json(msgspec.to_builtins(record, builtin_types=(bytes,)), type(record))


def plain_to_json(data: dict[str, Any], record_type: type[Struct]) -> dict[str, Any]:
    """The same of the plain data of a record whose fields need not be within their bounds."""
    show = _show_type(record_type)
    return data if show is None else _as_object(show(data))


def from_json(record_type: type[R], data: Any) -> R:
    """Record of a JSON object; raises RecordError with the reason, naming the field."""
    return validate(plain_from_json(record_type, data), record_type)


def plain_from_json(record_type: type[Struct], data: Any) -> dict[str, Any]:
    """The object with bytes for lists and base64, its fields not yet held against their bounds; raises RecordError."""
    if not isinstance(data, dict):
        raise RecordError("malformed", f"is no JSON object of {record_type.__name__}")
    return _as_object(_read_type(record_type)(data, ""))


def _as_object(data: Any) -> dict[str, Any]:
    assert isinstance(data, dict)
    return data


@cache
def _show_type(record_type: type[Struct]) -> _Show | None:
    return _show(msgspec.inspect.type_info(record_type), ("", ""))


@cache
def _read_type(record_type: type[Struct]) -> _Read:
    read = _read(msgspec.inspect.type_info(record_type), ("", ""))
    assert read is not None
    return read


def _show(info: msgspec.inspect.Type, place: tuple[str, str]) -> _Show | None:
    """What makes JSON of a value found in a record's field; None where the value is JSON already."""
    match info:
        case msgspec.inspect.BytesType():
            return _show_bytes(PACKED.get(place))
        case msgspec.inspect.ListType():
            item = _show(info.item_type, place)
            return None if item is None else lambda values: [item(value) for value in values]
        case msgspec.inspect.UnionType():
            some = _show(_not_none(info), place)
            return None if some is None else lambda value: None if value is None else some(value)
        case msgspec.inspect.StructType():
            fields = {
                field.encode_name: show
                for field in info.fields
                if (show := _show(field.type, (info.cls.__name__, field.encode_name))) is not None
            }
            if not fields:
                return None
            return lambda data: {name: fields[name](value) if name in fields else value for name, value in data.items()}
    return None


def _show_bytes(dtype: np.dtype[Any] | None) -> _Show:
    if dtype is None:
        return lambda packed: base64.b64encode(packed).decode()

    def show(packed: bytes) -> Any:
        if len(packed) % dtype.itemsize:
            return base64.b64encode(packed).decode()
        items = np.frombuffer(packed, dtype=dtype)
        if dtype.kind == "f" and not np.isfinite(items).all():
            return [number if math.isfinite(number) else _word(number) for number in items.tolist()]
        return items.tolist()

    return show


def _word(number: float) -> str:
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _read(info: msgspec.inspect.Type, place: tuple[str, str]) -> _Read | None:
    """The way back, given a value and the path of its field; None where validation alone decides."""
    match info:
        case msgspec.inspect.BytesType():
            dtype = PACKED.get(place)
            return _read_base64 if dtype is None else lambda value, path: _read_packed(value, path, dtype)
        case msgspec.inspect.IntType(ge=low, le=high) if low is None or high is None:
            return _read_int
        case msgspec.inspect.ListType():
            item = _read(info.item_type, place)
            return None if item is None else lambda values, path: _read_list(values, path, item)
        case msgspec.inspect.UnionType():
            some = _read(_not_none(info), place)
            return None if some is None else lambda value, path: None if value is None else some(value, path)
        case msgspec.inspect.StructType():
            name = info.cls.__name__
            fields = {field.encode_name: _read(field.type, (name, field.encode_name)) for field in info.fields}
            required = [field.encode_name for field in info.fields if field.required]
            return lambda data, path: _read_struct(data, path, name, fields, required)
    return None


def _read_struct(data: Any, path: str, name: str, fields: Mapping[str, _Read | None], required: Sequence[str]) -> Any:
    if not isinstance(data, dict):
        return data
    inside = f"{path}." if path else ""
    for key in required:
        if key not in data:
            raise RecordError("invalid_field", f"{name} needs it", field=inside + key)
    read_back = {}
    for key, value in data.items():
        where = inside + str(key)
        if key not in fields:
            raise RecordError("invalid_field", f"{name} has no such field", field=where)
        read = fields[key]
        read_back[key] = value if read is None else read(value, where)
    return read_back


def _read_list(values: Any, path: str, item: _Read) -> Any:
    if not isinstance(values, list):
        return values
    return [item(value, f"{path}[{index}]") for index, value in enumerate(values)]


def _read_int(value: Any, path: str) -> Any:
    if isinstance(value, int) and not -_MAX_INT64 - 1 <= value <= _MAX_INT64:
        raise RecordError("invalid_field", "does not fit 64 bits", field=path)
    return value


def _read_base64(value: Any, path: str) -> bytes:
    if not isinstance(value, str):
        raise RecordError("invalid_field", f"is {type(value).__name__}, should be base64", field=path)
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RecordError("invalid_field", f"is no base64: {error}", field=path) from None


def _read_packed(value: Any, path: str, dtype: np.dtype[Any]) -> bytes:
    if isinstance(value, str):
        return _read_base64(value, path)
    if not isinstance(value, list):
        raise RecordError(
            "invalid_field", f"is {type(value).__name__}, should be a list of {dtype.name} numbers", field=path
        )
    numbers = [_number(item, f"{path}[{index}]", dtype) for index, item in enumerate(value)]
    return np.array(numbers, dtype=dtype).tobytes()


def _number(item: Any, path: str, dtype: np.dtype[Any]) -> int | float:
    """One item of a packed array; numpy would wrap, cut or overflow what does not fit."""
    if dtype.kind == "f":
        if isinstance(item, str) and item in _WORDS:
            return _WORDS[item]
        is_number = isinstance(item, int | float) and not isinstance(item, bool)
        # Compared as numbers of Python, exactly, however long they are.
        if is_number and abs(item) <= float(np.finfo(dtype).max):
            return float(item)
    elif isinstance(item, int) and not isinstance(item, bool) and -_MAX_INT64 - 1 <= item <= _MAX_INT64:
        return item
    raise RecordError("invalid_field", f"{str(item)[:32]!r} is no {dtype.name}", field=path)


def _not_none(info: msgspec.inspect.UnionType) -> msgspec.inspect.Type:
    some = [kind for kind in info.types if not isinstance(kind, msgspec.inspect.NoneType)]
    assert len(some) == 1, "only X | None has a schema"
    return some[0]
