"""What a broker in a container is told: image, environment, ports. Pure.

The image's own start program makes server.properties of the environment: KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS becomes
group.min.session.timeout.ms.
"""

import hashlib
from pathlib import Path
from typing import Final

from ops.broker.settings import JVM_FLAGS, LOOPBACK, shared_properties

# The version that pom.xml names for the local JVM.
KAFKA_VERSION: Final = "4.1.1"
IMAGE: Final = f"apache/kafka:{KAFKA_VERSION}"

_CONTROLLER_PORT: Final = 9093
# A volume of the image that its user may write: what is in it outlives a stop of the container.
_STORAGE_DIR: Final = "/var/lib/kafka/data"


def container_name(data_dir: Path) -> str:
    """Returns the name of a data folder's container: known before it is created, so a crash in between loses none."""
    return f"intertidal-broker-{hashlib.sha256(str(data_dir).encode()).hexdigest()[:12]}"


def container_environment(port: int) -> dict[str, str]:
    """Returns the environment of a broker that clients of this machine reach on loopback at ``port``.

    It listens on the same port inside: the broker also talks to itself under its advertised address.
    """
    controller_port = _CONTROLLER_PORT if port != _CONTROLLER_PORT else _CONTROLLER_PORT + 1
    properties = {
        **shared_properties(),
        # Within the container's own network; only the published port, on loopback, leads in from outside.
        "listeners": f"PLAINTEXT://0.0.0.0:{port},CONTROLLER://{LOOPBACK}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        # The image formats its storage without --standalone, which only a static list of voters allows.
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller_port}",
        "log.dirs": _STORAGE_DIR,
    }
    heap, *others = JVM_FLAGS
    return {
        **{f"KAFKA_{name.upper().replace('.', '_')}": str(value) for name, value in properties.items()},
        "KAFKA_HEAP_OPTS": heap,
        "KAFKA_JVM_PERFORMANCE_OPTS": " ".join(others),
    }
