"""What a host has yet to tell Kafka: on disk, bounded, in order; a full disk or a full spool never holds anybody up.

Every record is written here first and sent from here, so there is one way for it to go, whether the broker is there or
not. Three logs share one numbering, by how much is lost with a record: heartbeats say nothing new and go first, then
changes; reclaims never go. Beyond the limit the oldest segment of the first log that has one is removed, and counted.

Where the disk takes nothing, records are held in memory, by the same rule. ``done`` says up to which number all is
acknowledged; it is written behind, so a killed process sends a few records again, which readers drop by their sequence.
"""

import errno
import fcntl
import logging
import os
import struct
import zlib
from collections import Counter, deque
from pathlib import Path
from typing import Final, NamedTuple

from ops.agent.spool_log import Entry, SpoolLog

# In the order in which they are given up; the last one never is.
BEATS, CHANGES, RECLAIMS = "beats", "changes", "reclaims"
CLASSES: Final = (BEATS, CHANGES, RECLAIMS)
_CLASS_OF_KIND: Final = {"heartbeat": BEATS, "reclaim": RECLAIMS}

_MIN_LIMIT_BYTES: Final = 1 << 16
_SEGMENTS_PER_LIMIT: Final = 32
# What a full disk may cost in memory: with the process below its 80 MiB.
_MEMORY_BYTES: Final = 4 << 20
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_DONE: Final = struct.Struct("<QI")

_log = logging.getLogger(__name__)


class SpoolError(Exception):
    """A spool that cannot be used; names its folder."""


class _Held(NamedTuple):
    """A record in memory."""

    number: int
    log: str
    body: bytes


def log_of(kind: str) -> str:
    """Which log takes a capacity event of that kind."""
    return _CLASS_OF_KIND.get(kind, CHANGES)


class Spool:
    """A queue of records. One process, and one thread in it, at a time. ``folder`` None: in memory alone."""

    def __init__(self, folder: Path | None, *, limit_bytes: int) -> None:
        """Take over what is there. Raises SpoolError when another process has it or it cannot be written."""
        if limit_bytes < _MIN_LIMIT_BYTES:
            raise ValueError(f"a spool needs {_MIN_LIMIT_BYTES} bytes at least, is given {limit_bytes}")
        self._folder = folder
        self._limit_bytes = limit_bytes if folder is not None else min(limit_bytes, _MEMORY_BYTES)
        self._logs: dict[str, SpoolLog] = {}
        self._lock_fd = -1
        self._done_fd = -1
        self._done = 0
        self._memory: deque[_Held] = deque()
        self._memory_bytes = 0
        self._next_number = 0
        # Number behind the one given out last, and those given out and not acknowledged, in order: with the name of
        # their log where they are no longer there to be given out again.
        self._cursor = 0
        self._given: dict[int, str | None] = {}
        # Acknowledged out of turn: partitions do not wait for each other.
        self._acknowledged: set[int] = set()
        self._num_waiting = 0
        self.num_dropped: Counter[str] = Counter()
        self._is_disk_well = True
        if folder is not None:
            try:
                self._open(folder, limit_bytes // _SEGMENTS_PER_LIMIT)
            except OSError as error:
                raise SpoolError(f"spool {folder}: {error.strerror or error}") from error

    @property
    def is_disk_well(self) -> bool:
        """Whether the last record went to disk."""
        return self._is_disk_well

    @property
    def size_bytes(self) -> int:
        return self._memory_bytes + sum(log.size_bytes for log in self._logs.values())

    @property
    def num_waiting(self) -> int:
        """Records that are neither acknowledged nor dropped."""
        return self._num_waiting

    @property
    def is_empty(self) -> bool:
        """Whether everything ever taken is acknowledged or dropped."""
        return self._num_waiting == 0

    def append(self, log: str, body: bytes) -> int:
        """Take a record, whatever the disk says; returns its number."""
        number, self._next_number = self._next_number, self._next_number + 1
        self._num_waiting += 1
        written = self._write(log, number, body)
        if not written:
            self._memory.append(_Held(number, log, body))
            self._memory_bytes += len(body)
        if written != self._is_disk_well and self._folder is not None:
            self._is_disk_well = written
            _log.warning("the spool's disk %s", "takes records again" if written else "takes nothing: held in memory")
        self._keep_within_limits()
        return number

    def next(self) -> Entry | None:
        """The record behind the one that was given out last; None when there is none."""
        while (entry := self._first_from(self._cursor)) is not None:
            self._cursor = entry.number + 1
            if entry.number not in self._acknowledged:
                self._given[entry.number] = None
                break
        return entry

    @property
    def num_given(self) -> int:
        """Records given out and not yet acknowledged."""
        return len(self._given)

    def rewind(self) -> None:
        """Give out again what is not acknowledged, from the first one on."""
        for log in self._given.values():
            if log is not None:
                self._count_dropped(log, 1)
        self._given.clear()
        self._cursor = self._done

    def acknowledge(self, number: int) -> None:
        """One of the records given out is durable elsewhere; without effect for others."""
        if number not in self._given:
            return
        del self._given[number]
        self._num_waiting -= 1
        self._acknowledged.add(number)
        done = next(iter(self._given), self._cursor)
        if done == self._done:
            return
        self._done = done
        self._acknowledged = {each for each in self._acknowledged if each >= done}
        while self._memory and self._memory[0].number < done:
            self._memory_bytes -= len(self._memory.popleft().body)
        for log in self._logs.values():
            log.forget_below(done)
        self._write_done()

    def close(self) -> None:
        """Let the files go; what is not done stays for the next process."""
        for log in self._logs.values():
            log.close()
        for fd in (self._done_fd, self._lock_fd):
            if fd >= 0:
                os.close(fd)
        self._done_fd = self._lock_fd = -1

    def _open(self, folder: Path, segment_bytes: int) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock_fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock_fd)
            raise SpoolError(f"spool {folder}: another process uses it; each agent needs its own") from None
        self._logs = {name: SpoolLog(folder, name, segment_bytes=segment_bytes) for name in CLASSES}
        self._done_fd = os.open(folder / "done", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._done = self._cursor = _unpack_done(os.pread(self._done_fd, _DONE.size, 0))
        self._next_number = max([self._done, *(log.last_number + 1 for log in self._logs.values())])
        self._num_waiting = sum(1 for log in self._logs.values() for _ in log.numbers_from(self._done))
        damaged = sum(log.num_damaged_bytes for log in self._logs.values())
        if damaged:
            _log.warning("spool %s: %d bytes behind a damaged record cannot be read and are lost", folder, damaged)

    def _write(self, log: str, number: int, body: bytes) -> bool:
        """Whether the record is on disk; where there is no room, some is made by dropping what may go, once."""
        if self._folder is None:
            return False
        try:
            self._logs[log].append(number, body)
        except OSError as error:
            if error.errno not in _FULL or not self._drop_from_disk():
                return False
            try:
                self._logs[log].append(number, body)
            except OSError:
                return False
        return True

    def _keep_within_limits(self) -> None:
        while self.size_bytes > self._limit_bytes and self._drop_from_disk():
            pass
        while self._memory_bytes > min(_MEMORY_BYTES, self._limit_bytes) and self._drop_from_memory():
            pass

    def _write_done(self) -> None:
        if self._done_fd < 0:
            return
        try:
            os.pwrite(self._done_fd, _pack_done(self._done), 0)
        except OSError as error:
            _log.warning("the spool's progress cannot be written: %s", error.strerror)

    def _drop_from_disk(self) -> bool:
        for name, log in self._logs.items():
            if name != RECLAIMS and log.num_records:
                for number in log.drop_oldest():
                    self._dropped(name, number)
                return True
        return False

    def _drop_from_memory(self) -> bool:
        for name in (BEATS, CHANGES):
            held = next((held for held in self._memory if held.log == name), None)
            if held is not None:
                self._memory.remove(held)
                self._memory_bytes -= len(held.body)
                self._dropped(name, held.number)
                return True
        return False

    def _dropped(self, log: str, number: int) -> None:
        """A record is no longer here. One that was given out is not lost yet: it may still be acknowledged."""
        if number in self._given:
            self._given[number] = log
        elif number >= self._cursor and number not in self._acknowledged:
            self._count_dropped(log, 1)

    def _count_dropped(self, log: str, num_records: int) -> None:
        if not self.num_dropped[log]:
            _log.warning("records of the spool are dropped from now on, the first of them %s", log)
        self.num_dropped[log] += num_records
        self._num_waiting -= num_records

    def _first_from(self, number: int) -> Entry | None:
        """The record with the smallest number from ``number`` on, wherever it is."""
        found = [entry for log in self._logs.values() if (entry := log.read_from(number)) is not None]
        for name, log in self._logs.items():
            for lost in log.take_lost():
                self._dropped(name, lost)
        held = next((held for held in self._memory if held.number >= number), None)
        if held is not None:
            found.append(Entry(held.number, held.body))
        return min(found, default=None)


def _pack_done(number: int) -> bytes:
    return _DONE.pack(number, zlib.crc32(number.to_bytes(8, "little")))


def _unpack_done(packed: bytes) -> int:
    """The number written last; 0 for one that was cut short: everything is sent again then, which harms nobody."""
    if len(packed) != _DONE.size:
        return 0
    number, crc = _DONE.unpack(packed)
    return number if zlib.crc32(number.to_bytes(8, "little")) == crc else 0
