"""Gates in memory: what `schemas.gate_writer` and `schemas.gate_reader` do with a file, with the times passed in.

A replica plays a batch to its end in one go, ahead of the clock of the simulation, so that a look may ask of a moment
that is yet to come. No replica has a say in when a gate is flipped: its agent's plans are known ahead, and whoever
looks has the agents do first what they do up to that moment (``ahead``). Each gate keeps what was true when, so that
one that looks ahead tells nothing to one that does not.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from ops.agent.moments import Now
from ops.agent.plans import AnnounceReclaim, CloseGate, GateStep, OpenGate, RenewGate
from ops.simulator.scenario_model import Host
from schemas.gate_drain import DrainReport, RankerDrain

# So many of a gate's last changes are kept: no batch lasts as long as they reach back.
_KEPT = 64


@dataclass(frozen=True, slots=True)
class _Said:
    """What the agent said at ``at_ns``; ``generation`` counts flips and is odd while open."""

    at_ns: int
    is_open: bool
    lease_until_ns: int
    generation: int


@dataclass(slots=True)
class _Slot:
    """What one ranker said: the closing it has obeyed, and when."""

    since_generation: int
    acknowledged: int = 0
    last_chunk_end_ns: int = 0
    drained_ns: int = 0
    gone_ns: int | None = None


class MemoryGate:
    """One pool of one host. ``on_closed`` is told of each closing: whoever waits idle looks soon."""

    def __init__(self, *, ahead: Callable[[int], None], on_closed: Callable[[int], None]) -> None:
        self._ahead = ahead
        self._on_closed = on_closed
        self._said = [_Said(0, False, 0, 0)]
        self._slots: list[_Slot] = []

    def at(self, now_ns: int) -> _Said:
        """What is true at a moment, also at one that is yet to come."""
        self._ahead(now_ns)
        return self._known(now_ns)

    def attach(self, now_ns: int) -> _Slot:
        """A place for a ranker. A closing before it came asks nothing of it."""
        generation = self.at(now_ns).generation
        slot = _Slot(since_generation=generation, acknowledged=generation)
        self._slots.append(slot)
        return slot

    def open(self, now_ns: int, *, lease_ns: int) -> None:
        """Let optional work run; an open gate is renewed."""
        if not self.renew(now_ns, lease_ns=lease_ns):
            self._say(_Said(now_ns, True, now_ns + lease_ns, self._said[-1].generation + 1))

    def renew(self, now_ns: int, *, lease_ns: int) -> bool:
        """Prolong the lease of an open gate; one that has run out is a closing, as rankers have seen it closed."""
        last = self._said[-1]
        if not last.is_open:
            return False
        if now_ns >= last.lease_until_ns:
            self.close(now_ns)
            return False
        self._say(_Said(now_ns, True, now_ns + lease_ns, last.generation))
        return True

    def close(self, now_ns: int) -> None:
        """Stop optional work; twice is once."""
        last = self._said[-1]
        if last.is_open:
            self._say(_Said(now_ns, False, 0, last.generation + 1))
            self._on_closed(now_ns)

    def look(self, now_ns: int) -> DrainReport:
        """What has become of a closed gate's rankers by now; the dead gave back all that they had."""
        last = self._said[-1]
        assert not last.is_open, "an open gate has nothing to drain"
        drained, dead, pending = [], [], []
        for number, slot in enumerate(self._slots):
            if slot.acknowledged >= last.generation and last.at_ns <= slot.drained_ns <= now_ns:
                reaction_ns = max(0, slot.last_chunk_end_ns - last.at_ns)
                drained.append(RankerDrain(number, reaction_ns, slot.drained_ns - last.at_ns))
            elif slot.gone_ns is not None and slot.gone_ns <= now_ns:
                dead.append(number)
            elif slot.since_generation < last.generation:
                pending.append(number)
        return DrainReport(last.generation, last.at_ns, tuple(drained), tuple(dead), tuple(pending))

    def _known(self, now_ns: int) -> _Said:
        for said in reversed(self._said):
            if said.at_ns <= now_ns:
                return said
        raise AssertionError("asked of a time before anything was said")

    def _say(self, said: _Said) -> None:
        self._said.append(said)
        if len(self._said) > _KEPT:
            del self._said[: -_KEPT // 2]


class RankerGate:
    """A ranker's end of a gate, as `ranking.consumer.permit.Permit` wants it."""

    def __init__(self, gate: MemoryGate, *, now_ns: int) -> None:
        self._gate = gate
        self._slot = gate.attach(now_ns)
        self._seen = gate.at(now_ns)

    def is_open(self, now_ns: int | None = None) -> bool:
        """Whether optional work may run: flipped open, and the lease has not run out."""
        assert now_ns is not None, "there is no clock here to ask"
        self._seen = self._gate.at(now_ns)
        return self._seen.is_open and now_ns < self._seen.lease_until_ns

    @property
    def generation(self) -> int:
        """Flips as of the last look."""
        return self._seen.generation

    def acknowledge(self, generation: int, *, last_chunk_end_ns: int, drained_ns: int) -> None:
        """Say that a closing is obeyed."""
        self._slot.acknowledged = generation
        self._slot.last_chunk_end_ns = last_chunk_end_ns
        self._slot.drained_ns = drained_ns

    def die(self, now_ns: int) -> None:
        """The ranker is gone without a word."""
        self._slot.gone_ns = now_ns


class FleetGates:
    """The gates of many hosts, as `ops.agent.runner.AgentRunner` wants them; ``clock`` is the agents'."""

    def __init__(
        self,
        hosts: Iterable[Host],
        *,
        lease_ns: int,
        clock: Callable[[], Now],
        ahead: Callable[[int], None],
        on_closed: Callable[[str, int], None],
    ) -> None:
        self._lease_ns = lease_ns
        self._clock = clock
        self._gates: dict[tuple[str, str], MemoryGate] = {}
        for host in hosts:
            self._gates[host.name, host.accelerator] = MemoryGate(ahead=ahead, on_closed=partial(on_closed, host.name))

    def of(self, host: Host) -> MemoryGate:
        """The gate of a host's pool."""
        return self._gates[host.name, host.accelerator]

    def take(self, host: str, step: GateStep) -> bool:
        """Do one step; False where a lease could not be renewed because it had run out."""
        gate, now_ns = self._gates[host, step.pool], self._clock().mono_ns
        match step:
            case OpenGate():
                gate.open(now_ns, lease_ns=self._lease_ns)
            case RenewGate():
                return gate.renew(now_ns, lease_ns=self._lease_ns)
            case CloseGate():
                gate.close(now_ns)
            case AnnounceReclaim():
                # Nobody looks at a notice in the gate; the controller learns of it from the record.
                pass
        return True

    def look(self, host: str, pool: str) -> DrainReport:
        """What has become of a closed gate's rankers."""
        return self._gates[host, pool].look(self._clock().mono_ns)
