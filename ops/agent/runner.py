"""Does what the agents of one process plan: gates first, then what follows from them, then the records."""

import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from ops.agent.moments import Now
from ops.agent.plans import GateStep, HostPlan, OpenGate, RenewGate
from ops.telemetry.logs import get_log
from schemas.gate import GateError
from schemas.gate_drain import DrainReport
from schemas.records import CapacityEvent

# Rankers note their times themselves: how often the agent looks changes when a timing is told, not what it says.
DRAIN_LOOK_S: Final = 0.02
LONGEST_WAIT_S: Final = 0.5
# Of one lease, so that three renewals in a row must fail before a gate closes by itself.
RENEWALS_PER_LEASE: Final = 4
STOP_DRAIN_S: Final = 2.0

_LOG = get_log(__name__)


class Gates(Protocol):
    """What the runner asks of gate files; HostGates, or a stand-in in tests."""

    def take(self, host: str, step: GateStep) -> bool: ...

    def look(self, host: str, pool: str) -> DrainReport: ...


class Hosts(Protocol):
    """The agents of one process: of its own host, or of many that it plays. Pure; time is passed in."""

    @property
    def next_due_ns(self) -> int | None:
        """When ``advance`` has something to do next; None for never."""

    def start(self, now: Now) -> list[HostPlan]:
        """Offer what is idle at the start."""

    def advance(self, now: Now) -> list[HostPlan]:
        """What is due by now: the owners' wishes first, then renewals and heartbeats."""

    def draining(self) -> list[tuple[str, str]]:
        """Host and pool of each gate whose rankers have not all given way yet."""

    def drained(self, host: str, pool: str, report: DrainReport, now: Now, *, is_last_look: bool = False) -> HostPlan:
        """Pass on a look at a closed gate's rankers."""

    def lease_lost(self, host: str, pool: str, now: Now) -> HostPlan:
        """Pass on that a renewal came too late."""

    def stop(self, now: Now) -> list[HostPlan]:
        """Close and take back everything."""

    def last_words(self, now: Now) -> list[HostPlan]:
        """After ``stop``: what no record has told yet."""


class AgentRunner:
    """Does what the hosts plan: for all that have something to do at one moment,

    1. every gate step, so that no broker, however slow, can delay a reclaim,
    2. what follows from leases found expired,
    3. the records.
    """

    def __init__(
        self, hosts: Hosts, gates: Gates, send: Callable[[CapacityEvent], None], *, clock: Callable[[], Now]
    ) -> None:
        self._hosts = hosts
        self._gates = gates
        self._send = send
        self._clock = clock
        self._looked_in_vain: dict[tuple[str, str], str] = {}

    def start(self) -> None:
        """Open the gates of what is idle, and offer it."""
        self._perform(self._hosts.start(self._clock()))

    def step(self) -> None:
        """Do what is due now, and look once at the rankers of closed gates."""
        self._perform(self._hosts.advance(self._clock()))
        self._look_at_draining()

    def wait_s(self) -> float:
        """How long nothing will be due."""
        due_ns = self._hosts.next_due_ns
        wait_s = LONGEST_WAIT_S if due_ns is None else (due_ns - self._clock().mono_ns) / 1e9
        return min(max(wait_s, 0.0), DRAIN_LOOK_S if self._hosts.draining() else LONGEST_WAIT_S)

    def stop(self, *, drain_s: float, sleep: Callable[[float], None] = time.sleep) -> None:
        """1. Gates closed, 2. reclaims told, 3. rankers waited for, at most ``drain_s``, 4. their timings told."""
        self._perform(self._hosts.stop(self._clock()))  # 1, 2
        until_ns = self._clock().mono_ns + round(drain_s * 1e9)
        self._look_at_draining()  # 3
        while self._hosts.draining() and self._clock().mono_ns < until_ns:
            sleep(DRAIN_LOOK_S)
            self._look_at_draining()
        # Whoever has not answered by now is told as such: no reclaim goes without a timing.
        self._look_at_draining(is_last_look=True)
        self._perform(self._hosts.last_words(self._clock()))  # 4

    def _perform(self, plans: Iterable[HostPlan]) -> None:
        plans = list(plans)
        lost = [(host, step.pool) for host, plan in plans for step in plan.gates if not self._take(host, step)]  # 1
        for host, pool in lost:  # 2
            _LOG.warning("a gate's lease ran out, or it was claimed before it was opened", host=host, pool=pool)
            plans.append(self._hosts.lease_lost(host, pool, self._clock()))
        for _, plan in plans:  # 3
            for record in plan.records:
                self._send(record)

    def _take(self, host: str, step: GateStep) -> bool:
        """Whether a gate is as the step wants it; one that fails holds up no other."""
        try:
            return self._gates.take(host, step)
        except (GateError, OSError) as error:
            _LOG.error("a gate cannot be set", host=host, pool=step.pool, step=type(step).__name__, error=str(error))
        # What cannot be closed is broken, and so closed to its rankers, or closes when its lease is over.
        return not isinstance(step, OpenGate | RenewGate)

    def _look_at_draining(self, *, is_last_look: bool = False) -> None:
        for host, pool in self._hosts.draining():
            try:
                report = self._gates.look(host, pool)
            except (GateError, OSError) as error:
                self._cannot_look(host, pool, str(error))
                continue
            plan = self._hosts.drained(host, pool, report, self._clock(), is_last_look=is_last_look)
            self._perform([plan])

    def _cannot_look(self, host: str, pool: str, error: str) -> None:
        """Said once: there are fifty looks a second."""
        if self._looked_in_vain.get((host, pool)) != error:
            self._looked_in_vain[host, pool] = error
            _LOG.error("a gate's rankers cannot be looked at", host=host, pool=pool, error=error)
