"""The fleet agents of a scenario as one process: gates are flipped, and Kafka is told.

python -m ops.simulator.agents --scenario generated --base-dir DIR
"""

import argparse
import threading
from dataclasses import dataclass
from pathlib import Path

from ops.agent.gates import HostGates
from ops.agent.host_agent import HostAgentSettings
from ops.agent.moments import system_now
from ops.agent.runner import RENEWALS_PER_LEASE, STOP_DRAIN_S, AgentRunner
from ops.simulator.broker_access import open_producer
from ops.simulator.command import run_command, scenario_arguments
from ops.simulator.fleet import FleetAgents
from ops.simulator.scenario_model import Scenario
from ops.telemetry.logs import get_log
from ops.telemetry.stop_signals import stop_event
from schemas.topics import FLEET_CAPACITY, Namespace

_LOG = get_log(__name__)


@dataclass(frozen=True, kw_only=True)
class AgentOptions:
    """What a process of fleet agents is told.

    Gates lie in ``base_dir``/HOST/ACCELERATOR.gate. ``start_ms`` is when traffic starts, None for now: agents and
    callers that are given the same one share a timeline, also after a restart. ``drain_limit_s`` is how long a closed
    gate waits for its rankers.
    """

    namespace: Namespace
    scenario: Scenario
    base_dir: Path
    start_ms: int | None = None
    lease_s: float = 2.0
    drain_limit_s: float = 10.0

    def __post_init__(self) -> None:
        if not 0.1 <= self.lease_s <= 3_600.0:
            raise ValueError(f"lease_s must be from 0.1 to 3600, is {self.lease_s:g}")
        if not 0.0 < self.drain_limit_s <= 3_600.0:
            raise ValueError(f"drain_limit_s must be above 0 and at most 3600, is {self.drain_limit_s:g}")

    def agent_settings(self) -> HostAgentSettings:
        """The same in the pure agent's terms."""
        return HostAgentSettings(
            heartbeat_ns=self.scenario.time.heartbeat_ms * 1_000_000,
            renew_ns=round(self.lease_s / RENEWALS_PER_LEASE * 1e9),
            drain_limit_ns=round(self.drain_limit_s * 1e9),
        )


def host_folder(base_dir: Path, host: str) -> Path:
    """Runtime folder of a simulated host: what its rankers get as INTERTIDAL_RUNTIME_DIR."""
    return base_dir / host


def run(options: AgentOptions, *, stop: threading.Event | None = None) -> None:
    """Play the scenario's hosts until SIGTERM or SIGINT (or ``stop``). On the way out

    1. every gate is closed and the reclaim told, 2. the rankers' timings are told, 3. all records are acknowledged,
    4. the gate files are let go. After a failure every gate is closed and let go; nothing more is told.

    Raises ValueError for a wrong setting, GateError for a gate that cannot be taken, BrokerError without broker or
    topic, DeliveryError when the broker refuses a record.
    """
    scenario = options.scenario
    topic = options.namespace.topic(FLEET_CAPACITY)
    producer = open_producer("intertidal-agents", [topic])
    gates = HostGates(lease_s=options.lease_s)
    try:
        for host in scenario.hosts:
            gates.add(host.name, host.accelerator, host_folder(options.base_dir, host.name))
        with stop_event(stop) as stopped:
            now = system_now()
            start_ms = now.wall_ms if options.start_ms is None else options.start_ms
            zero_ns = now.mono_ns + (start_ms - now.wall_ms) * 1_000_000 + round(scenario.warm_up_s * 1e9)
            fleet = FleetAgents(scenario, options.agent_settings(), zero_ns=zero_ns, now=now)
            runner = AgentRunner(
                fleet,
                gates,
                lambda record: producer.send(topic, record, key=record.cell.encode()),
                clock=system_now,
            )
            runner.start()
            _LOG.info("agents started", hosts=len(scenario.hosts), scenario=scenario.name)
            while not stopped.wait(runner.wait_s()):
                runner.step()
                producer.poll()
            runner.stop(drain_s=STOP_DRAIN_S)  # 1, 2
            producer.drain()  # 3
    finally:
        gates.shutdown()  # 4


def main() -> None:
    """Play the hosts of a scenario."""
    parser = argparse.ArgumentParser(prog="python -m ops.simulator.agents", description="Fleet agents of a scenario")
    scenario_arguments(parser)
    parser.add_argument("--base-dir", type=Path, required=True, help="folder of the hosts' runtime folders")
    arguments = parser.parse_args()
    run_command(
        "agents",
        arguments,
        lambda namespace, scenario: run(
            AgentOptions(
                namespace=namespace, scenario=scenario, base_dir=arguments.base_dir, start_ms=arguments.start_ms
            )
        ),
    )


if __name__ == "__main__":
    main()
