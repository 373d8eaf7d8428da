"""The gate's file format: one word per pool on a host that says whether optional work may run now.

`<pool>.gate` in the runtime folder is read and written in place by the host's agent, which alone writes the header, and
by the rankers, each of which writes one slot. It may be mapped into memory; these programs do without, as a file that
somebody cuts short would end whoever has it mapped. All fields are little-endian and, but for the magic and the
version, 8-byte words at multiples of 8, so that one aligned store or load moves each whole on x86-64 and arm64.

    word  header (128 bytes)                        word  ranker slot (64 bytes each, NUM_SLOTS of them)
    0     magic "ITDLGATE"                          0     pid
    1     version u32, number of slots u32          1     start time of the pid (/proc/PID/stat field 22)
    2     byte 0: 1 open, 0 closed                  2     state: 0 free, 1 taken
    3     lease until, ns                           3     generation acknowledged as drained
    4     generation: flips so far; odd is open     4     end of the last optional chunk, ns
    5     last flip to open, ns                     5     drained: device memory free, ns
    6     last flip to closed, ns                   6     heartbeat, ns
    7     reason of the last flip                   7     reserved
    8     notice: a reclaim comes at, ns; 0: none
    9     pid of the agent
    10-11 boot id of the host
    12-15 reserved

Times are the host's CLOCK_MONOTONIC, which all its processes share and which starts again at a boot; hence
the boot id: a lease left over from before a boot must not be believed. Open means: the byte is 1 and the lease
has not run out. Agent and rankers run as one user and see the same process ids (one pid namespace).
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

MAGIC: Final = b"ITDLGATE"
VERSION: Final = 1
NUM_SLOTS: Final = 64

HEADER_STRUCT: Final = struct.Struct("<8sIIB7x7q16s32x")
SLOT_STRUCT: Final = struct.Struct("<7q8x")
GATE_SIZE_BYTES: Final = HEADER_STRUCT.size + NUM_SLOTS * SLOT_STRUCT.size

# Where live code reads and writes single fields: a byte offset, and indices of 8-byte words.
OPEN_BYTE: Final = 16
LEASE_WORD: Final = 3
GENERATION_WORD: Final = 4
OPENED_WORD: Final = 5
CLOSED_WORD: Final = 6
REASON_WORD: Final = 7
NOTICE_WORD: Final = 8
AGENT_PID_WORD: Final = 9

SLOT_PID: Final = 0
SLOT_PID_START: Final = 1
SLOT_STATE: Final = 2
SLOT_GENERATION: Final = 3
SLOT_LAST_CHUNK_END: Final = 4
SLOT_DRAINED: Final = 5
SLOT_HEARTBEAT: Final = 6
SLOT_WORDS: Final = SLOT_STRUCT.size // 8

FREE: Final = 0
TAKEN: Final = 1

_POOL_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


class GateError(Exception):
    """A gate file that cannot be used; names the file and the reason."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class FlipReason(IntEnum):
    """Why a gate was flipped last. A reader may meet a number that a newer agent wrote."""

    NEVER_FLIPPED = 0
    OFFERED = 1
    RECLAIMED = 2
    LEASE_EXPIRED = 3
    AGENT_STOPPED = 4
    AGENT_RESTARTED = 5
    OPERATOR = 6


@dataclass(frozen=True)
class GateHeader:
    """What the agent says. Times in ns of the host's monotonic clock, 0 for never."""

    boot_id: bytes
    is_open: bool = False
    lease_until_ns: int = 0
    generation: int = 0
    opened_ns: int = 0
    closed_ns: int = 0
    reason: int = FlipReason.NEVER_FLIPPED
    notice_ns: int = 0
    agent_pid: int = 0

    def pack(self) -> bytes:
        """Return the 128 bytes of the header."""
        return HEADER_STRUCT.pack(
            MAGIC,
            VERSION,
            NUM_SLOTS,
            self.is_open,
            self.lease_until_ns,
            self.generation,
            self.opened_ns,
            self.closed_ns,
            self.reason,
            self.notice_ns,
            self.agent_pid,
            self.boot_id,
        )


@dataclass(frozen=True)
class RankerSlot:
    """What one ranker says. Times in ns of the host's monotonic clock, 0 for never."""

    pid: int = 0
    pid_start: int = 0
    state: int = FREE
    generation: int = 0
    last_chunk_end_ns: int = 0
    drained_ns: int = 0
    heartbeat_ns: int = 0

    def pack(self) -> bytes:
        """Return the 64 bytes of the slot."""
        return SLOT_STRUCT.pack(
            self.pid,
            self.pid_start,
            self.state,
            self.generation,
            self.last_chunk_end_ns,
            self.drained_ns,
            self.heartbeat_ns,
        )


def pack_gate(header: GateHeader) -> bytes:
    """Return the bytes of a whole gate file whose slots are all free."""
    return header.pack() + RankerSlot().pack() * NUM_SLOTS


def unpack_gate(path: Path, image: bytes) -> tuple[GateHeader, tuple[RankerSlot, ...]]:
    """Return header and slots of a gate file's bytes. Raises GateError when they are not of this layout."""
    if len(image) < HEADER_STRUCT.size:
        raise GateError(path, f"too short for a gate: {len(image)} bytes")
    magic, version, num_slots, open_byte, *fields, boot_id = HEADER_STRUCT.unpack_from(image)
    if magic != MAGIC:
        raise GateError(path, f"not a gate: it starts with {magic!r}")
    if (version, num_slots) != (VERSION, NUM_SLOTS):
        raise GateError(
            path,
            f"layout version {version} with {num_slots} slots; this program speaks version {VERSION} with "
            f"{NUM_SLOTS}: stop all that use the file, then remove it",
        )
    if len(image) != GATE_SIZE_BYTES:
        raise GateError(path, f"{len(image)} bytes, a gate has {GATE_SIZE_BYTES}")
    slots = tuple(RankerSlot(*words) for words in SLOT_STRUCT.iter_unpack(image[HEADER_STRUCT.size :]))
    return GateHeader(boot_id, open_byte == 1, *fields), slots


def slot_word(slot: int, field: int) -> int:
    """Return the index of a slot's field among the file's 8-byte words."""
    return (HEADER_STRUCT.size + slot * SLOT_STRUCT.size) // 8 + field


def runtime_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return INTERTIDAL_RUNTIME_DIR, or intertidal/ under XDG_RUNTIME_DIR, or /tmp/intertidal-<uid>.

    Not the temporary folder of TMPDIR: agent and rankers must find the same one.
    """
    if configured := environment.get("INTERTIDAL_RUNTIME_DIR"):
        return Path(configured)
    if session := environment.get("XDG_RUNTIME_DIR"):
        return Path(session) / "intertidal"
    return Path("/tmp") / f"intertidal-{os.geteuid()}"


def gate_file_name(pool: str) -> str:
    """Return the pool's file name. Raises ValueError for a name that is no plain file name."""
    if not _POOL_NAME.fullmatch(pool):
        raise ValueError(f"pool {pool!r}: letters, digits, '.', '_' and '-', at most 100, no leading '.' or '-'")
    return f"{pool}.gate"
