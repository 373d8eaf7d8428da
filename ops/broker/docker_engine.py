"""Is there a Docker engine on this machine? Asked over its socket, without Docker's client: a miss costs nothing."""

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

DOCKER_HOST_ENV: Final = "DOCKER_HOST"
_TIMEOUT_S: Final = 1.0
_LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_PING: Final = b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n"
_STATUS_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class DockerEngine:
    """An engine that answered; ``host`` as DOCKER_HOST has it."""

    host: str


def find_engine(*, timeout_s: float = _TIMEOUT_S) -> DockerEngine | None:
    """Returns the engine of this machine, None when none answers within ``timeout_s``.

    DOCKER_HOST alone is asked where it is set; then the sockets of Docker, rootless Docker and Docker Desktop. An
    engine of another machine is not used: the broker is published on loopback, and that would be the other's.
    """
    for host in _candidates():
        if _answers(host, timeout_s):
            return DockerEngine(host)
    return None


def _candidates() -> Iterator[str]:
    if host := os.environ.get(DOCKER_HOST_ENV):
        yield host
        return
    yield "unix:///var/run/docker.sock"
    if runtime_dir := os.environ.get("XDG_RUNTIME_DIR"):
        yield f"unix://{runtime_dir}/docker.sock"
    yield f"unix://{Path.home()}/.docker/run/docker.sock"


def _answers(host: str, timeout_s: float) -> bool:
    try:
        with _connect(host, timeout_s) as connection:
            if connection.family != socket.AF_UNIX and os.environ.get("DOCKER_TLS_VERIFY"):
                # What it says is encrypted; Docker's client will see.
                return True
            connection.sendall(_PING)
            return b" 200 " in connection.recv(_STATUS_BYTES)
    except (OSError, ValueError):
        return False


def _connect(host: str, timeout_s: float) -> socket.socket:
    """Returns a connection to an engine of this machine; raises OSError, or ValueError for any other address."""
    address = urlsplit(host)
    if address.scheme == "unix":
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout_s)
        try:
            connection.connect(address.path)
        except OSError:
            connection.close()
            raise
        return connection
    if address.scheme in ("tcp", "http", "https") and address.hostname in _LOCAL_NAMES:
        return socket.create_connection((address.hostname, address.port or 2375), timeout=timeout_s)
    raise ValueError(f"{host} is no address of this machine")
