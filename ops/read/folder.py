"""A folder of files of one topic, which says by itself how far it has come.

A file holds the records of one partition from its first offset up to, not including, its end, both in its name:

    OUT/hour=2026-11-30T21/ranking.results-00003-00000000000000000512-00000000000000001024.parquet

1. A file is written under a hidden name outside the hours and brought to the disk.
2. It is renamed into its hour: from then on its records are there, all at once.
3. The hour, and the folder where the hour is new, are brought to the disk.
4. The note of the folder is renewed in the same way: it holds the next offset of each partition, so that files may be
   moved away. Where it is older than the files, these count.

A process that dies between any two steps leaves nothing but a hidden file, which the next one removes. Where reading
began stands in the note before the first file is written: a start that moves (`--since -15m`) counts once.
"""

import fcntl
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final, Self

import msgspec
from msgspec import Struct

from ops.errors import UserError
from schemas.topics import HOUR_MS

NOTE_NAME: Final = "_intertidal.json"
_TEMPORARY: Final = ".intertidal-"
_VERSION: Final = 1


class Note(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a folder is of, and the next offset of each partition."""

    version: int
    cluster: str
    topic: str
    format: str
    next_offsets: dict[int, int]


def hour_of(time_ms: int) -> int:
    """Hours since the Unix epoch; of a record without a time, zero."""
    return max(0, time_ms) // HOUR_MS


def hour_folder(hour: int) -> str:
    """Name of the folder of an hour, UTC."""
    return datetime.fromtimestamp(hour * HOUR_MS / 1e3, UTC).strftime("hour=%Y-%m-%dT%H")


class OutputFolder:
    """The one writer of a folder, until ``close``. Raises UserError for what a person can put right."""

    def __init__(self, path: Path, *, cluster: str, topic: str, file_format: str) -> None:
        """Take the folder, which is made if need be; it is refused while another process has it.

        Raises UserError for a folder of something else, or one that cannot be written.
        """
        self.path = path
        self._cluster, self._topic, self._format = cluster, topic, file_format
        self._name = re.compile(rf"{re.escape(topic)}-(\d{{5}})-(\d{{20}})-(\d{{20}})\.{re.escape(file_format)}")
        self._next_offsets: dict[int, int] = {}
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with disk_errors(path):
                self._take()
        except BaseException:
            os.close(self._descriptor)
            raise

    def _take(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{self.path} is being written by another process") from None
        note = self._read_note()
        for leftover in self.path.glob(f"{_TEMPORARY}*"):
            leftover.unlink()
        if note is not None:
            self._next_offsets = self._found(note)
        elif any(self.path.iterdir()):
            raise UserError(f"{self.path} is not empty, and nothing in it says of which topic it is")

    @property
    def next_offsets(self) -> Mapping[int, int]:
        """Where each partition is read on; partitions that the folder has not heard of are missing."""
        return self._next_offsets

    def begin(self, next_offsets: Mapping[int, int]) -> None:
        """Note where the partitions that are new to the folder begin. Before anything else."""
        with disk_errors(self.path):
            self._write_note({**next_offsets, **self._next_offsets})

    def add(self, partition: int, *, end_offset: int, hour: int, write: Callable[[IO[bytes]], None]) -> Path:
        """Make what ``write`` writes the records of a partition up to ``end_offset``; returns the file."""
        first_offset = self._next_offsets[partition]
        name = f"{self._topic}-{partition:05d}-{first_offset:020d}-{end_offset:020d}.{self._format}"
        folder = self.path / hour_folder(hour)
        with disk_errors(self.path):
            # 1. and 2.
            is_new_hour = not folder.exists()
            folder.mkdir(exist_ok=True)
            _write_whole(self.path / f"{_TEMPORARY}{name}", folder / name, write)
            # 3.
            _sync_folder(folder)
            if is_new_hour:
                os.fsync(self._descriptor)
            # 4.
            self._write_note({**self._next_offsets, partition: end_offset})
        return folder / name

    def close(self) -> None:
        """Let the folder go."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read_note(self) -> Note | None:
        path = self.path / NOTE_NAME
        try:
            note = msgspec.json.decode(path.read_bytes(), type=Note)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise UserError(f"{path} cannot be read: {error}") from error
        ours = {"version": _VERSION, "cluster": self._cluster, "topic": self._topic, "format": self._format}
        for what, wanted in ours.items():
            found = getattr(note, what)
            if found != wanted:
                raise UserError(f"{self.path} has files of {what} {found}, not {wanted}")
        return note

    def _found(self, note: Note) -> dict[int, int]:
        """Where each partition stands by its note and its files, whichever is further."""
        next_offsets = dict(note.next_offsets)
        for path in self.path.glob("hour=*/*"):
            match = self._name.fullmatch(path.name)
            if match is not None:
                partition, end_offset = int(match[1]), int(match[3])
                next_offsets[partition] = max(next_offsets.get(partition, 0), end_offset)
        return next_offsets

    def _write_note(self, next_offsets: dict[int, int]) -> None:
        note = Note(
            version=_VERSION,
            cluster=self._cluster,
            topic=self._topic,
            format=self._format,
            next_offsets=dict(sorted(next_offsets.items())),
        )
        encoded = msgspec.json.format(msgspec.json.encode(note), indent=2)
        _write_whole(self.path / f"{_TEMPORARY}note", self.path / NOTE_NAME, lambda file: _write_all(file, encoded))
        os.fsync(self._descriptor)
        self._next_offsets = note.next_offsets


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """What the disk refuses becomes one line."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from error


def _write_whole(temporary: Path, path: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Write under a hidden name, and give the file its own when it is whole and on the disk."""
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _write_all(file: IO[bytes], content: bytes) -> None:
    file.write(content)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
