"""The agents of several hosts in one process: which is due, and which is draining. Pure; time is passed in."""

import heapq
from collections.abc import Iterable, Iterator, Mapping

from ops.agent.host_agent import AGENT_STOPPED, HostAgent
from ops.agent.moments import Now
from ops.agent.plans import HostPlan
from schemas.gate_drain import DrainReport


class HostSet:
    """Agents by the names of their hosts. Each call costs the hosts that have something to do, not all."""

    def __init__(self, agents: Mapping[str, HostAgent]) -> None:
        self._agents = agents
        self._due = [(agent.due_ns, name) for name, agent in agents.items()]
        heapq.heapify(self._due)
        self._draining: set[str] = set()

    @property
    def next_due_ns(self) -> int | None:
        """When ``tick`` has something to do next; None without hosts."""
        return self._due[0][0] if self._due else None

    def draining(self) -> list[tuple[str, str]]:
        """Host and pool of each gate whose rankers have not all given way yet."""
        return [(name, pool) for name in sorted(self._draining) for pool in self._agents[name].draining]

    def tick(self, now: Now) -> Iterator[HostPlan]:
        """Renewals and heartbeats that are due."""
        while self._due and self._due[0][0] <= now.mono_ns:
            _, name = self._due[0]
            agent = self._agents[name]
            plan = agent.tick(now)
            heapq.heapreplace(self._due, (agent.due_ns, name))
            yield name, plan

    def drained(self, host: str, pool: str, report: DrainReport, now: Now, *, is_last_look: bool = False) -> HostPlan:
        """Pass on a look at a closed gate's rankers."""
        return self.noted([(host, self._agents[host].drained(pool, report, now, is_last_look=is_last_look))])[0]

    def lease_lost(self, host: str, pool: str, now: Now) -> HostPlan:
        """Pass on that a renewal came too late."""
        return self.noted([(host, self._agents[host].lease_lost(pool, now))])[0]

    def stop(self, now: Now, *, reason: str = AGENT_STOPPED) -> list[HostPlan]:
        """Close and take back everything."""
        return self.noted((name, agent.stop(now, reason=reason)) for name, agent in self._agents.items())

    def last_words(self, now: Now) -> list[HostPlan]:
        """After ``stop``: what no record has told yet."""
        return [(name, agent.last_word(now)) for name, agent in self._agents.items()]

    def noted(self, plans: Iterable[HostPlan]) -> list[HostPlan]:
        """The plans as a list, after noting which of their hosts are draining."""
        listed = list(plans)
        for name, _ in listed:
            if self._agents[name].draining:
                self._draining.add(name)
            else:
                self._draining.discard(name)
        return listed
