"""The gate files of one process: of its own host, or of many hosts that it plays, each in a folder of its own."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ops.agent.claim_files import holds_locked, is_held
from ops.agent.plans import AnnounceReclaim, CloseGate, GateStep, OpenGate, RenewGate
from ops.telemetry.logs import get_log
from schemas.gate import GateError
from schemas.gate_drain import DrainReport
from schemas.gate_folder import Clock
from schemas.gate_writer import GateWriter

_LOG = get_log(__name__)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class HostGates:
    """One gate per host and pool, held until ``shutdown``; all closed at first."""

    def __init__(
        self, *, lease_s: float, clock_ns: Clock = time.monotonic_ns, wall_ms: Callable[[], int] = _wall_ms
    ) -> None:
        self._lease_s = lease_s
        self._clock_ns = clock_ns
        self._wall_ms = wall_ms
        self._gates: dict[tuple[str, str], GateWriter] = {}

    def add(self, host: str, pool: str, folder: Path) -> None:
        """Take a gate; raises GateError when it cannot be taken, ValueError for a pool name that is no file name."""
        if (host, pool) not in self._gates:
            self._gates[host, pool] = GateWriter(pool, folder=folder, clock_ns=self._clock_ns)

    def take(self, host: str, step: GateStep) -> bool:
        """Do one step; False where a lease had run out before it was renewed, or what is to be opened is claimed."""
        gate = self._gates[host, step.pool]
        match step:
            case OpenGate():
                return self._open(gate, step.pool)
            case RenewGate():
                return gate.renew(lease_s=self._lease_s)
            case CloseGate(reason=reason):
                gate.close(reason)
            case AnnounceReclaim(at_ns=at_ns):
                # One that was not opened after all has nobody to tell, and must not tell the next ones.
                if gate.is_flipped_open:
                    gate.notice(at_ns)
        return True

    def _open(self, gate: GateWriter, pool: str) -> bool:
        """Open a gate, unless a hold has been written since the owner's claims were looked at."""
        folder = gate.path.parent
        try:
            with holds_locked(folder, wait=False):
                if is_held(folder, pool, self._wall_ms()):
                    return False
                gate.open(lease_s=self._lease_s)
        except BlockingIOError:
            # Somebody is writing one; a gate must not wait for whoever that is.
            return False
        return True

    def look(self, host: str, pool: str) -> DrainReport:
        """What has become of a closed gate's rankers, without waiting for them."""
        return self._gates[host, pool].wait_drained(0.0)

    def ranker_pids(self) -> frozenset[int]:
        """Processes that have a slot of any gate here: what they use is not the owner's."""
        pids: frozenset[int] = frozenset()
        for gate in self._gates.values():
            # One that cannot be read is told of by the steps that it is to take.
            with suppress(GateError, OSError):
                pids |= gate.ranker_pids()
        return pids

    def shutdown(self) -> None:
        """Close every gate, then let go of the files; one that cannot be closed keeps no other one open."""
        for end in (GateWriter.close, GateWriter.shutdown):
            for gate in self._gates.values():
                try:
                    end(gate)
                except (GateError, OSError) as error:
                    _LOG.error("a gate cannot be closed", gate=str(gate.path), error=str(error))
