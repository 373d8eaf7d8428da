"""A Kafka in a JVM as a process: format, launch, wait, end."""

import base64
import os
import random
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ops.broker.prerequisites import BrokerError
from ops.broker.settings import LOOPBACK, BrokerSettings, format_command, render_properties, telling_line

_POLL_S: Final = 0.02
_FORMAT_TIMEOUT_S: Final = 60.0
_KILL_TIMEOUT_S: Final = 10.0
_LOWEST_PORT: Final = 15_000


def free_port() -> int:
    """Returns a loopback port that nothing listens on.

    It lies below the ports that the kernel gives to outgoing connections: a client that keeps trying a
    stopped broker's port from that range can end up connected to itself, and the broker cannot come back.
    """
    lowest_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    candidates = range(_LOWEST_PORT, max(lowest_ephemeral, _LOWEST_PORT + 1000))
    for port in random.sample(candidates, 100):
        if is_port_free(port):
            return port
    raise BrokerError("no free port on loopback")


def is_port_free(port: int) -> bool:
    """Returns whether the port can be bound on loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the JVM does: a port with connections in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def write_properties(settings: BrokerSettings) -> None:
    """Writes server.properties into the data folder."""
    settings.properties_path.write_text(render_properties(settings))


def set_log_aside(settings: BrokerSettings) -> None:
    """Keeps the log of the run before under another name: why a start failed stands in this run's own log."""
    if settings.log_path.exists():
        settings.log_path.replace(settings.log_path.with_name("broker.previous.log"))


def format_storage(java: list[str], settings: BrokerSettings) -> None:
    """Formats the storage folder for a new cluster of one node.

    Raises:
        BrokerError: Kafka's storage tool failed.
    """
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    # Kafka's tools take a leading dash for an option.
    command = format_command(java, settings, cluster_id="i" + cluster_id[1:])
    with settings.log_path.open("ab") as log:
        try:
            done = subprocess.run(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                timeout=_FORMAT_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise _failure(settings, "formatting the broker's storage took too long") from error
    if done.returncode != 0:
        raise _failure(settings, "the broker's storage could not be formatted")


def launch(java: list[str], settings: BrokerSettings) -> "subprocess.Popen[bytes]":
    """Starts the broker in a session of its own, so that Ctrl-C does not reach it."""
    with settings.log_path.open("ab") as log:
        return subprocess.Popen(
            [*java, str(settings.properties_path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=settings.data_dir,
        )


def wait_until_usable(settings: BrokerSettings, *, is_alive: Callable[[], bool], timeout_s: float) -> None:
    """Returns once the broker answers a metadata request.

    Raises:
        BrokerError: the process ended, or the time is over.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if not is_alive():
            raise _failure(settings, "the local broker ended while it started")
        # The port opens when the broker is ready. Asked earlier, librdkafka would log each refusal.
        if is_listening(settings.port) and answers(settings.bootstrap):
            return
        time.sleep(_POLL_S)
    raise _failure(settings, f"the local broker was not usable after {timeout_s:.0f} s")


def terminate(pid: int, *, is_alive: Callable[[], bool], timeout_s: float) -> bool:
    """Ends a process: 1. SIGTERM, 2. wait, 3. SIGKILL. Returns whether SIGTERM was enough.

    Raises:
        BrokerError: it outlived SIGKILL.
    """
    # 1.
    _signal(pid, signal.SIGTERM)
    # 2.
    if _wait_for_end(is_alive, timeout_s):
        return True
    # 3.
    kill(pid, is_alive=is_alive)
    return False


def kill(pid: int, *, is_alive: Callable[[], bool]) -> None:
    """Ends a process with SIGKILL and waits for its end; raises BrokerError when it does not come."""
    _signal(pid, signal.SIGKILL)
    if not _wait_for_end(is_alive, _KILL_TIMEOUT_S):
        raise BrokerError(f"process {pid} does not end")


def runs_broker(pid: int, settings: BrokerSettings) -> bool:
    """Returns whether the process is alive and is the broker of that data folder, by its command line."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    # A process that ended and was not waited for has an empty command line.
    return str(settings.properties_path).encode() in command.split(b"\0")


def is_listening(port: int) -> bool:
    """Returns whether a loopback port accepts connections."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0


def answers(bootstrap: str) -> bool:
    """Returns whether a broker answers a metadata request."""
    # Late: only who starts a broker pays for loading the client.
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        return bool(admin.list_topics(timeout=5.0).brokers)
    except KafkaException:
        return False


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _wait_for_end(is_alive: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while is_alive():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _failure(settings: BrokerSettings, what: str) -> BrokerError:
    why = telling_line(settings.log_path.read_text(errors="replace"))
    return BrokerError(f"{what}, see {settings.log_path}" + (f": {why}" if why else ""))
