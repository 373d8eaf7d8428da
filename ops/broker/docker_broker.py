"""The broker in a container: one per data folder, found again by who comes later."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from ops.broker import jvm
from ops.broker.container_settings import IMAGE, container_environment, container_name
from ops.broker.containers import container_pid, create_container, find_container, require_engine, talking_to
from ops.broker.data_folder import locked, read_state, write_state
from ops.broker.docker_engine import find_engine
from ops.broker.prerequisites import BrokerError
from ops.broker.settings import LOOPBACK, telling_line

if TYPE_CHECKING:
    from docker.models.containers import Container

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 20.0
STATE_NAME: Final = "docker.json"

_POLL_S: Final = 0.05
_NUM_LOG_LINES: Final = 200


class DockerBroker:
    """One broker in a container. As a context manager it is started on entry and stopped on exit.

    Without a data folder it is of this run alone: ``__exit__`` removes it with its data, and so does testcontainers'
    reaper when this process is killed. With one it is created without the reaper and outlives this process; data and
    port are then the same at every start until the container is removed, and a broker that already runs is adopted.
    """

    def __init__(self, data_dir: Path | None = None, *, port: int | None = None) -> None:
        """Takes the folder that remembers the container, and the port; a free port unless given or remembered."""
        self._is_temporary = data_dir is None
        folder = Path(tempfile.mkdtemp(prefix="intertidal-broker-")) if data_dir is None else data_dir.absolute()
        self.data_dir = folder
        self.name = container_name(folder)
        self._wanted_port = port

    @property
    def bootstrap(self) -> str:
        """Returns host and port for clients; raises BrokerError when the folder has never had a broker."""
        port = self._remembered_port()
        if port is None:
            raise BrokerError(f"no broker has been started in {self.data_dir}")
        return f"{LOOPBACK}:{port}"

    @property
    def pid(self) -> int | None:
        """Returns the process id of the running broker as the engine has it, None when none runs."""
        with self._remembered_container() as container:
            return None if container is None else container_pid(container)

    @property
    def log(self) -> str:
        """Returns how the broker's log is read."""
        return f"docker logs {self.name}"

    def start(self, *, timeout_s: float = START_TIMEOUT_S) -> Self:
        """Returns itself once the broker can be used.

        1. A container of this folder is adopted when it runs, and started again when it was stopped.
        2. Otherwise a port is chosen and remembered before the container is created, under a name that the folder
           decides: a crash of ours leaves nothing that cannot be found again.
        3. The image is fetched when this is the first use; the container is created and started.
        4. What does not become usable is stopped; what was new is removed.

        Raises:
            BrokerError: one line that says what the engine refused, or what the broker's log says.
        """
        engine = require_engine()
        with locked(self.data_dir), talking_to(engine):
            # 1.
            found = find_container(self.name)
            port = self._port(is_new=found is None)
            # 2.
            self._remember(port)
            # 3.
            if found is None:
                environment = container_environment(port)
                container = create_container(
                    IMAGE, name=self.name, environment=environment, port=port, reaped=self._is_temporary
                )
            else:
                container = found
                if container_pid(container) is None:
                    container.start()
            # 4.
            try:
                self._wait_until_usable(container, port, timeout_s=timeout_s)
            except BaseException:
                if found is None:
                    container.remove(force=True, v=True)
                else:
                    container.stop(timeout=0)
                raise
        return self

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Stops this folder's broker, whoever started it; keeps its data. Returns whether one was running."""
        with locked(self.data_dir), self._remembered_container() as container:
            if container is None or container_pid(container) is None:
                return False
            container.stop(timeout=int(timeout_s))
            return True

    def remove(self) -> None:
        """Removes the container with its data, running or not."""
        with locked(self.data_dir), self._remembered_container() as container:
            if container is not None:
                container.remove(force=True, v=True)
            (self.data_dir / STATE_NAME).unlink(missing_ok=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self._clear()
            raise

    def __exit__(self, *_: object) -> None:
        if not self._is_temporary:
            self.stop()
            return
        try:
            self.remove()
        finally:
            self._clear()

    def _clear(self) -> None:
        if self._is_temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    @contextmanager
    def _remembered_container(self) -> Iterator["Container | None"]:
        """Yields this folder's container; asks no engine where the folder remembers none."""
        engine = find_engine() if self._remembered_port() is not None else None
        if engine is None:
            yield None
            return
        with talking_to(engine):
            yield find_container(self.name)

    def _port(self, *, is_new: bool) -> int:
        """Returns the port to use. A container's own is fixed when it is created."""
        remembered = self._remembered_port()
        if not is_new and remembered is not None:
            if self._wanted_port not in (None, remembered):
                raise BrokerError(f"the broker of {self.data_dir} has port {remembered}, for as long as {self.name} is")
            return remembered
        port = self._wanted_port or remembered or jvm.free_port()
        if not jvm.is_port_free(port):
            raise BrokerError(f"port {port} on {LOOPBACK} is in use by another process")
        return port

    def _wait_until_usable(self, container: "Container", port: int, *, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            # Asked before the port opens, librdkafka would log each refusal.
            if jvm.is_listening(port) and jvm.answers(self.bootstrap):
                return
            container.reload()
            if container_pid(container) is None:
                raise _failure(container, "the broker's container ended while it started")
            time.sleep(_POLL_S)
        raise _failure(container, f"the broker's container was not usable after {timeout_s:.0f} s")

    def _remembered_port(self) -> int | None:
        """Returns the port of this folder's container; None for a new folder or an unreadable file."""
        try:
            return int(read_state(self.data_dir / STATE_NAME)["port"])
        except (KeyError, TypeError, ValueError):
            return None

    def _remember(self, port: int) -> None:
        write_state(self.data_dir / STATE_NAME, {"port": port, "container": self.name})


def _failure(container: "Container", what: str) -> BrokerError:
    why = telling_line(container.logs(tail=_NUM_LOG_LINES).decode(errors="replace"))
    return BrokerError(f"{what}: {why}" if why else what)
