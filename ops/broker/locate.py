"""Finds a broker: KAFKA_BOOTSTRAP, then a Docker engine, then a local JVM.

With KAFKA_BOOTSTRAP the settings for TLS and SASL come from the file that KAFKA_CONFIG names; they are read
where clients are made (`schemas.kafka`) and never here, so nothing here can log them.
"""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ops.broker.choice import ManagedBroker, new_broker, running_kept_broker, wanted_kind
from ops.broker.containers import usable_engine
from ops.broker.local import default_data_dir
from ops.broker.prerequisites import BrokerError

_CONNECT_TIMEOUT_S: Final = 5.0
_DEFAULT_PORT: Final = 9092

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FoundBroker:
    """A broker to use: what clients connect to, where it came from, and the local one where it is ours."""

    bootstrap: str
    origin: Literal["KAFKA_BOOTSTRAP", "local"]
    local: ManagedBroker | None = None


@contextmanager
def find_broker(data_dir: Path | None = None) -> Iterator[FoundBroker]:
    """Yields a broker for the length of the block; one that was started for it is stopped at its end.

    1. KAFKA_BOOTSTRAP, when set.
    2. The local broker that `intertidal broker start` left running, which is then left running.
    3. A broker of its own in a container, where a Docker engine answers and can start it.
    4. A broker of its own in a JVM, on `data_dir` or on a temporary folder.

    INTERTIDAL_BROKER asks for one of the last two alone.

    Raises:
        BrokerError: nothing answers at KAFKA_BOOTSTRAP, or the local broker cannot be had.
    """
    # 1. and 2.
    found = running_broker()
    if found is not None:
        yield found
        return
    with ExitStack() as stack:
        broker = _own_broker(stack, data_dir)
        yield FoundBroker(broker.bootstrap, "local", broker)


def _own_broker(stack: ExitStack, data_dir: Path | None) -> ManagedBroker:
    wanted = wanted_kind()
    # 3.
    if wanted == "docker":
        return stack.enter_context(new_broker("docker", data_dir))
    if wanted is None and usable_engine() is not None:
        try:
            return stack.enter_context(new_broker("docker", data_dir))
        except BrokerError as error:
            _log.warning("%s; a JVM of this machine is used instead", error)
    # 4.
    return stack.enter_context(new_broker("jvm", data_dir))


def running_broker() -> FoundBroker | None:
    """Returns the broker that is there already, None when there is none; starts nothing.

    Raises:
        BrokerError: nothing answers at KAFKA_BOOTSTRAP.
    """
    bootstrap = os.environ.get("KAFKA_BOOTSTRAP")
    if bootstrap:
        check_reachable(bootstrap)
        return FoundBroker(bootstrap, "KAFKA_BOOTSTRAP")
    local = running_kept_broker(default_data_dir())
    return FoundBroker(local.bootstrap, "local", local) if local is not None else None


def require_broker() -> FoundBroker:
    """Returns the broker that is there already.

    Raises:
        BrokerError: there is none; the message says how to get one.
    """
    found = running_broker()
    if found is None:
        raise BrokerError("no broker is running: `intertidal broker start`, or set KAFKA_BOOTSTRAP")
    return found


def check_reachable(bootstrap: str, *, timeout_s: float = _CONNECT_TIMEOUT_S) -> None:
    """Returns when one of `host:port,host:port` accepts a connection; TLS and SASL are not tried.

    Raises:
        BrokerError: none does, or one is not of that form.
    """
    for server in bootstrap.split(","):
        host, port = _host_and_port(server.strip())
        try:
            with socket.create_connection((host, port), timeout=timeout_s):
                return
        except OSError:
            continue
    raise BrokerError(f"no broker answers at {bootstrap} (KAFKA_BOOTSTRAP)")


def _host_and_port(server: str) -> tuple[str, int]:
    host, separator, port = server.rpartition(":")
    if not separator:
        return server, _DEFAULT_PORT
    if not host or not port.isdecimal():
        raise BrokerError(f"KAFKA_BOOTSTRAP: {server!r} is not host:port")
    return host.strip("[]"), int(port)
