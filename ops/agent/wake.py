"""What ends the waiting of the agent's loop: its threads, its signals, and others' programs on the same host.

A datagram, whatever is in it, to ``agent.sock`` in the runtime folder says "look at the files now". It carries nothing
to believe: what counts stands in files of a folder that only this user can write.
"""

import os
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SOCKET_NAME: Final = "agent.sock"
_DRAIN_BYTES: Final = 4_096


class Wake:
    """A thing to wait for. ``set`` may be called from any thread, and from a signal's handler."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self._door: socket.socket | None = None
        self._door_path: Path | None = None

    def open_door(self, folder: Path) -> None:
        """Let other programs of this user wake us, through the runtime folder. Raises OSError."""
        path = folder / SOCKET_NAME
        path.unlink(missing_ok=True)
        door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            with _short(folder) as short:
                door.bind(f"{short}/{SOCKET_NAME}")
        except OSError:
            door.close()
            raise
        door.setblocking(False)
        self._door, self._door_path = door, path

    def set(self) -> None:
        """End the wait that is under way, or else the next one."""
        try:
            self._write.send(b"!")
        except BlockingIOError:
            # It is full of such words already.
            return

    def wait(self, timeout_s: float) -> None:
        """Return once woken, or after the time."""
        waiting = [self._read] if self._door is None else [self._read, self._door]
        for ready in select.select(waiting, [], [], timeout_s)[0]:
            try:
                ready.recv(_DRAIN_BYTES)
            except BlockingIOError:
                continue

    def close(self) -> None:
        """Let everything go; the door is gone for others."""
        if self._door is not None and self._door_path is not None:
            self._door.close()
            self._door_path.unlink(missing_ok=True)
        self._read.close()
        self._write.close()


def knock(folder: Path) -> bool:
    """Wake the agent of a runtime folder; returns whether one is there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as knocking:
        knocking.setblocking(False)
        try:
            with _short(folder) as short:
                knocking.sendto(b"look", f"{short}/{SOCKET_NAME}")
        except BlockingIOError:
            return True
        except OSError:
            return False
    return True


@contextmanager
def _short(folder: Path) -> Iterator[str]:
    """A short name of a folder while the block runs: that of a socket may have a hundred bytes only."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)
