"""One append-only log of numbered records in segment files: what a crash has cut short is cut off, never guessed at.

    <name>-<number of the first record, 20 digits>.log
    record   crc32 u32 of all behind it, length of the body u32, number u64 (little-endian), body

A record is one write of its own, so a process that is killed leaves at most one that is cut short, at the end. Nothing
is synced: a machine that loses its power may lose the last seconds, which the next full snapshot makes good.
"""

import errno
import os
import struct
import zlib
from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

_HEAD: Final = struct.Struct("<IIQ")
# No record of the contract is longer, and a length beyond it is no length.
_MAX_BODY_BYTES: Final = 1 << 21
# What is read with these is not there any more, and will not be at another try.
_GONE: Final = (errno.ENOENT, errno.ESTALE, errno.EIO)


class Entry(NamedTuple):
    """One record of a log."""

    number: int
    body: bytes


@dataclass
class _Segment:
    """``numbers`` are known without the file, so that what is lost with it can be counted."""

    path: Path
    size_bytes: int = 0
    numbers: "array[int]" = field(default_factory=lambda: array("Q"))

    @property
    def last(self) -> int:
        return self.numbers[-1] if self.numbers else -1


class SpoolLog:
    """Numbers rise from record to record, with gaps: logs of one spool share them."""

    def __init__(self, folder: Path, name: str, *, segment_bytes: int) -> None:
        """Read what is there; raises OSError."""
        self._folder = folder
        self._name = name
        self._segment_bytes = segment_bytes
        self._segments: list[_Segment] = []
        self._out: int | None = None
        self._lost: list[int] = []
        # Records behind a byte that was damaged in the middle of a log: they cannot be found again.
        self.num_damaged_bytes = 0
        paths = sorted(folder.glob(f"{name}-*.log"))
        for path in paths:
            self._recover(path, is_last=path == paths[-1])
        self._reader = _Reader()

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def num_records(self) -> int:
        """Records on disk, those already sent among them until their segment goes."""
        return sum(len(segment.numbers) for segment in self._segments)

    @property
    def last_number(self) -> int:
        """Largest number on disk, -1 for none."""
        return self._segments[-1].last if self._segments else -1

    def append(self, number: int, body: bytes) -> None:
        """Write one record; raises OSError, and then nothing of it is left behind."""
        record = _pack(number, body)
        if not self._segments or self._out is None or self._segments[-1].size_bytes >= self._segment_bytes:
            self._begin(number)
        segment, out = self._segments[-1], self._out
        assert out is not None
        try:
            written = os.write(out, record)
            if written < len(record):
                raise OSError(errno.ENOSPC, f"{written} of {len(record)} bytes written", str(segment.path))
        except OSError:
            self._cut(out, segment.size_bytes)
            raise
        segment.numbers.append(number)
        segment.size_bytes += len(record)

    def read_from(self, number: int) -> Entry | None:
        """The first record with that number or a larger one; None when there is none. Cheap where numbers rise.

        What can no longer be read is told by ``take_lost``. Raises OSError for what may be read at another try.
        """
        for segment in [each for each in self._segments if each.last >= number]:
            try:
                found = self._reader.find(segment.path, segment.size_bytes, number)
            except OSError as error:
                if error.errno not in _GONE:
                    raise
                self._lose(segment, 0)
                continue
            if found is not None:
                return found
            # It ends early, or is damaged: nothing behind that place can be found.
            self._lose(segment, number)
        return None

    def take_lost(self) -> list[int]:
        """Numbers of records that were lost with their file since the last call."""
        lost, self._lost = self._lost, []
        return lost

    def forget_below(self, number: int) -> None:
        """Remove segments of which every record is below that number."""
        while self._segments and self._segments[0].last < number:
            self._remove_oldest()

    def numbers_from(self, number: int) -> Iterator[int]:
        """Numbers on disk from that one on."""
        for segment in self._segments:
            if segment.last >= number:
                yield from (each for each in segment.numbers if each >= number)

    def drop_oldest(self) -> list[int]:
        """Remove the oldest segment; returns the numbers of its records, none where there is no segment."""
        if not self._segments:
            return []
        numbers = list(self._segments[0].numbers)
        self._remove_oldest()
        return numbers

    def close(self) -> None:
        """Let the files go; what is in them stays."""
        self._end()
        self._reader.close()

    def _cut(self, out: int, size_bytes: int) -> None:
        """Remove what was written of a record; where not even that can be done, the next one begins a segment."""
        try:
            os.ftruncate(out, size_bytes)
        except OSError:
            self._end()

    def _begin(self, number: int) -> None:
        self._end()
        path = self._folder / f"{self._name}-{number:020}.log"
        self._out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._segments.append(_Segment(path))

    def _end(self) -> None:
        if self._out is not None:
            os.close(self._out)
            self._out = None
            if not self._segments[-1].numbers:
                self._segments.pop().path.unlink(missing_ok=True)

    def _lose(self, segment: _Segment, number: int) -> None:
        """What a segment has from a number on is lost; the next record begins a file of its own."""
        self._lost += [each for each in segment.numbers if each >= number]
        segment.numbers = array("Q", [each for each in segment.numbers if each < number])
        if segment is self._segments[-1]:
            self._end()
        if not segment.numbers and segment in self._segments:
            self._segments.remove(segment)
            self._unlink(segment)

    def _remove_oldest(self) -> None:
        segment = self._segments[0]
        if len(self._segments) == 1 and self._out is not None:
            os.close(self._out)
            self._out = None
        del self._segments[0]
        self._unlink(segment)

    def _unlink(self, segment: _Segment) -> None:
        self._reader.leave(segment.path)
        # What stays is read by the next process, and sent once more at worst.
        with suppress(OSError):
            segment.path.unlink()

    def _recover(self, path: Path, *, is_last: bool) -> None:
        size_bytes = path.stat().st_size
        segment = _Segment(path)
        for entry in _entries(path, size_bytes):
            segment.numbers.append(entry.number)
            segment.size_bytes += _HEAD.size + len(entry.body)
        if segment.size_bytes < size_bytes:
            if not is_last:
                self.num_damaged_bytes += size_bytes - segment.size_bytes
            os.truncate(path, segment.size_bytes)
        if segment.numbers:
            self._segments.append(segment)
        else:
            path.unlink()


class _Reader:
    """Where the last record was found: the next one stands right behind it."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._fd = -1
        self._offset = 0
        self._next_number = 0

    def find(self, path: Path, size_bytes: int, number: int) -> Entry | None:
        if path != self._path or number < self._next_number:
            self.close()
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._path, self._offset, self._next_number = path, 0, 0
        while self._offset < size_bytes:
            entry = _read(self._fd, self._offset, size_bytes)
            if entry is None:
                break
            if entry.number >= number:
                self._next_number = entry.number
                return entry
            self._offset += _HEAD.size + len(entry.body)
        return None

    def leave(self, path: Path) -> None:
        if path == self._path:
            self.close()

    def close(self) -> None:
        if self._path is not None:
            os.close(self._fd)
            self._path = None


def _pack(number: int, body: bytes) -> bytes:
    tail = struct.pack("<IQ", len(body), number) + body
    return struct.pack("<I", zlib.crc32(tail)) + tail


def _entries(path: Path, size_bytes: int) -> Iterator[Entry]:
    """Records of a file up to the first that is cut short or damaged."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        offset = 0
        while (entry := _read(fd, offset, size_bytes)) is not None:
            yield entry
            offset += _HEAD.size + len(entry.body)
    finally:
        os.close(fd)


def _read(fd: int, offset: int, size_bytes: int) -> Entry | None:
    head = os.pread(fd, _HEAD.size, offset)
    if len(head) < _HEAD.size:
        return None
    crc, length, number = _HEAD.unpack(head)
    if length > min(_MAX_BODY_BYTES, size_bytes - offset - _HEAD.size):
        return None
    body = os.pread(fd, length, offset + _HEAD.size)
    if len(body) < length or zlib.crc32(body, zlib.crc32(head[4:])) != crc:
        return None
    return Entry(number, body)
