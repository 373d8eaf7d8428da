"""The local Schema Registry as a process: one per data folder, found again by who comes later.

Its schemas are kept in the folder, as the broker keeps its records: an id in a topic must mean the same tomorrow.
"""

import subprocess
from pathlib import Path
from typing import Final

from ops.broker.local_process import LocalProcess, ProcessState
from ops.broker.registry_installation import ensure_registry_installation
from ops.broker.registry_process import launch, wait_until_it_answers
from ops.broker.registry_settings import RegistrySettings

START_TIMEOUT_S: Final = 120.0


class LocalRegistry(LocalProcess[ProcessState]):
    """One local registry."""

    name = "Schema Registry"
    state_type = ProcessState
    state_name = "registry.json"
    start_timeout_s = START_TIMEOUT_S

    @property
    def url(self) -> str:
        """Returns SCHEMA_REGISTRY_URL; raises BrokerError when the folder has never had a registry."""
        return self._settings(self._known_state()).url

    def _fetch(self) -> None:
        ensure_registry_installation()

    def _choose_ports(self, state: ProcessState | None) -> ProcessState:
        return ProcessState(self._free_port(state), None)

    def _launch(self, state: ProcessState) -> "subprocess.Popen[bytes]":
        settings = self._settings(state)
        return launch(ensure_registry_installation().command(settings), settings)

    def _wait_until_usable(self, state: ProcessState, *, timeout_s: float) -> None:
        wait_until_it_answers(self._settings(state), is_alive=lambda: self._is_alive(state), timeout_s=timeout_s)

    def _runs(self, pid: int, state: ProcessState) -> bool:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False
        marker = self._settings(state).database_url.encode()
        return any(argument.endswith(b"=" + marker) for argument in command.split(b"\0"))

    def _settings(self, state: ProcessState) -> RegistrySettings:
        return RegistrySettings(state.port, self.data_dir)


def registry_dir(broker_dir: Path) -> Path:
    """Returns the data folder of the registry that belongs to a broker's data folder."""
    return broker_dir / "registry"
