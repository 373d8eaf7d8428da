"""Docker's client as far as a broker needs it: find a container, create one, one line for what goes wrong."""

import importlib.util
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ops.broker.docker_engine import DOCKER_HOST_ENV, DockerEngine, find_engine
from ops.broker.prerequisites import BrokerError
from ops.broker.settings import LOOPBACK

if TYPE_CHECKING:
    from docker.models.containers import Container

_CLIENT_TIMEOUT_S: Final = 30


def usable_engine() -> DockerEngine | None:
    """Returns the engine to use: None where none answers, or where testcontainers is not installed."""
    # The engine first: without one, nothing is looked for on the disk.
    engine = find_engine()
    return engine if engine is not None and importlib.util.find_spec("testcontainers") is not None else None


def require_engine() -> DockerEngine:
    """Returns the engine to use; raises BrokerError when there is none."""
    engine = find_engine()
    if engine is None:
        raise BrokerError("no Docker engine of this machine answers (DOCKER_HOST, or the sockets of Docker)")
    if importlib.util.find_spec("testcontainers") is None:
        raise BrokerError("a broker in Docker needs testcontainers: pip install 'intertidal[demo]'")
    return engine


@contextmanager
def talking_to(engine: DockerEngine) -> Iterator[None]:
    """Makes Docker's client ask this engine, and one line of what it raises; what it is comes as BrokerError."""
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    # Its clients read the environment, that of the reaper among them.
    os.environ[DOCKER_HOST_ENV] = engine.host
    try:
        yield
    except (DockerException, RequestException) as error:
        # What the engine says itself is the telling part.
        why = getattr(error, "explanation", None) or error
        raise BrokerError(f"the Docker engine refused: {' '.join(str(why).split())}") from error


def find_container(name: str) -> "Container | None":
    """Returns the container of that name as it is now, None when there is none."""
    from docker.client import DockerClient
    from docker.errors import NotFound

    try:
        return DockerClient.from_env(timeout=_CLIENT_TIMEOUT_S).containers.get(name)
    except NotFound:
        return None


def create_container(image: str, *, name: str, environment: dict[str, str], port: int, reaped: bool) -> "Container":
    """Returns a new container, started, with ``port`` published on loopback; fetches the image the first time.

    testcontainers' reaper, a container beside it, removes a container when the process that created it ends, however
    that comes: ``reaped`` says whether it shall.
    """
    from docker.errors import DockerException
    from testcontainers.core.config import testcontainers_config
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.exceptions import ContainerConnectException, ContainerStartException

    # Its lines for each image and container would stand among a verb's own.
    logging.getLogger("testcontainers").setLevel(logging.WARNING)
    described = DockerContainer(image, docker_client_kw={"timeout": _CLIENT_TIMEOUT_S}, env=environment, name=name)
    # Docker's client takes an address with the port; the type of testcontainers knows bare ports alone.
    ports: dict[str, Any] = described.ports
    ports[f"{port}/tcp"] = (LOOPBACK, port)
    as_configured = testcontainers_config.ryuk_disabled
    testcontainers_config.ryuk_disabled = as_configured or not reaped
    try:
        return described.start().get_wrapped_container()
    except DockerException:
        raise
    except (ContainerStartException, ContainerConnectException, OSError) as error:
        raise BrokerError(f"the Docker engine's container did not start: {' '.join(str(error).split())}") from error
    finally:
        testcontainers_config.ryuk_disabled = as_configured


def container_pid(container: "Container") -> int | None:
    """Returns the process id of a container's first process as the engine has it, None when it does not run."""
    state = container.attrs["State"]
    return int(state.get("Pid", 0)) or None if state["Running"] else None
