"""The local broker: one Kafka per data folder, found again by who comes later."""

import os
import shutil
import subprocess
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Self

from ops.broker import jvm
from ops.broker.data_folder import locked, read_state, write_state
from ops.broker.installation import ensure_installation
from ops.broker.prerequisites import BrokerError
from ops.broker.settings import LOOPBACK, BrokerSettings

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 20.0
STATE_NAME: Final = "broker.json"


def default_data_dir() -> Path:
    """Returns the data folder of `intertidal broker start`: in INTERTIDAL_STATE_DIR or the user's state."""
    if own := os.environ.get("INTERTIDAL_STATE_DIR"):
        return Path(own).absolute() / "broker"
    user_state = os.environ.get("XDG_STATE_HOME")
    return (Path(user_state).absolute() if user_state else Path.home() / ".local/state") / "intertidal/broker"


@dataclass(frozen=True, slots=True)
class _State:
    """What the data folder remembers between runs; `pid` is None after a clean stop."""

    port: int
    controller_port: int
    pid: int | None


class LocalBroker:
    """One local broker. As a context manager it is started on entry and stopped on exit.

    Without a data folder it gets one of its own, which a stop by `__exit__` removes. With one, data and
    ports are the same at every start: after `stop`, after `kill`, and after a crash. A broker that already
    runs on the folder is adopted by `start`, whoever started it.
    """

    def __init__(self, data_dir: Path | None = None, *, port: int | None = None) -> None:
        """Takes the data folder and the port; a free port unless given or remembered in the folder."""
        self._is_temporary = data_dir is None
        folder = Path(tempfile.mkdtemp(prefix="intertidal-broker-")) if data_dir is None else data_dir.absolute()
        self.data_dir = folder
        self._wanted_port = port
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """Returns host and port for clients; raises BrokerError when the folder has never had a broker."""
        state = self._read_state()
        if state is None:
            raise BrokerError(f"no broker has been started in {self.data_dir}")
        return self._settings(state).bootstrap

    @property
    def pid(self) -> int | None:
        """Returns the process id of the running broker, None when none runs."""
        state = self._read_state()
        if state is None or state.pid is None or not self._is_alive(state):
            return None
        return state.pid

    @property
    def log_path(self) -> Path:
        """Returns the path of what the JVM prints."""
        return self.data_dir / "broker.log"

    @property
    def log(self) -> str:
        """Returns where the broker's log is read."""
        return str(self.log_path)

    def start(self, *, timeout_s: float = START_TIMEOUT_S) -> Self:
        """Returns itself once the broker can be used; adopts one that already runs on the folder.

        1. A live broker of this folder is adopted, unless it is just ending. A pid left by a crash, or now
           another's, is forgotten.
        2. The jars are fetched when this is the first use.
        3. Ports: as given, as remembered, or free ones.
        4. A new folder is formatted.
        5. The process is launched, and remembered before it is waited for: a crash of ours leaves a trace.
        6. What does not become usable is ended.

        Raises:
            BrokerError: one line that says what is missing or which log to read.
        """
        with locked(self.data_dir):
            # 1.
            state = self._read_state()
            if state is not None and self._is_alive(state):
                if self._wanted_port not in (None, state.port):
                    raise BrokerError(f"a broker already runs on {self.data_dir}, on port {state.port}")
                if self._adopt(state, timeout_s=timeout_s):
                    return self
            # 2.
            installation = ensure_installation()
            # 3.
            state = self._choose_ports(state)
            settings = self._settings(state)
            jvm.set_log_aside(settings)
            jvm.write_properties(settings)
            # 4.
            if not settings.is_formatted:
                jvm.format_storage(installation.command("kafka.tools.StorageTool"), settings)
            # 5.
            child = jvm.launch(installation.command("kafka.Kafka"), settings)
            self._child = child
            self._write_state(_State(state.port, state.controller_port, child.pid))
            # 6.
            try:
                jvm.wait_until_usable(settings, is_alive=lambda: child.poll() is None, timeout_s=timeout_s)
            except BaseException:
                self._end(timeout_s=0.0)
                raise
        return self

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Stops this folder's broker, whoever started it; keeps its data. Returns whether one was running."""
        with locked(self.data_dir):
            return self._end(timeout_s=timeout_s)

    def kill(self) -> bool:
        """Ends the broker with SIGKILL, as a crash would; keeps its data. Returns whether one was running."""
        with locked(self.data_dir):
            return self._end(timeout_s=0.0)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._is_temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def _adopt(self, state: _State, *, timeout_s: float) -> bool:
        """Returns whether the process that runs can be used; False when it ends instead: it was a leftover."""
        try:
            jvm.wait_until_usable(self._settings(state), is_alive=lambda: self._is_alive(state), timeout_s=timeout_s)
        except BrokerError:
            if self._is_alive(state):
                raise
            return False
        return True

    def _end(self, *, timeout_s: float) -> bool:
        """Ends the running broker, with SIGKILL at once when there is no time; remembers its ports alone."""
        state = self._read_state()
        if state is None or state.pid is None:
            return False
        pid = state.pid
        was_alive = self._is_alive(state)
        if was_alive and timeout_s > 0:
            jvm.terminate(pid, is_alive=lambda: self._is_alive(state), timeout_s=timeout_s)
        elif was_alive:
            jvm.kill(pid, is_alive=lambda: self._is_alive(state))
        self._child = None
        self._write_state(replace(state, pid=None))
        return was_alive

    def _choose_ports(self, state: _State | None) -> _State:
        """Returns the ports to start on; the controller's is fixed when the folder is formatted."""
        port = self._wanted_port or (state.port if state else jvm.free_port())
        controller_port = state.controller_port if state else jvm.free_port()
        for taken in (port, controller_port):
            if not jvm.is_port_free(taken):
                raise BrokerError(f"port {taken} on {LOOPBACK} is in use by another process")
        return _State(port, controller_port, pid=None)

    def _is_alive(self, state: _State) -> bool:
        """Returns whether the remembered process lives and is the broker, not another with its pid."""
        if state.pid is None:
            return False
        # A child of ours has to be waited for, or it stays a zombie.
        if self._child is not None and self._child.pid == state.pid and self._child.poll() is not None:
            return False
        return jvm.runs_broker(state.pid, self._settings(state))

    def _settings(self, state: _State) -> BrokerSettings:
        return BrokerSettings(state.port, controller_port=state.controller_port, data_dir=self.data_dir)

    def _read_state(self) -> _State | None:
        """Returns what the folder remembers; None for a new folder or an unreadable file."""
        try:
            return _State(**read_state(self.data_dir / STATE_NAME))
        except TypeError:
            return None

    def _write_state(self, state: _State) -> None:
        write_state(self.data_dir / STATE_NAME, asdict(state))
