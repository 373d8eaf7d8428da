"""A Schema Registry in a JVM as a process: launch, wait until it answers."""

import json
import subprocess
import time
import urllib.request
from collections.abc import Callable
from typing import Final

from ops.broker.prerequisites import BrokerError
from ops.broker.registry_settings import RegistrySettings
from ops.broker.settings import telling_line

_LOOK_AGAIN_S: Final = 0.05
_ANSWER_TIMEOUT_S: Final = 5.0


def launch(command: list[str], settings: RegistrySettings) -> "subprocess.Popen[bytes]":
    """Starts the registry in a session of its own, so that Ctrl-C does not reach it."""
    with settings.log_path.open("wb") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=settings.data_dir,
        )


def wait_until_it_answers(settings: RegistrySettings, *, is_alive: Callable[[], bool], timeout_s: float) -> None:
    """Returns once the registry answers a request.

    Raises:
        BrokerError: the process ended, or the time is over.
    """
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if not is_alive():
            raise _failure(settings, "the local Schema Registry ended while it started")
        if _answers(f"{settings.url}/subjects"):
            return
        time.sleep(_LOOK_AGAIN_S)
    raise _failure(settings, f"the local Schema Registry did not answer within {timeout_s:.0f} s")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=_ANSWER_TIMEOUT_S) as answer:
            return isinstance(json.load(answer), list)
    except (OSError, ValueError):
        return False


def _failure(settings: RegistrySettings, what: str) -> BrokerError:
    why = telling_line(settings.log_path.read_text(errors="replace"))
    return BrokerError(f"{what}, see {settings.log_path}" + (f": {why}" if why else ""))
