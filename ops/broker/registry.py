"""The local Schema Registry as a process: one per data folder, found again by who comes later.

Its schemas are kept in the folder, as the broker keeps its records: an id in a topic must mean the same tomorrow.
"""

import shutil
import subprocess
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Self

from ops.broker import jvm
from ops.broker.data_folder import locked, read_state, write_state
from ops.broker.prerequisites import BrokerError
from ops.broker.registry_installation import ensure_registry_installation
from ops.broker.registry_process import launch, wait_until_it_answers
from ops.broker.registry_settings import RegistrySettings
from ops.broker.settings import LOOPBACK

START_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 20.0
STATE_NAME: Final = "registry.json"


@dataclass(frozen=True, slots=True)
class _State:
    """What the data folder remembers between runs; `pid` is None after a clean stop."""

    port: int
    pid: int | None


class LocalRegistry:
    """One local registry, with its schemas and its port the same at every start on the same folder.

    As a context manager it is started on entry and stopped on exit. Without a data folder it gets one of its own,
    which `__exit__` removes.
    """

    def __init__(self, data_dir: Path | None = None, *, port: int | None = None) -> None:
        """Takes the data folder and the port; a free port unless given or remembered in the folder."""
        self._is_temporary = data_dir is None
        folder = Path(tempfile.mkdtemp(prefix="intertidal-registry-")) if data_dir is None else data_dir.absolute()
        self.data_dir = folder
        self._wanted_port = port
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Returns SCHEMA_REGISTRY_URL; raises BrokerError when the folder has never had a registry."""
        state = self._read_state()
        if state is None:
            raise BrokerError(f"no Schema Registry has been started in {self.data_dir}")
        return self._settings(state).url

    @property
    def pid(self) -> int | None:
        """Returns the process id of the running registry, None when none runs."""
        state = self._read_state()
        return state.pid if state is not None and self._is_alive(state) else None

    def start(self, *, timeout_s: float = START_TIMEOUT_S) -> Self:
        """Returns itself once the registry answers; adopts one that already runs on the folder.

        1. A live registry of this folder is adopted, unless it is just ending. A pid left by a crash, or now
           another's, is forgotten.
        2. The archive is fetched when this is the first use.
        3. The port: as given, as remembered, or a free one.
        4. The process is launched, and remembered before it is waited for: a crash of ours leaves a trace.
        5. What does not answer in time is ended.

        Raises:
            BrokerError: one line that says what is missing or which log to read.
        """
        with locked(self.data_dir):
            # 1.
            state = self._read_state()
            if state is not None and self._is_alive(state):
                if self._wanted_port not in (None, state.port):
                    raise BrokerError(f"a Schema Registry already runs on {self.data_dir}, on port {state.port}")
                if self._adopt(state, timeout_s=timeout_s):
                    return self
            # 2.
            installation = ensure_registry_installation()
            # 3.
            port = self._wanted_port or (state.port if state else jvm.free_port())
            if not jvm.is_port_free(port):
                raise BrokerError(f"port {port} on {LOOPBACK} is in use by another process")
            # 4.
            settings = RegistrySettings(port, self.data_dir)
            self._child = launch(installation.command(settings), settings)
            state = _State(port, self._child.pid)
            self._write_state(state)
            # 5.
            try:
                self._wait_until_it_answers(state, timeout_s=timeout_s)
            except BaseException:
                self._end(timeout_s=0.0)
                raise
        return self

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Stops this folder's registry, whoever started it; keeps its schemas. Returns whether one was running."""
        if not self.data_dir.exists():
            return False
        with locked(self.data_dir):
            return self._end(timeout_s=timeout_s)

    def kill(self) -> bool:
        """Ends the registry with SIGKILL, as a crash would; keeps its schemas. Returns whether one was running."""
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
            self._wait_until_it_answers(state, timeout_s=timeout_s)
        except BrokerError:
            if self._is_alive(state):
                raise
            return False
        return True

    def _end(self, *, timeout_s: float) -> bool:
        """Ends the running registry, with SIGKILL at once when there is no time; remembers its port alone."""
        state = self._read_state()
        if state is None or state.pid is None:
            return False
        was_alive = self._is_alive(state)
        if was_alive and timeout_s > 0:
            jvm.terminate(state.pid, is_alive=lambda: self._is_alive(state), timeout_s=timeout_s)
        elif was_alive:
            jvm.kill(state.pid, is_alive=lambda: self._is_alive(state))
        self._child = None
        self._write_state(replace(state, pid=None))
        return was_alive

    def _wait_until_it_answers(self, state: _State, *, timeout_s: float) -> None:
        wait_until_it_answers(self._settings(state), is_alive=lambda: self._is_alive(state), timeout_s=timeout_s)

    def _is_alive(self, state: _State) -> bool:
        """Returns whether the remembered process lives and is the registry, not another with its pid."""
        if state.pid is None:
            return False
        # A child of ours has to be waited for, or it stays a zombie; and just launched, it has no command line yet.
        if self._child is not None and self._child.pid == state.pid:
            return self._child.poll() is None
        try:
            command = Path(f"/proc/{state.pid}/cmdline").read_bytes()
        except OSError:
            return False
        marker = self._settings(state).database_url.encode()
        return any(argument.endswith(b"=" + marker) for argument in command.split(b"\0"))

    def _settings(self, state: _State) -> RegistrySettings:
        return RegistrySettings(state.port, self.data_dir)

    def _read_state(self) -> _State | None:
        """Returns what the folder remembers; None for a new folder or an unreadable file."""
        try:
            return _State(**read_state(self.data_dir / STATE_NAME))
        except TypeError:
            return None

    def _write_state(self, state: _State) -> None:
        write_state(self.data_dir / STATE_NAME, asdict(state))


def registry_dir(broker_dir: Path) -> Path:
    """Returns the data folder of the registry that belongs to a broker's data folder."""
    return broker_dir / "registry"
