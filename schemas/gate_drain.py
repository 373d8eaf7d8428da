"""What became of the rankers of a closed gate, as its agent sees it, or anyone else who may read the file."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.gate import (
    CLOSED_WORD,
    GENERATION_WORD,
    NUM_SLOTS,
    SLOT_GENERATION,
    SLOT_HEARTBEAT,
    SLOT_PID,
    TAKEN,
    GateError,
    RankerSlot,
    slot_word,
)
from schemas.gate_file import GateFile
from schemas.gate_folder import ProcessStart


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


def drain_report(file: GateFile, starts: ProcessStart) -> DrainReport:
    """Who has given way since the last closing, who has died, and who is still to answer.

    Raises GateError when the gate is open.
    """
    if file.look()[0]:
        raise GateError(file.path, "is open: there is nothing to drain")
    generation, closed_ns = file.word(GENERATION_WORD), file.word(CLOSED_WORD)
    drained, dead, pending = [], [], []
    for slot in (read_slot(file, number) for number in range(NUM_SLOTS)):
        # Also one that has left since: its slot keeps what it said until another ranker takes it.
        if slot.generation == generation and slot.drained_ns:
            reaction_ns = max(0, slot.last_chunk_end_ns - closed_ns)
            drained.append(RankerDrain(slot.pid, reaction_ns, max(0, slot.drained_ns - closed_ns)))
        elif slot.state != TAKEN or slot.generation >= generation:
            continue
        elif starts(slot.pid) != slot.pid_start:
            dead.append(slot.pid)
        else:
            pending.append(slot.pid)
    return DrainReport(generation, closed_ns, tuple(drained), tuple(dead), tuple(pending))


def read_slot(file: GateFile, slot: int) -> RankerSlot:
    """A slot that its ranker may be writing: the generation first, as the ranker writes it last."""
    generation = file.word(slot_word(slot, SLOT_GENERATION))
    pid, pid_start, state, _, last_chunk_end_ns, drained_ns, heartbeat_ns = file.words(
        slot_word(slot, SLOT_PID), SLOT_HEARTBEAT - SLOT_PID + 1
    )
    return RankerSlot(pid, pid_start, state, generation, last_chunk_end_ns, drained_ns, heartbeat_ns)
