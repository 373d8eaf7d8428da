"""The gate files of one process: of its own host, or of many hosts that it plays, each in a folder of its own."""

import time
from pathlib import Path

from ops.agent.plans import AnnounceReclaim, CloseGate, GateStep, OpenGate, RenewGate
from schemas.gate_drain import DrainReport
from schemas.gate_folder import Clock
from schemas.gate_writer import GateWriter


class HostGates:
    """One gate per host and pool, held until ``shutdown``; all closed at first."""

    def __init__(self, *, lease_s: float, clock_ns: Clock = time.monotonic_ns) -> None:
        self._lease_s = lease_s
        self._clock_ns = clock_ns
        self._gates: dict[tuple[str, str], GateWriter] = {}

    def add(self, host: str, pool: str, folder: Path) -> None:
        """Take a gate; raises GateError when it cannot be taken, ValueError for a pool name that is no file name."""
        if (host, pool) not in self._gates:
            self._gates[host, pool] = GateWriter(pool, folder=folder, clock_ns=self._clock_ns)

    def take(self, host: str, step: GateStep) -> bool:
        """Do one step; False where a lease could not be renewed because it had run out."""
        gate = self._gates[host, step.pool]
        match step:
            case OpenGate():
                gate.open(lease_s=self._lease_s)
            case RenewGate():
                return gate.renew(lease_s=self._lease_s)
            case CloseGate(reason=reason):
                gate.close(reason)
            case AnnounceReclaim(at_ns=at_ns):
                gate.notice(at_ns)
        return True

    def look(self, host: str, pool: str) -> DrainReport:
        """What has become of a closed gate's rankers, without waiting for them."""
        return self._gates[host, pool].wait_drained(0.0)

    def ranker_pids(self) -> frozenset[int]:
        """Processes that have taken a slot of any gate here: what they use is not the owner's."""
        return frozenset().union(*(gate.ranker_pids() for gate in self._gates.values()))

    def shutdown(self) -> None:
        """Close every gate, then let go of the files."""
        for gate in self._gates.values():
            gate.close()
        for gate in self._gates.values():
            gate.shutdown()
