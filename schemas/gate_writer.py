"""The agent's end of a gate: flips it, keeps its lease, and waits until the rankers have given way."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from schemas.gate import (
    AGENT_PID_WORD,
    CLOSED_WORD,
    GATE_SIZE_BYTES,
    GENERATION_WORD,
    LEASE_WORD,
    NOTICE_WORD,
    NUM_SLOTS,
    OPEN_BYTE,
    OPENED_WORD,
    REASON_WORD,
    SLOT_GENERATION,
    SLOT_HEARTBEAT,
    SLOT_PID,
    SLOT_STATE,
    TAKEN,
    FlipReason,
    GateError,
    GateHeader,
    RankerSlot,
    gate_file_name,
    pack_gate,
    runtime_folder,
    slot_word,
    unpack_gate,
)
from schemas.gate_folder import Clock, GateFolder, ProcessStart, boot_id, map_gate, process_start


@dataclass(frozen=True)
class RankerDrain:
    """How fast one ranker gave way after a flip. Durations from the flip, 0 when it was idle already."""

    pid: int
    reaction_ns: int
    drained_after_ns: int


@dataclass(frozen=True)
class DrainReport:
    """What became of the rankers of a closed gate; `closed_ns` is the flip, on the monotonic clock."""

    generation: int
    closed_ns: int
    drained: tuple[RankerDrain, ...]
    dead_pids: tuple[int, ...]
    pending_pids: tuple[int, ...]


class GateWriter:
    """The agent's end. One per pool and host at a time: a lock on the file is held until `shutdown` or death.

    Each order of writes keeps it so that a reader never sees "open" with a lease that is not of this opening:
    the lease of a closed gate is 0, which has run out.

    Opening: 1. lease  2. time  3. reason  4. generation  5. byte.
    Closing: 1. byte  2. time  3. reason  4. generation  5. lease to 0, notice to 0.
    """

    def __init__(
        self,
        pool: str,
        *,
        folder: Path | None = None,
        clock_ns: Clock = time.monotonic_ns,
        starts: ProcessStart = process_start,
        host_boot_id: bytes | None = None,
    ) -> None:
        """Take the pool's gate, creating it if absent, and leave it closed.

        Raises GateError when another agent holds it, or folder or file cannot be trusted or is of another
        layout; ValueError for a pool name that is no file name.
        """
        self._clock_ns = clock_ns
        self._starts = starts
        boot = boot_id() if host_boot_id is None else host_boot_id
        base = runtime_folder() if folder is None else folder
        self.path = base / gate_file_name(pool)
        runtime = GateFolder(base, create=True)
        try:
            with runtime.locked(wait=True):
                runtime.create_gate_if_absent(pool, GateHeader(boot))
                self._fd = runtime.open_gate(pool)
                try:
                    self._take(boot)
                except GateError:
                    os.close(self._fd)
                    raise
        finally:
            runtime.close()

    def _take(self, boot: bytes) -> None:
        """Lock and map the file, and close what a killed agent left open; the folder's lock is held."""
        header, _ = unpack_gate(self.path, os.pread(self._fd, GATE_SIZE_BYTES + 1, 0))
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise GateError(self.path, f"another agent holds it, pid {header.agent_pid}") from None
        self._map = map_gate(self.path, self._fd)
        if header.boot_id != boot:
            # No reader of this boot is attached yet: each refuses a foreign boot id, and attaches under the
            # folder's lock.
            self._map[:] = pack_gate(GateHeader(boot))
        self._bytes = memoryview(self._map)
        self._words = self._bytes.cast("q")
        self._words[AGENT_PID_WORD] = os.getpid()
        if self._bytes[OPEN_BYTE] or self.generation % 2:
            self._flip_closed(FlipReason.AGENT_RESTARTED)

    @property
    def generation(self) -> int:
        """Flips so far; odd while open."""
        return self._words[GENERATION_WORD]

    @property
    def is_flipped_open(self) -> bool:
        """Whether the last flip was to open, whatever has become of the lease."""
        return self._bytes[OPEN_BYTE] == 1

    def open(self, *, lease_s: float) -> int:
        """Let optional work run for `lease_s` seconds. Returns the generation; an open gate is renewed."""
        lease_until_ns = self._lease_until_ns(lease_s)
        if self.renew(lease_s=lease_s):
            return self.generation
        self._words[LEASE_WORD] = lease_until_ns  # 1
        self._words[OPENED_WORD] = self._clock_ns()  # 2
        self._words[REASON_WORD] = FlipReason.OFFERED  # 3
        self._words[GENERATION_WORD] = self.generation + 1  # 4
        self._bytes[OPEN_BYTE] = 1  # 5
        return self.generation

    def renew(self, *, lease_s: float) -> bool:
        """Prolong the lease of an open gate. Returns whether it is open.

        A lease that has run out is not prolonged, as rankers have seen the gate closed: it is flipped to
        closed, and opening again is a flip of its own.
        """
        lease_until_ns = self._lease_until_ns(lease_s)
        if not self.is_flipped_open:
            return False
        if self._clock_ns() >= self._words[LEASE_WORD]:
            self._flip_closed(FlipReason.LEASE_EXPIRED)
            return False
        self._words[LEASE_WORD] = lease_until_ns
        return True

    def close(self, reason: FlipReason = FlipReason.RECLAIMED) -> int:
        """Stop optional work within one chunk. Returns the generation to be drained; twice is once."""
        if self.is_flipped_open:
            self._flip_closed(reason)
        return self.generation

    def notice(self, at_ns: int) -> None:
        """Announce a reclaim at a time of the monotonic clock, 0 to take it back; a closing clears it."""
        self._words[NOTICE_WORD] = at_ns

    def rankers(self) -> tuple[RankerSlot, ...]:
        """Return the slots that are taken, also by rankers that have died since."""
        return tuple(
            self._read_slot(slot) for slot in range(NUM_SLOTS) if self._words[slot_word(slot, SLOT_STATE)] == TAKEN
        )

    def wait_drained(
        self, timeout_s: float, *, poll_s: float = 0.0005, sleep: Callable[[float], None] = time.sleep
    ) -> DrainReport:
        """Wait until each live ranker has acknowledged the closing, or the time is over.

        Dead rankers do not block: their device memory went with them. Rankers that came after the flip had
        nothing to give back and are left out. Raises GateError when the gate is open.
        """
        deadline_ns = self._clock_ns() + int(timeout_s * 1e9)
        while True:
            report = self._drain_report()
            if not report.pending_pids or self._clock_ns() >= deadline_ns:
                return report
            sleep(poll_s)

    def shutdown(self) -> None:
        """Close the gate if it is open, and let go of the file, which stays for the next agent; twice is once."""
        if self._map.closed:
            return
        self.close(FlipReason.AGENT_STOPPED)
        self._words.release()
        self._bytes.release()
        self._map.close()
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def _lease_until_ns(self, lease_s: float) -> int:
        if not 0.0 < lease_s < 86_400.0:
            raise ValueError(f"lease_s {lease_s!r} is not in (0, 86400)")
        return self._clock_ns() + int(lease_s * 1e9)

    def _flip_closed(self, reason: FlipReason) -> None:
        self._bytes[OPEN_BYTE] = 0  # 1
        self._words[CLOSED_WORD] = self._clock_ns()  # 2
        self._words[REASON_WORD] = reason  # 3
        # 4. From odd to even; already even when an agent was killed between its steps 4 and 5 here.
        self._words[GENERATION_WORD] = self.generation + self.generation % 2
        self._words[LEASE_WORD] = 0  # 5
        self._words[NOTICE_WORD] = 0

    def _read_slot(self, slot: int) -> RankerSlot:
        """Read a slot that its ranker may be writing: the generation first, as the ranker writes it last."""
        generation = self._words[slot_word(slot, SLOT_GENERATION)]
        pid, pid_start, state, _, last_chunk_end_ns, drained_ns, heartbeat_ns = self._words[
            slot_word(slot, SLOT_PID) : slot_word(slot, SLOT_HEARTBEAT) + 1
        ]
        return RankerSlot(pid, pid_start, state, generation, last_chunk_end_ns, drained_ns, heartbeat_ns)

    def _drain_report(self) -> DrainReport:
        if self.is_flipped_open:
            raise GateError(self.path, "is open: there is nothing to drain")
        generation, closed_ns = self.generation, self._words[CLOSED_WORD]
        drained, dead, pending = [], [], []
        for slot in map(self._read_slot, range(NUM_SLOTS)):
            # Also one that has left since: its slot keeps what it said until another ranker takes it.
            if slot.generation == generation and slot.drained_ns:
                reaction_ns = max(0, slot.last_chunk_end_ns - closed_ns)
                drained.append(RankerDrain(slot.pid, reaction_ns, max(0, slot.drained_ns - closed_ns)))
            elif slot.state != TAKEN or slot.generation >= generation:
                continue
            elif self._starts(slot.pid) != slot.pid_start:
                dead.append(slot.pid)
            else:
                pending.append(slot.pid)
        return DrainReport(generation, closed_ns, tuple(drained), tuple(dead), tuple(pending))
