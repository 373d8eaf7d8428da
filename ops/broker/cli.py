"""`intertidal broker`: start, stop and look at the local broker."""

import json
from dataclasses import dataclass
from pathlib import Path

import click

from ops.broker.choice import KINDS, Kind, ManagedBroker, kept_broker, running_kept_broker
from ops.broker.installation import ensure_installation
from ops.broker.local import default_data_dir
from ops.broker.registry import LocalRegistry, registry_dir
from ops.broker.registry_installation import ensure_registry_installation
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
    registry: str | None


@click.group()
def broker() -> None:
    """A local Apache Kafka on loopback only: in a container where a Docker engine runs, else in a JVM.

    \b
    Example:
      intertidal broker start
      export KAFKA_BOOTSTRAP=$(intertidal broker status --json | jq -r .bootstrap)
      intertidal broker stop
    """


@broker.command()
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the broker.  [default: a free one]")
@click.option(
    "--with",
    "kind",
    type=click.Choice(KINDS),
    help="What it runs in.  [default: as before, else docker where an engine answers, else jvm]",
)
@click.option("--registry", "with_registry", is_flag=True, help="Start a Schema Registry too, in a JVM.")
@_data_dir
@_as_json
def start(port: int | None, kind: Kind | None, with_registry: bool, data_dir: Path | None, as_json: bool) -> None:
    """Start the broker, or adopt the one that runs; prints host:port, then what SCHEMA_REGISTRY_URL is to be.

    \b
    Example:
      intertidal broker start --port 9092
      intertidal broker start --registry
    """
    folder = data_dir or default_data_dir()
    local = kept_broker(folder, port=port, kind=kind)
    with progress("starting a local Kafka"):
        local.start()
    registry = LocalRegistry(registry_dir(folder))
    if with_registry:
        with progress("starting a local Schema Registry"):
            registry.start()
    _show(local, registry, as_json=as_json)
    if with_registry and not as_json:
        click.echo(registry.url)


@broker.command()
@_data_dir
def stop(data_dir: Path | None) -> None:
    """Stop the broker, and the Schema Registry that was started with it; their data stays.

    \b
    Example:
      intertidal broker stop
    """
    folder = data_dir or default_data_dir()
    registry_was_running = LocalRegistry(registry_dir(folder)).stop()
    broker_was_running = (running_kept_broker(folder) or kept_broker(folder)).stop()
    click.echo("stopped" if broker_was_running or registry_was_running else "not running")


@broker.command()
@click.option("--registry", "of_registry", is_flag=True, help="Say it of the Schema Registry: prints its URL.")
@_data_dir
@_as_json
def status(of_registry: bool, data_dir: Path | None, as_json: bool) -> int:
    """Say whether the broker runs, and where; exit code 1 when it does not.

    \b
    Example:
      intertidal broker status --json
      export SCHEMA_REGISTRY_URL=$(intertidal broker status --registry)
    """
    folder = data_dir or default_data_dir()
    local = running_kept_broker(folder) or kept_broker(folder)
    registry = LocalRegistry(registry_dir(folder))
    looked_at = registry if of_registry else local
    if of_registry and not as_json:
        click.echo(registry.url if registry.pid is not None else "not running")
    else:
        _show(local, registry, as_json=as_json)
    return 0 if looked_at.pid is not None else 1


@broker.command()
def fetch() -> None:
    """Fetch the broker and the Schema Registry into the cache now, so that a later start needs no network.

    \b
    Example:
      intertidal broker fetch
    """
    with progress("fetching a local Kafka, once"):
        ensure_installation()
    with progress("fetching a local Schema Registry, once"):
        ensure_registry_installation()


def _show(local: ManagedBroker, registry: LocalRegistry, *, as_json: bool) -> None:
    pid = local.pid
    running = pid is not None
    shown = _Status(
        running,
        local.bootstrap if running else None,
        pid,
        str(local.data_dir),
        local.log,
        registry.url if registry.pid is not None else None,
    )
    if as_json:
        click.echo(json.dumps({field: getattr(shown, field) for field in _Status.__slots__}))
    else:
        click.echo(shown.bootstrap if running else "not running")
