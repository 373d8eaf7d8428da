"""One open gate file, read and written through its descriptor: a file that somebody cut short raises, and ends nobody.

A mapping of it would end the process with SIGBUS on the next touch. A call of the kernel costs a microsecond or two,
and moves an aligned word whole, as a load or store does; whoever maps the file sees each at once, and the other way
round.
"""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path
from typing import Final

from schemas.gate import (
    GATE_SIZE_BYTES,
    MAGIC,
    NUM_SLOTS,
    OPEN_BYTE,
    VERSION,
    GateError,
    GateHeader,
    RankerSlot,
    unpack_gate,
)

_FRAME: Final = struct.pack("<8sII", MAGIC, VERSION, NUM_SLOTS)
# What a look needs: frame, word of the open byte, lease.
_LOOK: Final = struct.Struct(f"<{len(_FRAME)}sqq")
_WORD: Final = struct.Struct("<q")
_OPEN_WORD: Final = OPEN_BYTE // 8


class BrokenGateError(GateError):
    """A gate file that is no gate any more: cut short, or written over. Nobody can be using it rightly."""


class GateFile:
    """Words of one gate file. Each call raises BrokenGateError when the file is not of a gate's size or frame."""

    def __init__(self, path: Path, fd: int) -> None:
        """Take over an open descriptor; raises GateError when the file is not of this layout."""
        if sys.byteorder != "little":
            raise GateError(path, "needs a little-endian host, as others read its words in place")
        self.path = path
        self.fd = fd
        self.image()

    def close(self) -> None:
        """Close the descriptor, and with it any lock on it; twice is once."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    @property
    def inode(self) -> int:
        return os.fstat(self.fd).st_ino

    def image(self) -> tuple[GateHeader, tuple[RankerSlot, ...]]:
        """Header and slots; raises GateError where they are of another layout."""
        return read_gate(self.path, self.fd)

    def look(self) -> tuple[bool, int]:
        """Whether the byte says open, and until when the lease runs, ns."""
        # All of it, as its length is part of what is asked: no dearer than a look at its size.
        seen = os.pread(self.fd, GATE_SIZE_BYTES + 1, 0)
        if len(seen) != GATE_SIZE_BYTES or not seen.startswith(_FRAME):
            raise BrokenGateError(self.path, "is no gate any more")
        _, open_word, lease_until_ns = _LOOK.unpack_from(seen)
        return open_word & 0xFF == 1, lease_until_ns

    def word(self, index: int) -> int:
        """One word."""
        return self.words(index, 1)[0]

    def words(self, index: int, count: int) -> tuple[int, ...]:
        """Words in a row."""
        seen = os.pread(self.fd, 8 * count, 8 * index)
        if len(seen) < 8 * count:
            raise BrokenGateError(self.path, "was cut short")
        return struct.unpack(f"<{count}q", seen)

    def put(self, index: int, value: int) -> None:
        """Write one word."""
        # Without a look at its size, a write behind the end of a file that was cut short would fill it with nothing.
        if os.fstat(self.fd).st_size != GATE_SIZE_BYTES:
            raise BrokenGateError(self.path, "is not of a gate's size any more")
        os.pwrite(self.fd, _WORD.pack(value), 8 * index)

    def put_open(self, is_open: bool) -> None:
        """Write the open byte, and nothing beside it."""
        self.put(_OPEN_WORD, int(is_open))

    def overwrite(self, image: bytes) -> None:
        """Write a whole gate; nobody else uses the file."""
        os.pwrite(self.fd, image, 0)


def read_gate(path: Path, fd: int) -> tuple[GateHeader, tuple[RankerSlot, ...]]:
    """Header and slots of an open file.

    Raises BrokenGateError when it is no gate, GateError when it is one of another version, which may be in use.
    """
    seen = os.pread(fd, GATE_SIZE_BYTES + 1, 0)
    try:
        return unpack_gate(path, seen)
    except GateError as error:
        if len(seen) >= len(_FRAME) and seen.startswith(MAGIC) and not seen.startswith(_FRAME):
            raise
        raise BrokenGateError(path, error.reason) from None
