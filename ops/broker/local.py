"""The local broker: one Kafka per data folder, found again by who comes later."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ops.broker import jvm
from ops.broker.installation import ensure_installation
from ops.broker.local_process import LocalProcess, ProcessState, require_free
from ops.broker.settings import BrokerSettings

START_TIMEOUT_S: Final = 60.0
STATE_NAME: Final = "broker.json"


def default_data_dir() -> Path:
    """Returns the data folder of `intertidal broker start`: in INTERTIDAL_STATE_DIR or the user's state."""
    if own := os.environ.get("INTERTIDAL_STATE_DIR"):
        return Path(own).absolute() / "broker"
    user_state = os.environ.get("XDG_STATE_HOME")
    return (Path(user_state).absolute() if user_state else Path.home() / ".local/state") / "intertidal/broker"


@dataclass(frozen=True, slots=True)
class _State(ProcessState):
    """The broker's ports; the controller's is fixed when the folder is formatted."""

    controller_port: int


class LocalBroker(LocalProcess[_State]):
    """One local broker."""

    name = "broker"
    state_type = _State
    state_name = STATE_NAME
    start_timeout_s = START_TIMEOUT_S

    @property
    def bootstrap(self) -> str:
        """Returns host and port for clients; raises BrokerError when the folder has never had a broker."""
        return self._settings(self._known_state()).bootstrap

    @property
    def log_path(self) -> Path:
        """Returns the path of what the JVM prints."""
        return self.data_dir / "broker.log"

    @property
    def log(self) -> str:
        """Returns where the broker's log is read."""
        return str(self.log_path)

    def _fetch(self) -> None:
        ensure_installation()

    def _choose_ports(self, state: _State | None) -> _State:
        port = self._free_port(state)
        controller_port = state.controller_port if state else jvm.free_port()
        require_free(controller_port)
        return _State(port, None, controller_port)

    def _launch(self, state: _State) -> "subprocess.Popen[bytes]":
        installation = ensure_installation()
        settings = self._settings(state)
        jvm.set_log_aside(settings)
        jvm.write_properties(settings)
        if not settings.is_formatted:
            jvm.format_storage(installation.command("kafka.tools.StorageTool"), settings)
        return jvm.launch(installation.command("kafka.Kafka"), settings)

    def _wait_until_usable(self, state: _State, *, timeout_s: float) -> None:
        jvm.wait_until_usable(self._settings(state), is_alive=lambda: self._is_alive(state), timeout_s=timeout_s)

    def _runs(self, pid: int, state: _State) -> bool:
        return jvm.runs_broker(pid, self._settings(state))

    def _settings(self, state: _State) -> BrokerSettings:
        return BrokerSettings(state.port, controller_port=state.controller_port, data_dir=self.data_dir)
