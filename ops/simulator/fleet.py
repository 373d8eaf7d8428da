"""Many hosts in one process: a scenario's timeline played on their agents. Pure; time is passed in."""

from collections.abc import Iterator
from dataclasses import replace

from ops.agent.host_agent import HostAgent, HostAgentSettings
from ops.agent.host_reporter import HostReporter
from ops.agent.host_set import HostSet
from ops.agent.moments import Now
from ops.agent.plans import HostPlan, Plan
from ops.simulator.scenario_model import Host, Scenario
from ops.simulator.timeline import HostEvent, host_timeline
from schemas.records import Offer


class SimulatedHost:
    """One host of a scenario and its agent: remembers what the owner wants, whether or not the agent can do it yet."""

    def __init__(self, host: Host, agent: HostAgent) -> None:
        self.host = host
        self.agent = agent
        self._units = host.units
        self._is_away = not host.offered_at_start

    def remember(self, event: HostEvent) -> None:
        """Take in what happened before the agent started, without acting on it."""
        if event.action == "update":
            self._units = event.units
        elif event.action != "notice":
            self._is_away = event.action == "reclaim"

    def start(self, now: Now) -> Plan:
        """Offer what the owner leaves idle now."""
        return Plan() if self._is_away else self.agent.offer(self.host.accelerator, self._offer(), now)

    def happen(self, event: HostEvent, now: Now) -> Plan:
        """What the agent does about one event of the timeline."""
        self.remember(event)
        pool = self.host.accelerator
        if event.action == "reclaim":
            return self.agent.reclaim(pool, now, reason=event.reason)
        if event.action == "notice":
            return self.agent.notice(pool, now, ahead_ns=round(event.ahead_s * 1e9), reason=event.reason)
        return Plan() if self._is_away else self.agent.offer(pool, self._offer(), now, reason=event.reason)

    def _offer(self) -> Offer:
        return Offer(
            accelerator=self.host.accelerator,
            units=self._units,
            cpu_cores=self.host.cpu_cores,
            memory_bytes=self.host.memory_bytes,
            idle_cause=self.host.idle_cause,
            unusable=self.host.unusable,
            provider=self.host.provider,
        )


class FleetAgents(HostSet):
    """The agents of all hosts of a scenario.

    ``zero_ns`` is the end of the warm-up on the monotonic clock, from which the timeline counts. What happened
    before ``now`` is remembered and not played: an agent that starts again in the middle of a reclaim keeps its
    gates closed. Each call costs the hosts that have something to do, not all.
    """

    def __init__(self, scenario: Scenario, settings: HostAgentSettings, *, zero_ns: int, now: Now) -> None:
        self._zero_ns = zero_ns
        self._hosts: dict[str, SimulatedHost] = {}
        for index, host in enumerate(scenario.hosts):
            reporter = HostReporter(cell=host.cell, host=host.name, epoch_ms=now.wall_ms)
            own = replace(settings, phase_ns=settings.heartbeat_ns * (index + 1) // len(scenario.hosts))
            agent = HostAgent(reporter, [host.accelerator], own, now=now)
            self._hosts[host.name] = SimulatedHost(host, agent)
        timeline = host_timeline(scenario)
        past = [event for event in timeline if self._at_ns(event) <= now.mono_ns]
        for event in past:
            self._hosts[event.host].remember(event)
        self._timeline = timeline[len(past) :]
        self._num_played = 0
        super().__init__({name: host.agent for name, host in self._hosts.items()})

    @property
    def next_due_ns(self) -> int | None:
        """When ``advance`` has something to do next; None for a fleet without hosts."""
        due_ns = super().next_due_ns
        times = [] if due_ns is None else [due_ns]
        if self._num_played < len(self._timeline):
            times.append(self._at_ns(self._timeline[self._num_played]))
        return min(times, default=None)

    @property
    def is_played(self) -> bool:
        """Whether the timeline is over."""
        return self._num_played == len(self._timeline)

    def start(self, now: Now) -> list[HostPlan]:
        """Offer what is idle at the start."""
        return self.noted((name, host.start(now)) for name, host in self._hosts.items())

    def advance(self, now: Now) -> list[HostPlan]:
        """What is due by now: the owners' wishes first, then renewals and heartbeats."""
        return self.noted([*self._play(now), *self.tick(now)])

    def _play(self, now: Now) -> Iterator[HostPlan]:
        while not self.is_played and self._at_ns(self._timeline[self._num_played]) <= now.mono_ns:
            event = self._timeline[self._num_played]
            self._num_played += 1
            yield event.host, self._hosts[event.host].happen(event, now)

    def _at_ns(self, event: HostEvent) -> int:
        return self._zero_ns + round(event.at_s * 1e9)
