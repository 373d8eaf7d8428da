"""What every local process of ours keeps in its data folder: a lock, and a small state that is never half written."""

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ops.broker.prerequisites import BrokerError


@contextmanager
def locked(data_dir: Path) -> Iterator[None]:
    """Holds the folder, made where it is missing, against another start or stop; raises BrokerError."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        lock = (data_dir / "lock").open("w")
    except OSError as error:
        raise BrokerError(f"the data folder {data_dir} cannot be used: {error.strerror}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read_state(path: Path) -> Any:
    """What was written to the path; None where nothing was, or nothing that can be read."""
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Writes a state whole: whoever reads sees the old one or the new one."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(state))
    new.replace(path)
