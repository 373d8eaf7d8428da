"""`intertidal broker`: start, stop and look at the local broker."""

import json
from dataclasses import dataclass
from pathlib import Path

import click

from ops.broker.installation import ensure_installation
from ops.broker.local import LocalBroker, default_data_dir
from ops.telemetry.progress import progress

_data_dir = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the broker's data and log.  [default: the user's state folder]",
)
_as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@dataclass(frozen=True, slots=True)
class _Status:
    running: bool
    bootstrap: str | None
    pid: int | None
    data_dir: str
    log: str


@click.group()
def broker() -> None:
    """A local Apache Kafka in a JVM, on loopback only.

    \b
    Example:
      intertidal broker start
      export KAFKA_BOOTSTRAP=$(intertidal broker status --json | jq -r .bootstrap)
      intertidal broker stop
    """


@broker.command()
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the broker.  [default: a free one]")
@_data_dir
@_as_json
def start(port: int | None, data_dir: Path | None, as_json: bool) -> None:
    """Start the broker, or adopt the one that runs; prints host:port.

    \b
    Example:
      intertidal broker start --port 9092
    """
    local = LocalBroker(data_dir or default_data_dir(), port=port)
    with progress("starting a local Kafka"):
        local.start()
    _show(local, as_json=as_json)


@broker.command()
@_data_dir
def stop(data_dir: Path | None) -> None:
    """Stop the broker; its data stays.

    \b
    Example:
      intertidal broker stop
    """
    was_running = LocalBroker(data_dir or default_data_dir()).stop()
    click.echo("stopped" if was_running else "not running")


@broker.command()
@_data_dir
@_as_json
def status(data_dir: Path | None, as_json: bool) -> int:
    """Say whether the broker runs, and where; exit code 1 when it does not.

    \b
    Example:
      intertidal broker status --json
    """
    local = LocalBroker(data_dir or default_data_dir())
    _show(local, as_json=as_json)
    return 0 if local.pid is not None else 1


@broker.command()
def fetch() -> None:
    """Fetch the broker's jars into the cache now, so that a later start needs no network.

    \b
    Example:
      intertidal broker fetch
    """
    with progress("fetching a local Kafka, once"):
        ensure_installation()


def _show(local: LocalBroker, *, as_json: bool) -> None:
    pid = local.pid
    running = pid is not None
    shown = _Status(running, local.bootstrap if running else None, pid, str(local.data_dir), str(local.log_path))
    if as_json:
        click.echo(json.dumps({field: getattr(shown, field) for field in _Status.__slots__}))
    else:
        click.echo(shown.bootstrap if running else "not running")
