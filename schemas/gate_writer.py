"""The agent's end of a gate: flips it, keeps its lease, and waits until the rankers have given way."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from schemas.gate import (
    AGENT_PID_WORD,
    CLOSED_WORD,
    GENERATION_WORD,
    LEASE_WORD,
    NOTICE_WORD,
    NUM_SLOTS,
    OPENED_WORD,
    REASON_WORD,
    SLOT_PID,
    SLOT_PID_START,
    SLOT_STATE,
    SLOT_WORDS,
    TAKEN,
    FlipReason,
    GateError,
    GateHeader,
    RankerSlot,
    gate_file_name,
    pack_gate,
    runtime_folder,
    slot_word,
)
from schemas.gate_drain import DrainReport, drain_report, read_slot
from schemas.gate_file import BrokenGateError, GateFile, read_gate
from schemas.gate_folder import Clock, GateFolder, ProcessStart, boot_id, process_start

_log = logging.getLogger(__name__)


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
        """Take the pool's gate, creating it if absent or broken, and leave it closed.

        Raises GateError when another agent holds it, or folder or file cannot be trusted or is of another
        version; ValueError for a pool name that is no file name.
        """
        self._clock_ns = clock_ns
        self._starts = starts
        self._pool = pool
        self._boot = boot_id() if host_boot_id is None else host_boot_id
        self._folder = runtime_folder() if folder is None else folder
        self.path = self._folder / gate_file_name(pool)
        self._is_shut_down = False
        # As last written: a file made anew goes on from there.
        self._generation = 0
        self._file = self._taken()

    def _taken(self) -> GateFile:
        """The pool's gate, locked and closed: as a killed agent left it, or new where there is none, or a broken one.

        A file that is no gate, or not of a gate's size, cannot be in valid use: whoever reads it sees it closed, and
        finds the new one by its name.
        """
        runtime = GateFolder(self._folder, create=True)
        try:
            with runtime.locked(wait=True):
                if runtime.inode(self._pool) is None:
                    runtime.create_gate(self._pool, GateHeader(self._boot, generation=self._generation))
                fd = self._locked(runtime)
                try:
                    try:
                        read_gate(self.path, fd)
                    except BrokenGateError as error:
                        _log.warning("gate made anew: %s", error)
                        runtime.create_gate(self._pool, GateHeader(self._boot, generation=self._generation))
                        # Another file under the same name, so both can be locked for a moment.
                        broken, fd = fd, self._locked(runtime)
                        os.close(broken)
                    file = GateFile(self.path, fd)
                except GateError:
                    os.close(fd)
                    raise
                self._make_ours(file)
                return file
        finally:
            runtime.close()

    def _locked(self, runtime: GateFolder) -> int:
        """A descriptor of the pool's gate with the agent's lock on it."""
        fd = runtime.open_gate(self._pool)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = int.from_bytes(os.pread(fd, 8, 8 * AGENT_PID_WORD), "little")
            os.close(fd)
            raise GateError(self.path, f"another agent holds it, pid {pid}") from None
        return fd

    def _make_ours(self, file: GateFile) -> None:
        """Close what a killed agent left open; the folder's lock is held."""
        header, _ = file.image()
        if header.boot_id != self._boot:
            # No reader of this boot is attached yet: each refuses a foreign boot id, and attaches under the
            # folder's lock.
            file.overwrite(pack_gate(GateHeader(self._boot)))
        file.put(AGENT_PID_WORD, os.getpid())
        self._generation = file.word(GENERATION_WORD)
        if file.look()[0] or self._generation % 2:
            self._flip_closed(file, FlipReason.AGENT_RESTARTED)

    def _sound(self) -> GateFile:
        """The gate's file; made anew, closed, where somebody has broken it under us."""
        try:
            self._file.look()
        except (BrokenGateError, OSError):
            # Its rankers see it closed as well, and come to the new one, where none owes an answer for this closing.
            # With it goes the lock on it, which would keep us out ourselves.
            self._file.close()
            self._file = self._taken()
        return self._file

    @property
    def generation(self) -> int:
        """Flips so far; odd while open."""
        return self._sound().word(GENERATION_WORD)

    @property
    def is_flipped_open(self) -> bool:
        """Whether the last flip was to open, whatever has become of the lease."""
        return self._sound().look()[0]

    def open(self, *, lease_s: float) -> int:
        """Let optional work run for `lease_s` seconds. Returns the generation; an open gate is renewed."""
        lease_until_ns = self._lease_until_ns(lease_s)
        if self.renew(lease_s=lease_s):
            return self.generation
        file = self._sound()
        generation = file.word(GENERATION_WORD) + 1
        file.put(LEASE_WORD, lease_until_ns)  # 1
        file.put(OPENED_WORD, self._clock_ns())  # 2
        file.put(REASON_WORD, FlipReason.OFFERED)  # 3
        file.put(GENERATION_WORD, generation)  # 4
        file.put_open(True)  # 5
        self._generation = generation
        return generation

    def renew(self, *, lease_s: float) -> bool:
        """Prolong the lease of an open gate. Returns whether it is open.

        A lease that has run out is not prolonged, as rankers have seen the gate closed: it is flipped to
        closed, and opening again is a flip of its own.
        """
        lease_until_ns = self._lease_until_ns(lease_s)
        file = self._sound()
        is_flipped_open, until_ns = file.look()
        if not is_flipped_open:
            return False
        if self._clock_ns() >= until_ns:
            self._flip_closed(file, FlipReason.LEASE_EXPIRED)
            return False
        file.put(LEASE_WORD, lease_until_ns)
        return True

    def close(self, reason: FlipReason = FlipReason.RECLAIMED) -> int:
        """Stop optional work within one chunk. Returns the generation to be drained; twice is once."""
        file = self._sound()
        if file.look()[0]:
            self._flip_closed(file, reason)
        return file.word(GENERATION_WORD)

    def notice(self, at_ns: int) -> None:
        """Announce a reclaim at a time of the monotonic clock, 0 to take it back; a closing clears it."""
        self._sound().put(NOTICE_WORD, at_ns)

    def rankers(self) -> tuple[RankerSlot, ...]:
        """Return the slots that are taken, also by rankers that have died since."""
        file = self._sound()
        return tuple(slot for slot in (read_slot(file, number) for number in range(NUM_SLOTS)) if slot.state == TAKEN)

    def ranker_pids(self) -> frozenset[int]:
        """Return the live processes that have a slot: one read of the file, and no process that took over a pid."""
        slots = self._sound().words(slot_word(0, 0), NUM_SLOTS * SLOT_WORDS)
        taken = [at for at in range(0, len(slots), SLOT_WORDS) if slots[at + SLOT_STATE] == TAKEN]
        return frozenset(
            slots[at + SLOT_PID] for at in taken if self._starts(slots[at + SLOT_PID]) == slots[at + SLOT_PID_START]
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
            report = drain_report(self._sound(), self._starts)
            if not report.pending_pids or self._clock_ns() >= deadline_ns:
                return report
            sleep(poll_s)

    def shutdown(self) -> None:
        """Close the gate if it is open, and let go of the file, which stays for the next agent; twice is once."""
        if self._is_shut_down:
            return
        try:
            self.close(FlipReason.AGENT_STOPPED)
        finally:
            self._file.close()
            self._is_shut_down = True

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

    def _flip_closed(self, file: GateFile, reason: FlipReason) -> None:
        file.put_open(False)  # 1
        file.put(CLOSED_WORD, self._clock_ns())  # 2
        file.put(REASON_WORD, reason)  # 3
        generation = file.word(GENERATION_WORD)
        # 4. From odd to even; already even when an agent was killed between its steps 4 and 5 here.
        self._generation = generation + generation % 2
        file.put(GENERATION_WORD, self._generation)
        file.put(LEASE_WORD, 0)  # 5
        file.put(NOTICE_WORD, 0)
