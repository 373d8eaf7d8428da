"""What the simulator's command lines share: the scenario's arguments, and failures as one line."""

import argparse
import os
import sys
from collections.abc import Callable

from ops.parent_death import obey_supervisor
from ops.simulator.files.apply import load_traffic
from ops.simulator.scenario import Scenario
from ops.telemetry.logs import set_up_logging
from schemas.gate import GateError
from schemas.kafka.admin import BrokerError
from schemas.kafka.config import NAMESPACE_ENV
from schemas.kafka.producer import DeliveryError
from schemas.topics import Namespace


def scenario_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that every part of a scenario takes."""
    parser.add_argument("--scenario", default="generated", help="name of a built-in scenario, or a TOML file")
    parser.add_argument("--duration-s", type=float, help="stretch the scenario's measured time to this")
    parser.add_argument("--start-ms", type=int, help="when traffic starts, ms since the Unix epoch (default: now)")


def run_command(part: str, arguments: argparse.Namespace, run: Callable[[Namespace, Scenario], None]) -> None:
    """Run a part in the environment's namespace; what a person can mend is one line on stderr and exit code 1."""
    obey_supervisor()
    set_up_logging(part)
    try:
        scenario = load_traffic(arguments.scenario, duration_s=arguments.duration_s)
        run(Namespace(os.environ.get(NAMESPACE_ENV, "")), scenario)
    except (ValueError, GateError, BrokerError, DeliveryError) as error:
        print(f"{part}: {error}", file=sys.stderr)
        sys.exit(1)
