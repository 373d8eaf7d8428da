"""The runtime folder of a host: opened without trust, gates created whole, locks that die with their process."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from schemas.gate import GateError, GateHeader, gate_file_name, pack_gate

# Nanoseconds of the host's CLOCK_MONOTONIC.
Clock = Callable[[], int]
# Start time of a live process, in clock ticks since boot; None when there is none of that pid.
ProcessStart = Callable[[int], int | None]

_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class GateFolder:
    """One runtime folder, held open, so that what was checked is what is used."""

    def __init__(self, path: Path, *, create: bool) -> None:
        """Open the folder. Raises GateError when it is absent, a link, someone else's or open to others."""
        self.path = path
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                path.mkdir(mode=0o700, exist_ok=True)
            except FileExistsError:
                raise GateError(path, "is not a folder") from None
        try:
            self._fd = os.open(path, _FOLDER_FLAGS)
        except OSError as error:
            raise GateError(path, _cannot_open(error)) from error
        try:
            _refuse_shared(path, os.fstat(self._fd))
        except GateError:
            self.close()
            raise

    def close(self) -> None:
        """Close the folder; files opened from it stay open."""
        os.close(self._fd)

    @contextmanager
    def locked(self, *, wait: bool) -> Iterator[None]:
        """Hold the folder's lock, for creating a gate or claiming a slot. Else BlockingIOError, if not waiting."""
        fcntl.flock(self._fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def open_gate(self, pool: str) -> int:
        """Return a descriptor of the pool's gate. Raises GateError when absent, a link, or not ours alone."""
        name = gate_file_name(pool)
        try:
            fd = os.open(name, _FILE_FLAGS, dir_fd=self._fd)
        except OSError as error:
            raise GateError(self.path / name, _cannot_open(error)) from error
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise GateError(self.path / name, "is not a regular file")
            _refuse_shared(self.path / name, status)
        except GateError:
            os.close(fd)
            raise
        return fd

    def create_gate(self, pool: str, header: GateHeader) -> None:
        """Create the pool's gate whole or not at all, in place of a file of its name; the folder's lock is held.

        1. write a file of another name  2. rename it: nobody ever sees half a gate. A file that it replaces stays for
        those who have it open.
        """
        name = gate_file_name(pool)
        draft = f".{name}.{os.getpid()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(draft, flags, 0o600, dir_fd=self._fd)
        with os.fdopen(fd, "wb") as file:
            file.write(pack_gate(header))  # 1
        os.rename(draft, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)  # 2

    def inode(self, pool: str) -> int | None:
        """Return the inode number under the pool's name, None when there is none."""
        try:
            return os.stat(gate_file_name(pool), dir_fd=self._fd, follow_symlinks=False).st_ino
        except FileNotFoundError:
            return None


def boot_id() -> bytes:
    """Return the 16 bytes that Linux draws at each boot."""
    return uuid.UUID(Path("/proc/sys/kernel/random/boot_id").read_text().strip()).bytes


def process_start(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None when it is gone or a zombie."""
    try:
        stat_line = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in parentheses, may hold anything; the fields after it start with the state, field 3.
    state, *fields = stat_line.rpartition(b")")[2].split()
    return None if state in (b"Z", b"X") else int(fields[18])


def _refuse_shared(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise GateError(path, f"belongs to user {status.st_uid}, not to user {os.geteuid()} who runs this")
    if status.st_mode & 0o077:
        raise GateError(path, f"mode {stat.S_IMODE(status.st_mode):04o} lets others in; 0700 or 0600 is wanted")


def _cannot_open(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "does not exist"
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "is a symbolic link, or not a folder where one is wanted"
    return f"cannot be opened: {error.strerror}"
