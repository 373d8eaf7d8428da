"""Taking pools of this host back from outside the agent, and watching their rankers give way.

1. a hold file says what is wanted, for how long and why, so that an agent that is just starting knows it too
2. the agent is woken: it flips the gate and tells Kafka, in this order
3. the gate's file is watched: the flip, then each ranker's word that it has given its device memory back

Where no agent holds the gate its lease has run out, or will; then the gate is taken, closed and let go from here.
"""

import fcntl
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from ops.agent.claim_files import HoldFile, holds_locked, write_hold
from ops.agent.wake import knock
from schemas.gate import GENERATION_WORD, GateError
from schemas.gate_drain import DrainReport, drain_report
from schemas.gate_file import GateFile
from schemas.gate_folder import GateFolder, ProcessStart, process_start
from schemas.gate_writer import GateWriter

_LOOK_S: Final = 0.002

State = Literal["drained", "draining", "open"]


class PoolReclaim(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What became of one pool.

    ``state``: ``drained`` when every ranker has given way, device memory included; ``draining`` while some have not;
    ``open`` where the gate was not flipped. ``waited_ms`` runs from the command's start to that state. ``closed_ms``
    runs to the flip, 0 for a pool that was closed before; ``last_chunk_ms`` and ``drained_ms`` run from the flip to the
    end of the last optional chunk and to the last ranker's word. ``had_agent`` is whether an agent held the gate.
    """

    pool: str
    state: State
    had_agent: bool
    waited_ms: float
    closed_ms: float | None
    last_chunk_ms: float | None
    drained_ms: float | None
    num_rankers: int
    dead_pids: list[int]
    pending_pids: list[int]


class ReclaimDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`intertidal reclaim --json`. Within one ``version`` nothing is renamed, removed or given another meaning."""

    version: Literal[1] = 1
    is_drained: bool
    waited_ms: float
    pools: list[PoolReclaim]


@dataclass(frozen=True, kw_only=True)
class Host:
    """Where the gates are, and the clocks: a stand-in in tests."""

    folder: Path
    clock_ns: Callable[[], int] = time.monotonic_ns
    wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    sleep: Callable[[float], None] = time.sleep
    starts: ProcessStart = process_start


def pools_of(folder: Path) -> list[str]:
    """Every pool that has a gate in a runtime folder. Raises GateError where there is none."""
    names = sorted(path.name.removesuffix(".gate") for path in folder.glob("[!.]*.gate"))
    if not names:
        raise GateError(folder, "has no gates: no agent has run here, or INTERTIDAL_RUNTIME_DIR names another folder")
    return names


def reclaim(pools: Sequence[str], host: Host, *, for_s: float, reason: str, timeout_s: float | None) -> ReclaimDocument:
    """Take pools back, all at once, and wait at most ``timeout_s`` for their rankers; None: do not wait.

    Raises GateError for a pool without a gate, before anything is done.
    """
    began_ns = host.clock_ns()
    watched = [_Watched(pool, host) for pool in pools]
    try:
        now_ms = host.wall_ms()
        hold = HoldFile(starts_ms=0, ends_ms=now_ms + round(for_s * 1e3), reason=reason)
        with holds_locked(host.folder, wait=True):
            try:
                for pool in pools:
                    write_hold(host.folder, pool, hold)  # 1
            except OSError as error:
                raise GateError(
                    host.folder,
                    f"takes no claim ({error.strerror}): not all pools are reclaimed; SIGUSR1 to the agent takes all of"
                    " them back without a file",
                ) from error
        knock(host.folder)  # 2
        for each in watched:
            # Only now: no gate is opened any more that is not open yet.
            each.aim()
            each.close_without_agent()
        until_ns = began_ns + round((timeout_s or 0.0) * 1e9)
        while True:
            for each in watched:
                each.look(began_ns)  # 3
            if all(each.is_drained for each in watched) or host.clock_ns() >= until_ns:
                break
            host.sleep(_LOOK_S)
        found = [each.found(began_ns) for each in watched]
    finally:
        for each in watched:
            each.close()
    return ReclaimDocument(
        is_drained=all(each.state == "drained" for each in found),
        waited_ms=max(each.waited_ms for each in found),
        pools=found,
    )


class _Watched:
    """One gate, read as its agent flips it and its rankers answer."""

    def __init__(self, pool: str, host: Host) -> None:
        self._pool = pool
        self._host = host
        self._file = _opened(host.folder, pool)
        self._was_open = False
        self._wanted = 0
        self._had_agent = True
        self._report: DrainReport | None = None
        self._drained_at_ns: int | None = None

    @property
    def is_drained(self) -> bool:
        return self._drained_at_ns is not None

    def aim(self) -> None:
        """Rankers are waited for from this closing on: the one to come, or the last one."""
        generation = self._file.word(GENERATION_WORD)
        self._was_open = generation % 2 == 1
        self._wanted = generation + generation % 2

    def close_without_agent(self) -> None:
        """Flip the gate from here, if no agent holds it."""
        try:
            fcntl.flock(self._file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        fcntl.flock(self._file.fd, fcntl.LOCK_UN)
        try:
            with GateWriter(
                self._pool, folder=self._host.folder, clock_ns=self._host.clock_ns, starts=self._host.starts
            ):
                self._had_agent = False
        except GateError:
            # One has started in between: it has read the hold.
            return

    def look(self, began_ns: int) -> None:
        if self.is_drained:
            return
        try:
            if self._file.word(GENERATION_WORD) < self._wanted or self._file.look()[0]:
                return
            self._report = drain_report(self._file, self._host.starts)
        except GateError:
            # Broken under us, or flipped in between: the agent makes it anew, and closed.
            self._reopen()
            return
        if not self._report.pending_pids:
            self._drained_at_ns = max(began_ns, self._host.clock_ns())

    def found(self, began_ns: int) -> PoolReclaim:
        report = self._report
        now_ns = self._host.clock_ns() if self._drained_at_ns is None else self._drained_at_ns
        drained = () if report is None else report.drained
        gave_way = report is not None and not report.pending_pids
        return PoolReclaim(
            pool=self._pool,
            state="open" if report is None else "draining" if report.pending_pids else "drained",
            had_agent=self._had_agent,
            waited_ms=_ms(now_ns - began_ns),
            closed_ms=None if report is None else _ms(max(0, report.closed_ns - began_ns)) if self._was_open else 0.0,
            last_chunk_ms=_ms(max((each.reaction_ns for each in drained), default=0)) if gave_way else None,
            drained_ms=_ms(max((each.drained_after_ns for each in drained), default=0)) if gave_way else None,
            num_rankers=len(drained) + (len(report.pending_pids) if report is not None else 0),
            dead_pids=sorted(report.dead_pids) if report is not None else [],
            pending_pids=sorted(report.pending_pids) if report is not None else [],
        )

    def close(self) -> None:
        self._file.close()

    def _reopen(self) -> None:
        try:
            file = _opened(self._host.folder, self._pool)
        except GateError:
            return
        self._file.close()
        self._file = file


def _opened(folder: Path, pool: str) -> GateFile:
    gates = GateFolder(folder, create=False)
    try:
        fd = gates.open_gate(pool)
        try:
            return GateFile(folder / f"{pool}.gate", fd)
        except GateError:
            os.close(fd)
            raise
    finally:
        gates.close()


def _ms(duration_ns: int) -> float:
    return round(duration_ns / 1e6, 3)
