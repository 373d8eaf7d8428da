"""The fleet agents of a scenario as one process: gates are flipped, and Kafka is told.

python -m ops.simulator.agents --scenario generated --base-dir DIR
"""

import argparse
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from ops.simulator.broker_access import open_producer
from ops.simulator.command import run_command, scenario_arguments
from ops.simulator.fleet import FleetAgents, HostPlan
from ops.simulator.gates import HostGates
from ops.simulator.host_agent import GateStep, HostAgentSettings, Now
from ops.simulator.scenario_model import Scenario
from ops.telemetry.logs import get_log
from ops.telemetry.stop_signals import stop_event
from schemas.gate_writer import DrainReport
from schemas.records import CapacityEvent
from schemas.topics import FLEET_CAPACITY, Namespace

# Rankers note their times themselves: how often the agent looks changes when a timing is told, not what it says.
DRAIN_LOOK_S: Final = 0.02
_LONGEST_WAIT_S: Final = 0.5
# Of one lease, so that three renewals in a row must fail before a gate closes by itself.
_RENEWALS_PER_LEASE: Final = 4
_STOP_DRAIN_S: Final = 2.0

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
            renew_ns=round(self.lease_s / _RENEWALS_PER_LEASE * 1e9),
            drain_limit_ns=round(self.drain_limit_s * 1e9),
        )


class Gates(Protocol):
    """What the runner asks of gate files; HostGates, or a stand-in in tests."""

    def take(self, host: str, step: GateStep) -> bool: ...

    def look(self, host: str, accelerator: str) -> DrainReport: ...


class AgentRunner:
    """Does what the fleet plans: for all hosts that have something to do at one moment,

    1. every gate step, so that no broker, however slow, can delay a reclaim,
    2. what follows from leases found expired,
    3. the records.
    """

    def __init__(
        self, fleet: FleetAgents, gates: Gates, send: Callable[[CapacityEvent], None], *, clock: Callable[[], Now]
    ) -> None:
        self._fleet = fleet
        self._gates = gates
        self._send = send
        self._clock = clock

    def start(self) -> None:
        """Open the gates of what is idle, and offer it."""
        self._perform(self._fleet.start(self._clock()))

    def step(self) -> None:
        """Do what is due now, and look once at the rankers of closed gates."""
        self._perform(self._fleet.advance(self._clock()))
        self._look_at_draining()

    def wait_s(self) -> float:
        """How long nothing will be due."""
        due_ns = self._fleet.next_due_ns
        wait_s = _LONGEST_WAIT_S if due_ns is None else (due_ns - self._clock().mono_ns) / 1e9
        return min(max(wait_s, 0.0), DRAIN_LOOK_S if self._fleet.draining() else _LONGEST_WAIT_S)

    def stop(self, *, drain_s: float, sleep: Callable[[float], None] = time.sleep) -> None:
        """1. Gates closed, 2. reclaims told, 3. rankers waited for, at most ``drain_s``, 4. their timings told."""
        self._perform(self._fleet.stop(self._clock()))  # 1, 2
        until_ns = self._clock().mono_ns + round(drain_s * 1e9)
        self._look_at_draining()  # 3
        while self._fleet.draining() and self._clock().mono_ns < until_ns:
            sleep(DRAIN_LOOK_S)
            self._look_at_draining()
        # Whoever has not answered by now is told as such: no reclaim goes without a timing.
        self._look_at_draining(is_last_look=True)
        self._perform(self._fleet.last_words(self._clock()))  # 4

    def _perform(self, plans: Iterable[HostPlan]) -> None:
        plans = list(plans)
        lost = [  # 1
            (host, step.accelerator) for host, plan in plans for step in plan.gates if not self._gates.take(host, step)
        ]
        for host, accelerator in lost:  # 2
            _LOG.warning("a gate's lease ran out before it was renewed", host=host, accelerator=accelerator)
            plans.append(self._fleet.lease_lost(host, accelerator, self._clock()))
        for _, plan in plans:  # 3
            for record in plan.records:
                self._send(record)

    def _look_at_draining(self, *, is_last_look: bool = False) -> None:
        for host, accelerator in self._fleet.draining():
            report = self._gates.look(host, accelerator)
            plan = self._fleet.drained(host, accelerator, report, self._clock(), is_last_look=is_last_look)
            self._perform([plan])


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
    gates = HostGates(scenario.hosts, options.base_dir, lease_s=options.lease_s)
    try:
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
            runner.stop(drain_s=_STOP_DRAIN_S)  # 1, 2
            producer.drain()  # 3
    finally:
        gates.shutdown()  # 4


def system_now() -> Now:
    """This moment by the system's clocks."""
    return Now(wall_ms=time.time_ns() // 1_000_000, mono_ns=time.monotonic_ns())


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
