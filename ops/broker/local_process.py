"""One local process per data folder, found again by who comes later."""

import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar, Final, Generic, Self, TypeVar

from ops.broker import jvm
from ops.broker.data_folder import locked, read_state, write_state
from ops.broker.prerequisites import BrokerError
from ops.broker.settings import LOOPBACK

STOP_TIMEOUT_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class ProcessState:
    """What the data folder remembers between runs; ``pid`` is None after a clean stop."""

    port: int
    pid: int | None


S = TypeVar("S", bound=ProcessState)


class LocalProcess(ABC, Generic[S]):
    """A process whose data and ports are the same at every start on its folder: after a stop, a kill, and a crash.

    As a context manager it is started on entry and stopped on exit. Without a data folder it gets one of its own,
    which `__exit__` removes. A process that already runs on the folder is adopted by `start`, whoever started it.
    """

    # As messages call it; its last word is in the names of folders.
    name: ClassVar[str]
    state_type: ClassVar[type[ProcessState]]
    state_name: ClassVar[str]
    start_timeout_s: ClassVar[float]

    def __init__(self, data_dir: Path | None = None, *, port: int | None = None) -> None:
        """Takes the data folder and the port; a free port unless given or remembered in the folder."""
        self._is_temporary = data_dir is None
        prefix = f"intertidal-{self.name.split()[-1].lower()}-"
        self.data_dir = Path(tempfile.mkdtemp(prefix=prefix)) if data_dir is None else data_dir.absolute()
        self._wanted_port = port
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Returns the process id of the running process, None when none runs."""
        state = self._read_state()
        return state.pid if state is not None and self._is_alive(state) else None

    def start(self, *, timeout_s: float | None = None) -> Self:
        """Returns itself once the process can be used; adopts one that already runs on the folder.

        1. A live process of this folder is adopted, unless it is just ending. A pid left by a crash, or now
           another's, is forgotten.
        2. What is to be run is fetched when this is the first use.
        3. Ports: as given, as remembered, or free ones.
        4. The process is launched, and remembered before it is waited for: a crash of ours leaves a trace.
        5. What does not become usable is ended.

        Raises:
            BrokerError: one line that says what is missing or which log to read.
        """
        timeout_s = self.start_timeout_s if timeout_s is None else timeout_s
        with locked(self.data_dir):
            # 1.
            state = self._read_state()
            if state is not None and self._is_alive(state):
                if self._wanted_port not in (None, state.port):
                    raise BrokerError(f"a {self.name} already runs on {self.data_dir}, on port {state.port}")
                if self._adopt(state, timeout_s=timeout_s):
                    return self
            # 2.
            self._fetch()
            # 3.
            state = self._choose_ports(state)
            # 4.
            self._child = self._launch(state)
            state = replace(state, pid=self._child.pid)
            self._write_state(state)
            # 5.
            try:
                self._wait_until_usable(state, timeout_s=timeout_s)
            except BaseException:
                self._end(timeout_s=0.0)
                raise
        return self

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Stops this folder's process, whoever started it; keeps its data. Returns whether one was running."""
        if not self.data_dir.exists():
            return False
        with locked(self.data_dir):
            return self._end(timeout_s=timeout_s)

    def kill(self) -> bool:
        """Ends the process with SIGKILL, as a crash would; keeps its data. Returns whether one was running."""
        with locked(self.data_dir):
            return self._end(timeout_s=0.0)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._is_temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    @abstractmethod
    def _fetch(self) -> None:
        """Fetch what is to be run, where it is not there yet."""

    @abstractmethod
    def _choose_ports(self, state: S | None) -> S:
        """Returns the state to start with, given the last one."""

    @abstractmethod
    def _launch(self, state: S) -> "subprocess.Popen[bytes]":
        """Returns the launched process."""

    @abstractmethod
    def _wait_until_usable(self, state: S, *, timeout_s: float) -> None:
        """Returns once the process can be used; raises BrokerError."""

    @abstractmethod
    def _runs(self, pid: int, state: S) -> bool:
        """Returns whether that process is this folder's, not another with its pid."""

    def _free_port(self, state: S | None) -> int:
        """Returns the port to listen on: as given, as remembered, or a free one; raises BrokerError for a taken one."""
        port = self._wanted_port or (state.port if state else jvm.free_port())
        require_free(port)
        return port

    def _known_state(self) -> S:
        """Returns what the folder remembers; raises BrokerError when it has never had a process."""
        state = self._read_state()
        if state is None:
            raise BrokerError(f"no {self.name} has been started in {self.data_dir}")
        return state

    def _adopt(self, state: S, *, timeout_s: float) -> bool:
        """Returns whether the process that runs can be used; False when it ends instead: it was a leftover."""
        try:
            self._wait_until_usable(state, timeout_s=timeout_s)
        except BrokerError:
            if self._is_alive(state):
                raise
            return False
        return True

    def _end(self, *, timeout_s: float) -> bool:
        """Ends the running process, with SIGKILL at once when there is no time; remembers its ports alone."""
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

    def _is_alive(self, state: S) -> bool:
        """Returns whether the remembered process lives."""
        if state.pid is None:
            return False
        # A child of ours has to be waited for, or it stays a zombie; and just launched, it has no command line yet.
        if self._child is not None and self._child.pid == state.pid:
            return self._child.poll() is None
        return self._runs(state.pid, state)

    def _read_state(self) -> S | None:
        """Returns what the folder remembers; None for a new folder or an unreadable file."""
        try:
            state: S = self.state_type(**read_state(self.data_dir / self.state_name))  # type: ignore[assignment]
        except TypeError:
            return None
        return state

    def _write_state(self, state: S) -> None:
        write_state(self.data_dir / self.state_name, asdict(state))


def require_free(port: int) -> None:
    """Raises BrokerError when somebody listens on the port already."""
    if not jvm.is_port_free(port):
        raise BrokerError(f"port {port} on {LOOPBACK} is in use by another process")
