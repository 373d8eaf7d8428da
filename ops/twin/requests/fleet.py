"""The agents of a scenario's hosts, played on the clock of a simulation or ahead of it."""

import math
from collections.abc import Callable

from ops.agent.host_agent import HostAgentSettings
from ops.agent.moments import Now
from ops.agent.runner import RENEWALS_PER_LEASE, AgentRunner
from ops.simulator.fleet import FleetAgents
from ops.simulator.scenario_model import Host, Scenario
from ops.twin.requests.engine import MS, Engine, S
from ops.twin.requests.gates import FleetGates, MemoryGate
from schemas.records import CapacityEvent

# As `ops.simulator.agents.AgentOptions` has them.
_LEASE_NS = 2 * S
_RENEW_NS = _LEASE_NS // RENEWALS_PER_LEASE
_DRAIN_LIMIT_NS = 10 * S


class Fleet:
    """Flips gates and tells of it, as the scenario says. ``zero_ns`` is the end of the warm-up."""

    def __init__(
        self,
        scenario: Scenario,
        engine: Engine,
        *,
        zero_ns: int,
        send: Callable[[CapacityEvent], None],
        on_closed: Callable[[str, int], None],
    ) -> None:
        self._engine = engine
        self._send = send
        # The agents' own clock: at times ahead of the simulation's.
        self._clock_ns = engine.now_ns
        self._gates = FleetGates(
            scenario.hosts, lease_ns=_LEASE_NS, clock=self._now, ahead=self._advance, on_closed=on_closed
        )
        settings = HostAgentSettings(
            heartbeat_ns=scenario.time.heartbeat_ms * MS, renew_ns=_RENEW_NS, drain_limit_ns=_DRAIN_LIMIT_NS
        )
        fleet = FleetAgents(scenario, settings, zero_ns=zero_ns, now=self._now())
        self._runner = AgentRunner(fleet, self._gates, self._sent, clock=self._now)
        self._is_moving = False
        self._due_ns = self._clock_ns

    def start(self) -> None:
        """Open the gates of what is idle, and go on from there."""
        self._runner.start()
        self._plan()
        self._engine.at(self._due_ns, self._turn, None)

    def gate(self, host: Host) -> MemoryGate:
        """The gate of a host's pool."""
        return self._gates.of(host)

    def _turn(self, _: None) -> None:
        self._advance(self._engine.now_ns)
        self._engine.at(self._due_ns, self._turn, None)

    def _advance(self, until_ns: int) -> None:
        """Do all that is due up to a moment. What is done depends on the times alone, not on who asks when."""
        if self._is_moving:
            return
        self._is_moving = True
        while self._due_ns <= until_ns:
            self._clock_ns = self._due_ns
            self._runner.step()
            self._plan()
        self._is_moving = False

    def _plan(self) -> None:
        self._due_ns = self._clock_ns + max(1, math.ceil(self._runner.wait_s() * S))

    def _sent(self, record: CapacityEvent) -> None:
        self._engine.at(self._clock_ns, self._send, record)

    def _now(self) -> Now:
        return Now(wall_ms=self._clock_ns // MS, mono_ns=self._clock_ns)
