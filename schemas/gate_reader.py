"""A ranker's end of a gate: a look between chunks that costs next to nothing, and the word that it has drained."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from schemas.gate import (
    CLOSED_WORD,
    FREE,
    GENERATION_WORD,
    NOTICE_WORD,
    NUM_SLOTS,
    REASON_WORD,
    SLOT_DRAINED,
    SLOT_GENERATION,
    SLOT_HEARTBEAT,
    SLOT_LAST_CHUNK_END,
    SLOT_PID,
    SLOT_PID_START,
    SLOT_STATE,
    TAKEN,
    GateError,
    RankerSlot,
    gate_file_name,
    runtime_folder,
    slot_word,
)
from schemas.gate_file import GateFile
from schemas.gate_folder import Clock, GateFolder, ProcessStart, boot_id, process_start

# A ranker that is not let through looks this often whether the file has come or was replaced.
ATTACH_EVERY_NS: Final = 200_000_000


class GateReader:
    """A ranker's end: looks, and says when it has given way. Blind means closed: no state of the file raises.

    A ranker without a slot is not let through either, as the agent could not wait for it. One thread only.
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
        """Attach to the pool's gate if it is there, else later. Raises ValueError for a bad pool name."""
        self._clock_ns = clock_ns
        self._starts = starts
        self._pool = pool
        self._boot = boot_id() if host_boot_id is None else host_boot_id
        self._folder = runtime_folder() if folder is None else folder
        self.path = self._folder / gate_file_name(pool)
        self._file: GateFile | None = None
        self._inode: int | None = None
        self._slot = 0
        self.problem: str | None = None
        self._next_attach_ns = 0
        self._attach(clock_ns())

    def is_open(self, now_ns: int | None = None) -> bool:
        """Return whether optional work may run now: the byte is 1 and the lease has not run out.

        The look between chunks: one short read while the gate is open.
        """
        if now_ns is None:
            now_ns = self._clock_ns()
        if self._file is not None:
            try:
                is_flipped_open, lease_until_ns = self._file.look()
            except (GateError, OSError) as error:
                self._lose(error)
            else:
                if is_flipped_open and now_ns < lease_until_ns:
                    return True
        if now_ns >= self._next_attach_ns:
            self._attach(now_ns)
        return False

    @property
    def is_attached(self) -> bool:
        """Whether a gate is open here and a slot held; `problem` says why not."""
        return self._file is not None

    @property
    def generation(self) -> int:
        """Flips so far; another number than at the last look tells of a closing in between. 0 while blind."""
        return self._word(GENERATION_WORD)

    @property
    def closed_ns(self) -> int:
        """Time of the last flip to closed, 0 for never."""
        return self._word(CLOSED_WORD)

    @property
    def notice_ns(self) -> int:
        """When a reclaim is announced for, 0 for none."""
        return self._word(NOTICE_WORD)

    @property
    def reason(self) -> int:
        """Why the gate was flipped last: a FlipReason, or the number of a newer agent's reason."""
        return self._word(REASON_WORD)

    def closing_to_acknowledge(self) -> int | None:
        """Return the generation of a closing that this ranker has not acknowledged yet, None when there is none.

        A look can find the gate closed a moment before the closing has its number: ask again at the next look.
        """
        generation = self.generation
        if generation % 2 or not self.is_attached:
            return None
        return generation if generation > self._word(slot_word(self._slot, SLOT_GENERATION)) else None

    def acknowledge(self, generation: int, *, last_chunk_end_ns: int, drained_ns: int) -> None:
        """Say that the closing is obeyed and device memory free. Without a slot there is nobody to tell.

        `generation` is that of `closing_to_acknowledge`; `last_chunk_end_ns` the end of the last optional chunk.
        1. times  2. generation, which makes the agent read them.
        """
        if not self.is_attached:
            return
        self._put(SLOT_LAST_CHUNK_END, last_chunk_end_ns)  # 1
        self._put(SLOT_DRAINED, drained_ns)
        self._put(SLOT_HEARTBEAT, self._clock_ns())
        self._put(SLOT_GENERATION, generation)  # 2

    def heartbeat(self, now_ns: int | None = None) -> None:
        """Show the agent that this ranker still looks."""
        if self.is_attached:
            self._put(SLOT_HEARTBEAT, self._clock_ns() if now_ns is None else now_ns)

    def close(self) -> None:
        """Give the slot back, device memory being free, and let go of the file: closed from then on."""
        self._detach()
        self.problem = "closed by its ranker"
        self._next_attach_ns = sys.maxsize

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _word(self, index: int) -> int:
        """One word of the file; 0 while blind."""
        if self._file is None:
            return 0
        try:
            return self._file.word(index)
        except (GateError, OSError) as error:
            self._lose(error)
            return 0

    def _put(self, field: int, value: int) -> None:
        if self._file is None:
            return
        try:
            self._file.put(slot_word(self._slot, field), value)
        except (GateError, OSError) as error:
            self._lose(error)

    def _lose(self, error: Exception) -> None:
        """The file broke under us: blind until its agent has made a new one."""
        self.problem = str(error)
        if self._file is not None:
            self._file.close()
        self._file = self._inode = None

    def _detach(self) -> None:
        self._put(SLOT_STATE, FREE)
        if self._file is not None:
            self._file.close()
        self._file = self._inode = None

    def _attach(self, now_ns: int) -> None:
        """Open the file under the pool's name, unless it is the one open already, and claim a slot."""
        self._next_attach_ns = now_ns + ATTACH_EVERY_NS
        try:
            runtime = GateFolder(self._folder, create=False)
        except (GateError, OSError) as error:
            self._detach()
            self.problem = str(error)
            return
        try:
            if self._inode is not None and runtime.inode(self._pool) == self._inode:
                return
            self._detach()
            # Not waiting: a look must stay short even while a stopped process holds the lock.
            with runtime.locked(wait=False):
                self._open_and_claim(runtime)
            self.problem = None
        except BlockingIOError:
            self.problem = f"{self.path}: the folder is locked by another process"
        except (GateError, OSError) as error:
            self.problem = str(error)
        finally:
            runtime.close()

    def _open_and_claim(self, runtime: GateFolder) -> None:
        """Open the gate and take a free slot, or one whose process is gone; the folder's lock is held.

        1. the slot's fields  2. its state  3. only then is the gate looked at.
        """
        fd = runtime.open_gate(self._pool)
        try:
            file = GateFile(self.path, fd)
            header, slots = file.image()
            if header.boot_id != self._boot:
                raise GateError(self.path, "was left from before the host's last boot")
            free = [n for n in range(NUM_SLOTS) if not self._is_alive(slots[n])]
            if not free:
                raise GateError(self.path, f"all {NUM_SLOTS} slots are taken by live rankers")
            self._claim(file, free[0])
        except (GateError, OSError):
            os.close(fd)
            raise
        self._file, self._inode, self._slot = file, file.inode, free[0]  # 3

    def _claim(self, file: GateFile, slot: int) -> None:
        pid = os.getpid()
        # 1. A closing that came before this ranker asks nothing of it; the next one does.
        for field, value in (
            (SLOT_STATE, FREE),
            (SLOT_PID, pid),
            (SLOT_PID_START, self._starts(pid) or 0),
            (SLOT_LAST_CHUNK_END, 0),
            (SLOT_DRAINED, 0),
            (SLOT_HEARTBEAT, self._clock_ns()),
            (SLOT_GENERATION, file.word(GENERATION_WORD)),
        ):
            file.put(slot_word(slot, field), value)
        file.put(slot_word(slot, SLOT_STATE), TAKEN)  # 2

    def _is_alive(self, slot: RankerSlot) -> bool:
        return slot.state == TAKEN and self._starts(slot.pid) == slot.pid_start
