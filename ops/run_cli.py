"""`intertidal run`: one long-running part each, until SIGTERM or SIGINT."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast, get_args

import click
from confluent_kafka import KafkaException

from ops.broker.locate import require_broker
from ops.connection import namespace, time_settings
from ops.errors import UserError
from ops.parent_death import obey_supervisor
from ops.telemetry.logs import get_log, set_up_logging
from schemas.attribution_keys import KEYS_ENV, AttributionKeys, is_open_to_others, keys_from_env
from schemas.gate import GateError
from schemas.kafka.admin import BrokerError
from schemas.kafka.config import BOOTSTRAP_ENV
from schemas.kafka.producer import DeliveryError
from schemas.records.fields import Route
from schemas.settings import MeasurementSettings

log = get_log(__name__)

_ROUTES = get_args(Route)
# Routes that one process may serve: one, or base work with extras in its headroom.
_ROUTE_SETS = (*_ROUTES, "baseline,wide")

_health_port = click.option(
    "--health-port", type=click.IntRange(0, 65535), default=0, help="Port of health and metrics.  [default: a free one]"
)


def _identity(part: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        "--id",
        "identity",
        default=f"{part}-{socket.gethostname()}",
        help="Name of this process, the same after a restart.",
    )


@click.group()
def run() -> None:
    """Run one long-running part. The broker is the one at KAFKA_BOOTSTRAP, or else the local one that runs.

    \b
    Example:
      KAFKA_BOOTSTRAP=127.0.0.1:9092 intertidal run router --id router-1
    """
    obey_supervisor()


@run.command()
@_identity("ingest")
@_health_port
def ingest(identity: str, health_port: int) -> None:
    """Close windows of the raw topics, results and outcomes into control.windows.

    Attribution tokens are verified with the keys of the file that INTERTIDAL_ATTRIBUTION_KEYS names.

    \b
    Example:
      intertidal run ingest --id ingest-1
    """
    from streams.ingest.worker import IngestOptions
    from streams.ingest.worker import run as run_ingest

    with _part("ingest"):
        run_ingest(
            IngestOptions(
                namespace=namespace(),
                time=time_settings(),
                worker_id=identity,
                health_port=health_port,
                static_member=True,
                measurement=MeasurementSettings.from_env(),
                keys=_keys(),
            )
        )


@run.command()
@_identity("control")
@_health_port
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Folder of the controllers' table, one process each.",
)
def control(identity: str, health_port: int, data_dir: Path) -> None:
    """Turn windows into targets and pools.

    \b
    Example:
      intertidal run control --id control-1 --data-dir /var/lib/intertidal/control-1
    """
    from streams.control.agent import ControlOptions
    from streams.control.agent import run as run_control

    with _part("control"):
        run_control(
            ControlOptions(
                namespace=namespace(),
                time=time_settings(),
                instance_id=identity,
                data_dir=data_dir,
                health_port=health_port,
            )
        )


@run.command()
@_identity("router")
@_health_port
@click.option(
    "--experiment",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file of arms, doses and segments (docs/examples/experiment.toml), the same at every router.",
)
def router(identity: str, health_port: int, experiment: Path | None) -> None:
    """Answer ranking.requests: base work for every one, extras and the stronger model as arms and targets allow.

    Attribution tokens are signed with the last key of the file that INTERTIDAL_ATTRIBUTION_KEYS names.

    \b
    Example:
      intertidal run router --id router-1
    """
    from ranking.router.experiment import Experiment, load_experiment
    from ranking.router.policy import RouterPolicy
    from ranking.router.worker import RouterOptions
    from ranking.router.worker import run as run_router

    with _part("router"):
        policy = RouterPolicy(
            experiment=Experiment() if experiment is None else load_experiment(experiment), keys=_keys()
        )
        run_router(
            RouterOptions(
                namespace=namespace(),
                time=time_settings(),
                router_id=identity,
                health_port=health_port,
                policy=policy,
            )
        )


@run.command()
@_identity("ranker")
@_health_port
@click.option(
    "--route",
    "routes",
    type=click.Choice(_ROUTE_SETS),
    required=True,
    help="What it serves; baseline,wide mixes extras into the headroom of base work.",
)
@click.option("--cell", required=True, help="Cell whose pool it runs on.")
@click.option("--pool", help="Pool whose gate it obeys.  [default: none, as on dedicated capacity]")
@click.option(
    "--bundle",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="Folder of the model bundle.",
)
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda or cuda:N.")
@click.option(
    "--fallback",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Bundle that scores base work on the processor when the model fails.  [default: --bundle, off its device]",
)
@click.option(
    "--nice",
    type=click.IntRange(0, 19),
    default=5,
    show_default=True,
    help="CPU priority of a replica without base work: a third of the weight of base work at 5; 19 is the lowest.",
)
def ranker(routes: str, nice: int, **given: Any) -> None:
    """Score work of one route, and shed optional work at once when the pool's gate closes.

    \b
    Example:
      intertidal run ranker --route baseline --cell us-east --bundle ranking/models/bundles/baseline-world
      intertidal run ranker --route wide --pool h100 --cell us-east --bundle ... --device cuda
    """
    from ranking.consumer.priority import give_way

    route_names = tuple(cast("Route", route) for route in routes.split(","))
    # Before PyTorch is loaded: seconds of CPU time that base work on the same host must not wait for.
    give_way(route_names, nice=nice)
    from ranking.consumer.worker import RankerOptions
    from ranking.consumer.worker import run as run_ranker

    with _part("ranker"):
        run_ranker(
            RankerOptions(
                namespace=namespace(),
                time=time_settings(),
                ranker_id=given["identity"],
                cell=given["cell"],
                routes=route_names,
                pool=given["pool"],
                bundle=given["bundle"],
                device=given["device"],
                fallback_bundle=given["fallback"],
                static_member=given["pool"] is None,
                health_port=given["health_port"],
                nice=nice,
            )
        )


@run.command()
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The agent's TOML file (docs/agent.md).",
)
@click.option(
    "--copies",
    type=click.IntRange(1, 100_000),
    default=1,
    show_default=True,
    help="So many hosts in this process, all alike; for load tests.",
)
@_health_port
@click.option("--scenario", help="Play the hosts of a built-in scenario, or of a TOML file, instead.")
@click.option(
    "--base-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the played hosts' runtime folders; gates lie in BASE_DIR/HOST.",
)
@click.option("--duration-s", type=click.FloatRange(1.0), help="Stretch the scenario's measured time to this.")
@click.option("--start-ms", type=int, help="When its traffic starts, ms since the Unix epoch.  [default: now]")
def agent(config: Path | None, copies: int, health_port: int, scenario: str | None, **played: Any) -> None:
    """Offer what is idle on this host, and give it back the moment it is wanted: flip gates, and tell Kafka.

    With --scenario the agents of all its hosts are played, for demos.

    \b
    Example:
      intertidal run agent --config /etc/intertidal/agent.toml
      intertidal run agent --scenario generated --base-dir /run/intertidal
    """
    if (config is None) == (scenario is None):
        raise click.UsageError("one of --config and --scenario is needed.")
    if scenario is not None:
        _play_agents(scenario, **played)
        return
    from ops.agent.agent import AgentOptions
    from ops.agent.agent import run as run_agent
    from ops.agent.settings import load_settings
    from ops.agent.spool import SpoolError

    assert config is not None
    with _part("agent"):
        try:
            run_agent(
                AgentOptions(
                    namespace=namespace(),
                    time=time_settings(),
                    settings=load_settings(config),
                    copies=copies,
                    health_port=health_port,
                )
            )
        except SpoolError as error:
            raise UserError(f"agent: {error}") from error


def _play_agents(scenario: str, *, base_dir: Path | None, duration_s: float | None, start_ms: int | None) -> None:
    if base_dir is None:
        raise click.UsageError("--scenario needs --base-dir.")
    from ops.simulator.agents import AgentOptions
    from ops.simulator.agents import run as run_agents
    from ops.simulator.files.apply import load_traffic

    with _part("agent"):
        run_agents(
            AgentOptions(
                namespace=namespace(),
                scenario=load_traffic(scenario, duration_s=duration_s),
                base_dir=base_dir,
                start_ms=start_ms,
            )
        )


def _keys() -> AttributionKeys:
    """Keys of attribution tokens; a file that others may read is still used, or nothing would be counted."""
    keys = keys_from_env()
    if is_open_to_others():
        log.warning("others on this machine may read the keys of attribution tokens", file=os.environ[KEYS_ENV])
    return keys


@contextmanager
def _part(name: str) -> Iterator[None]:
    """A broker, logging in the part's name, and what a person can put right as one line."""
    # Not before: wrong use and --help need none.
    if not os.environ.get(BOOTSTRAP_ENV):
        os.environ[BOOTSTRAP_ENV] = require_broker().bootstrap
    set_up_logging(name, level=os.environ.get("INTERTIDAL_LOG_LEVEL", "INFO"))
    try:
        yield
    except (ValueError, BrokerError, DeliveryError, GateError) as error:
        raise UserError(f"{name}: {error}") from error
    except KafkaException as error:
        # A setting that librdkafka does not know; it names the setting and not its value.
        raise UserError(f"{name}: {error.args[0].str()}") from error
    except OSError as error:
        # A health port in use, a folder that cannot be written.
        raise UserError(f"{name}: {error}") from error
