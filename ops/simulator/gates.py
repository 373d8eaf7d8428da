"""The gate files of many simulated hosts, each in a runtime folder of its own."""

import time
from collections.abc import Iterable
from pathlib import Path

from ops.simulator.host_agent import AnnounceReclaim, CloseGate, GateStep, OpenGate, RenewGate
from ops.simulator.scenario_model import Host
from schemas.gate_folder import Clock
from schemas.gate_writer import DrainReport, GateWriter


def host_folder(base_dir: Path, host: str) -> Path:
    """Runtime folder of a simulated host: what its rankers get as INTERTIDAL_RUNTIME_DIR."""
    return base_dir / host


class HostGates:
    """One gate per host and accelerator kind, held until ``shutdown``; all closed at first."""

    def __init__(
        self, hosts: Iterable[Host], base_dir: Path, *, lease_s: float, clock_ns: Clock = time.monotonic_ns
    ) -> None:
        """Take all gates; raises GateError, holding none, when one cannot be taken."""
        self._lease_s = lease_s
        self._gates: dict[tuple[str, str], GateWriter] = {}
        try:
            for host in hosts:
                folder = host_folder(base_dir, host.name)
                self._gates[host.name, host.accelerator] = GateWriter(
                    host.accelerator, folder=folder, clock_ns=clock_ns
                )
        except BaseException:
            self.shutdown()
            raise

    def take(self, host: str, step: GateStep) -> bool:
        """Do one step; False where a lease could not be renewed because it had run out."""
        gate = self._gates[host, step.accelerator]
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

    def look(self, host: str, accelerator: str) -> DrainReport:
        """What has become of a closed gate's rankers, without waiting for them."""
        return self._gates[host, accelerator].wait_drained(0.0)

    def shutdown(self) -> None:
        """Close every gate, then let go of the files."""
        for gate in self._gates.values():
            gate.close()
        for gate in self._gates.values():
            gate.shutdown()
