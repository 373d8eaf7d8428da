"""Records in the order of their partitions become files: collected within bounds, cut by the hour, written whole."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import IO, Any, Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from ops.read.columns import columns_of, to_batch
from ops.read.folder import OutputFolder, hour_of
from ops.read.rows import LogRecord

FileFormat = Literal["parquet", "arrow"]
# Rows that are columns at once: what a row group of Parquet or a batch of Arrow holds.
_BATCH_ROWS: Final = 8_192


@dataclass(frozen=True, kw_only=True)
class FileLimits:
    """When a file is written: at so many rows or bytes of records, when all that is collected weighs ``total_bytes``,
    or when its first row has waited for ``max_wait_s``."""

    num_rows: int = 200_000
    size_bytes: int = 64 << 20
    total_bytes: int = 96 << 20
    max_wait_s: float = 60.0


@dataclass(slots=True)
class _Collected:
    """Rows of one partition and one hour, and where the log stands behind them."""

    since_s: float
    hour: int
    records: list[LogRecord] = field(default_factory=list)
    size_bytes: int = 0
    end_offset: int = 0


class FileWriter:
    """Collects what is read and writes it into a folder. ``clock_s`` is monotonic."""

    def __init__(
        self,
        folder: OutputFolder,
        *,
        record_types: Sequence[type[Struct]],
        file_format: FileFormat,
        limits: FileLimits,
        clock_s: Callable[[], float],
    ) -> None:
        self._folder = folder
        self._columns = columns_of(record_types)
        self._open_writer = _WRITERS[file_format]
        self._limits = limits
        self._clock_s = clock_s
        self._collected: dict[int, _Collected] = {}
        self._total_bytes = 0
        self.num_files = 0
        self.num_rows = 0

    def add(self, read: LogRecord) -> None:
        """Take the next record of its partition; raises UserError when the disk refuses a file."""
        partition, limits, hour = read.partition, self._limits, hour_of(read.time_ms)
        collected = self._collected.get(partition)
        if collected is not None and collected.hour != hour:
            # A file is of one hour, and holds everything between its offsets.
            self._write(partition)
            collected = None
        if collected is None:
            collected = self._collected[partition] = _Collected(self._clock_s(), hour)
        collected.records.append(read)
        collected.size_bytes += read.size_bytes
        self._total_bytes += read.size_bytes
        collected.end_offset = read.offset + 1
        if len(collected.records) >= limits.num_rows or collected.size_bytes >= limits.size_bytes:
            self._write(partition)
        elif self._total_bytes >= limits.total_bytes:
            self._write(max(self._collected, key=lambda number: self._collected[number].size_bytes))

    def pass_over(self, partition: int, offset: int) -> None:
        """Nothing can be made of the record at this offset: the file that covers it is without it."""
        collected = self._collected.get(partition)
        if collected is not None:
            collected.end_offset = offset + 1

    def write_due(self) -> None:
        """Write what has waited for long enough."""
        now_s = self._clock_s()
        for partition, collected in list(self._collected.items()):
            if now_s - collected.since_s >= self._limits.max_wait_s:
                self._write(partition)

    def write_all(self) -> None:
        """Write everything that is collected."""
        for partition in sorted(self._collected):
            self._write(partition)

    def _write(self, partition: int) -> None:
        collected = self._collected[partition]

        def write(file: IO[bytes]) -> None:
            records = iter(collected.records)
            with self._open_writer(file, self._columns) as writer:
                while chunk := list(islice(records, _BATCH_ROWS)):
                    writer.write_batch(to_batch(chunk, self._columns))

        self._folder.add(partition, end_offset=collected.end_offset, hour=collected.hour, write=write)
        del self._collected[partition]
        self._total_bytes -= collected.size_bytes
        self.num_files += 1
        self.num_rows += len(collected.records)


def _parquet(file: IO[bytes], columns: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(file, columns, compression="zstd")


def _arrow(file: IO[bytes], columns: pa.Schema) -> pa.RecordBatchFileWriter:
    return pa.ipc.new_file(file, columns)


_WRITERS: Final[Mapping[FileFormat, Callable[[IO[bytes], pa.Schema], Any]]] = {"parquet": _parquet, "arrow": _arrow}
