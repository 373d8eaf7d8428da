"""Which kind of broker is started: in a container where a Docker engine runs, else in a JVM of this machine."""

import os
from pathlib import Path
from typing import Final, Literal, Protocol, Self, get_args

from ops.broker.containers import usable_engine
from ops.broker.docker_broker import STATE_NAME as CONTAINER_STATE
from ops.broker.docker_broker import DockerBroker
from ops.broker.local import STATE_NAME as JVM_STATE
from ops.broker.local import LocalBroker
from ops.errors import UserError

KIND_ENV: Final = "INTERTIDAL_BROKER"

Kind = Literal["docker", "jvm"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

# What a data folder remembers of each kind.
_STATE_NAMES: Final[dict[Kind, str]] = {"docker": CONTAINER_STATE, "jvm": JVM_STATE}


class ManagedBroker(Protocol):
    """A broker of ours on this machine, whatever it runs in."""

    data_dir: Path

    @property
    def bootstrap(self) -> str: ...

    @property
    def pid(self) -> int | None: ...

    @property
    def log(self) -> str: ...

    def start(self) -> Self: ...

    def stop(self) -> bool: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def wanted_kind() -> Kind | None:
    """Returns the kind that INTERTIDAL_BROKER asks for, None when it asks for none.

    Raises:
        UserError: it is no kind.
    """
    wanted = os.environ.get(KIND_ENV)
    if not wanted:
        return None
    if wanted not in KINDS:
        raise UserError(f"{KIND_ENV} must be {' or '.join(KINDS)}, is {wanted!r}")
    return wanted


def new_broker(kind: Kind, data_dir: Path | None = None, *, port: int | None = None) -> ManagedBroker:
    """Returns a broker of that kind, not started."""
    return DockerBroker(data_dir, port=port) if kind == "docker" else LocalBroker(data_dir, port=port)


def kept_broker(data_dir: Path, *, port: int | None = None, kind: Kind | None = None) -> ManagedBroker:
    """Returns the broker of a data folder, not started.

    1. The kind asked for, by ``kind`` or INTERTIDAL_BROKER.
    2. A folder stays what it was, since its data cannot go from one kind to the other.
    3. A container where a Docker engine answers, else a JVM.

    Raises:
        UserError: INTERTIDAL_BROKER is no kind, or one of the other kind runs on the folder.
    """
    before = _kind_of(data_dir)
    chosen = kind or wanted_kind() or before or ("docker" if usable_engine() else "jvm")
    if before not in (None, chosen) and new_broker(before, data_dir).pid is not None:
        raise UserError(f"a broker of kind {before} runs on {data_dir}: stop it first, or leave the kind to it")
    return new_broker(chosen, data_dir, port=port)


def running_kept_broker(data_dir: Path) -> ManagedBroker | None:
    """Returns the broker that runs on a data folder, None when none does; starts nothing."""
    for kind in KINDS:
        if (data_dir / _STATE_NAMES[kind]).exists():
            broker = new_broker(kind, data_dir)
            if broker.pid is not None:
                return broker
    return None


def _kind_of(data_dir: Path) -> Kind | None:
    """Returns the kind of a folder's broker: the one that runs, else the one started last; None for a new folder."""
    running = running_kept_broker(data_dir)
    if running is not None:
        return "docker" if isinstance(running, DockerBroker) else "jvm"
    paths = {kind: data_dir / name for kind, name in _STATE_NAMES.items()}
    times: dict[Kind, float] = {kind: path.stat().st_mtime for kind, path in paths.items() if path.exists()}
    return max(times, key=times.__getitem__, default=None)
