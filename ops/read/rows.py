"""From a record in the log to a row: its fields, and its place beside them. Pure.

Columns that begin with an underscore are of the log; all others are the record's fields as `ops.record_json` has them.
"""

from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import Struct

from ops.record_json import to_json
from ranking.client.results.view import standing_of
from schemas.records import RankingResult

# Columns of the log, with their types: the record's type (null where a key was deleted), and its place, time and key.
LOG_COLUMNS: Final[dict[str, Any]] = {
    "_record": str | None,
    "_partition": int,
    "_offset": int,
    "_time_ms": int,
    "_key": str | None,
}
# Of results: the worst that is to be said of one, in a word.
STANDING_COLUMN: Final = "_standing"

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """A record that was read, with its place; ``record`` is None where a compacted topic says that its key is gone."""

    partition: int
    offset: int
    time_ms: int
    key: bytes | None
    size_bytes: int
    record: Struct | None


def log_columns(read: LogRecord) -> Row:
    """Where a record stands in the log, and of a result what it is worth."""
    row: Row = {
        "_record": None if read.record is None else type(read.record).__name__,
        "_partition": read.partition,
        "_offset": read.offset,
        "_time_ms": read.time_ms,
        "_key": None if read.key is None else read.key.decode("utf-8", "backslashreplace"),
    }
    if isinstance(read.record, RankingResult):
        row[STANDING_COLUMN] = standing_of(read.record)
    return row


def json_line(read: LogRecord) -> bytes:
    """The row of a record as one line of JSON."""
    fields = {} if read.record is None else to_json(read.record)
    return msgspec.json.encode(log_columns(read) | fields) + b"\n"
