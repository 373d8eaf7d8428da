"""Many hosts in one process: a scenario's timeline played on their agents. Pure; time is passed in."""

import heapq
from collections.abc import Iterator
from dataclasses import replace

from ops.simulator.host_agent import HostAgent, HostAgentSettings, Now, Plan
from ops.simulator.host_reporter import HostReporter
from ops.simulator.scenario_model import Host, Scenario
from ops.simulator.timeline import HostEvent, host_timeline
from schemas.gate_writer import DrainReport
from schemas.records import Offer

AGENT_STOPPED = "agent_stopped"

HostPlan = tuple[str, Plan]


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
        return Plan() if self._is_away else self.agent.offer(self._offer(), now)

    def happen(self, event: HostEvent, now: Now) -> Plan:
        """What the agent does about one event of the timeline."""
        self.remember(event)
        if event.action == "reclaim":
            return self.agent.reclaim(self.host.accelerator, now, reason=event.reason)
        if event.action == "notice":
            ahead_ns = round(event.ahead_s * 1e9)
            return self.agent.notice(self.host.accelerator, now, ahead_ns=ahead_ns, reason=event.reason)
        return Plan() if self._is_away else self.agent.offer(self._offer(), now, reason=event.reason)

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


class FleetAgents:
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
        self._due = [(host.agent.due_ns, name) for name, host in self._hosts.items()]
        heapq.heapify(self._due)
        self._draining: set[str] = set()

    @property
    def next_due_ns(self) -> int | None:
        """When ``advance`` has something to do next; None for a fleet without hosts."""
        times = [self._due[0][0]] if self._due else []
        if self._num_played < len(self._timeline):
            times.append(self._at_ns(self._timeline[self._num_played]))
        return min(times, default=None)

    @property
    def is_played(self) -> bool:
        """Whether the timeline is over."""
        return self._num_played == len(self._timeline)

    def start(self, now: Now) -> list[HostPlan]:
        """Offer what is idle at the start."""
        return self._noted((name, host.start(now)) for name, host in self._hosts.items())

    def advance(self, now: Now) -> list[HostPlan]:
        """What is due by now: the owners' wishes first, then renewals and heartbeats."""
        return self._noted([*self._play(now), *self._tick(now)])

    def draining(self) -> list[tuple[str, str]]:
        """Host and accelerator kind of each gate whose rankers have not all given way yet."""
        return [(name, kind) for name in sorted(self._draining) for kind in self._hosts[name].agent.draining]

    def drained(
        self, host: str, accelerator: str, report: DrainReport, now: Now, *, is_last_look: bool = False
    ) -> HostPlan:
        """Pass on a look at a closed gate's rankers."""
        plan = self._hosts[host].agent.drained(accelerator, report, now, is_last_look=is_last_look)
        return self._noted([(host, plan)])[0]

    def lease_lost(self, host: str, accelerator: str, now: Now) -> HostPlan:
        """Pass on that a renewal came too late."""
        return self._noted([(host, self._hosts[host].agent.lease_lost(accelerator, now))])[0]

    def stop(self, now: Now) -> list[HostPlan]:
        """Close and take back everything."""
        return self._noted((name, host.agent.stop(now, reason=AGENT_STOPPED)) for name, host in self._hosts.items())

    def last_words(self, now: Now) -> list[HostPlan]:
        """After ``stop``: what no record has told yet."""
        return [(name, host.agent.last_word(now)) for name, host in self._hosts.items()]

    def _play(self, now: Now) -> Iterator[HostPlan]:
        while not self.is_played and self._at_ns(self._timeline[self._num_played]) <= now.mono_ns:
            event = self._timeline[self._num_played]
            self._num_played += 1
            yield event.host, self._hosts[event.host].happen(event, now)

    def _tick(self, now: Now) -> Iterator[HostPlan]:
        while self._due and self._due[0][0] <= now.mono_ns:
            _, name = self._due[0]
            agent = self._hosts[name].agent
            plan = agent.tick(now)
            heapq.heapreplace(self._due, (agent.due_ns, name))
            yield name, plan

    def _noted(self, plans: Iterator[HostPlan] | list[HostPlan]) -> list[HostPlan]:
        """The plans as a list, after noting which of their hosts are draining."""
        listed = list(plans)
        for name, _ in listed:
            if self._hosts[name].agent.draining:
                self._draining.add(name)
            else:
                self._draining.discard(name)
        return listed

    def _at_ns(self, event: HostEvent) -> int:
        return self._zero_ns + round(event.at_s * 1e9)
