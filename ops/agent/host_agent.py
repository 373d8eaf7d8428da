"""The state machine of one host: from what is to be offered to flips of gates and records. Pure; time is passed in."""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from ops.agent.host_reporter import HostReporter, Kind
from ops.agent.moments import Now
from ops.agent.plans import AnnounceReclaim, CloseGate, GateStep, OpenGate, Plan, RenewGate
from schemas.gate import FlipReason
from schemas.gate_drain import DrainReport
from schemas.records import CapacityEvent, Offer, ReclaimTiming

# Reasons that an agent gives by itself.
LEASE_EXPIRED = "lease_expired"
AGENT_STOPPED = "agent_stopped"


@dataclass
class _Pool:
    """A gate as the agent has set it.

    ``is_open``: flipped open. ``drain_until_ns``: closed and waiting for its rankers until then, None when not.
    ``wanted``: to be offered again once drained. ``accelerator`` is the kind last offered of it.
    """

    accelerator: str
    is_open: bool = False
    drain_until_ns: int | None = None
    reason: str = ""
    wanted: Offer | None = None


@dataclass(frozen=True, kw_only=True)
class HostAgentSettings:
    """Times in ns: ``drain_limit_ns`` is how long a closed gate waits for its rankers before the timing is given up.

    ``phase_ns`` puts the first heartbeat off, so that the hosts of one process do not all speak at once.
    """

    heartbeat_ns: int
    renew_ns: int
    drain_limit_ns: int
    phase_ns: int = 0


class HostAgent:
    """State machine of one host with one gate per pool.

    A gate is open while usable capacity is offered; capacity that nobody can use is reported, its gate stays closed.
    A pool wanted back before its rankers have drained is offered as soon as they have.
    """

    def __init__(self, reporter: HostReporter, pools: Sequence[str], settings: HostAgentSettings, *, now: Now) -> None:
        self._reporter = reporter
        # Until something is offered of it, a pool's name stands for its kind.
        self._pools = {pool: _Pool(accelerator=pool) for pool in pools}
        self._settings = settings
        self._heartbeat_due_ns = now.mono_ns + settings.phase_ns
        self._renew_due_ns = now.mono_ns + settings.renew_ns

    @property
    def due_ns(self) -> int:
        """When ``tick`` has something to do next."""
        return min(self._heartbeat_due_ns, self._renew_due_ns)

    @property
    def draining(self) -> list[str]:
        """Pools whose gate is closed and whose rankers have not all given way yet."""
        return [name for name, pool in self._pools.items() if pool.drain_until_ns is not None]

    def offered(self, pool: str) -> Offer | None:
        """What is offered of a pool now; None while nothing is, also while its rankers drain."""
        return self._reporter.offered(pool)

    def add_pool(self, pool: str) -> None:
        """Take on one more pool, whose gate is closed; without effect for one that is known."""
        self._pools.setdefault(pool, _Pool(accelerator=pool))

    def offer(self, pool: str, offer: Offer, now: Now, *, reason: str = "") -> Plan:
        """The owner leaves capacity idle, or offers other amounts of it: gate open if it is usable, then the record."""
        state = self._pools[pool]
        if state.drain_until_ns is not None:
            state.wanted = offer
            return Plan()
        before = self._reporter.offered(pool)
        if before is None:
            offer = replace(offer, offered_since_ms=now.wall_ms)
        else:
            offer = replace(offer, offered_since_ms=before.offered_since_ms, reclaim_at_ms=before.reclaim_at_ms)
        self._reporter.put(pool, offer)
        state.accelerator = offer.accelerator
        gates: tuple[GateStep, ...] = ()
        if offer.unusable is None and not state.is_open:
            gates = (OpenGate(pool), *_announced(pool, offer, now))
            state.is_open = True
        elif offer.unusable is not None and state.is_open:
            gates = (self._close(pool, FlipReason.RECLAIMED, offer.unusable, now),)
        return Plan(gates, self._say("offer" if before is None else "update", now, reason))

    def reclaim(self, pool: str, now: Now, *, reason: str) -> Plan:
        """The owner wants a pool back now: 1. gate closed, 2. the record."""
        state = self._pools[pool]
        state.wanted = None
        if self._reporter.offered(pool) is None:
            return Plan()
        gates: tuple[GateStep, ...] = ()
        if state.is_open:
            gates = (self._close(pool, FlipReason.RECLAIMED, reason, now),)
        self._reporter.withdraw(pool)
        return Plan(gates, self._say("reclaim", now, reason))

    def notice(self, pool: str, now: Now, *, ahead_ns: int, reason: str) -> Plan:
        """The owner will want a pool back ``ahead_ns`` from now; no effect where nothing is offered."""
        offer = self._reporter.offered(pool)
        if offer is None:
            return Plan()
        self._reporter.put(pool, replace(offer, reclaim_at_ms=now.wall_ms + ahead_ns // 1_000_000))
        return Plan((AnnounceReclaim(pool, now.mono_ns + ahead_ns),), self._say("notice", now, reason))

    def call_off(self, pool: str, now: Now) -> Plan:
        """The reclaim that was announced will not come; no effect where none was."""
        offer = self._reporter.offered(pool)
        if offer is None or offer.reclaim_at_ms is None:
            return Plan()
        self._reporter.put(pool, replace(offer, reclaim_at_ms=None))
        return Plan((AnnounceReclaim(pool, 0),), self._say("update", now, "called_off"))

    def lease_lost(self, pool: str, now: Now) -> Plan:
        """The lease ran out before it was renewed, so rankers have seen the gate closed: a reclaim that nobody wanted.

        It is reported as one, and the capacity is offered anew once the rankers have drained.
        """
        state = self._pools[pool]
        offer = self._reporter.offered(pool)
        self._start_draining(state, LEASE_EXPIRED, now)
        state.wanted = offer
        self._reporter.withdraw(pool)
        return Plan((), self._say("reclaim", now, LEASE_EXPIRED))

    def drained(self, pool: str, report: DrainReport, now: Now, *, is_last_look: bool = False) -> Plan:
        """Take a look at a closed gate's rankers: keep the timing once all have given way, or the time is over."""
        state = self._pools[pool]
        if state.drain_until_ns is None:
            return Plan()
        if report.pending_pids and now.mono_ns < state.drain_until_ns and not is_last_look:
            return Plan()
        state.drain_until_ns = None
        self._reporter.completed(_timing(state.accelerator, state.reason, report, now))
        offer, state.wanted = state.wanted, None
        return Plan() if offer is None else self.offer(pool, offer, now)

    def tick(self, now: Now) -> Plan:
        """Renewals and the heartbeat, where they are due."""
        gates: tuple[GateStep, ...] = ()
        if now.mono_ns >= self._renew_due_ns:
            self._renew_due_ns = now.mono_ns + self._settings.renew_ns
            gates = tuple(RenewGate(name) for name, pool in self._pools.items() if pool.is_open)
        if now.mono_ns < self._heartbeat_due_ns:
            return Plan(gates)
        # A fixed beat: after a pause of the process one heartbeat is due, not one for each that was missed.
        num_missed = (now.mono_ns - self._heartbeat_due_ns) // self._settings.heartbeat_ns
        self._heartbeat_due_ns += (1 + num_missed) * self._settings.heartbeat_ns
        return Plan(gates, self._say("heartbeat", now, ""))

    def stop(self, now: Now, *, reason: str) -> Plan:
        """The agent ends: every gate closed, everything taken back."""
        gates: list[GateStep] = []
        offered = [pool for pool in self._pools if self._reporter.offered(pool) is not None]
        for name, pool in self._pools.items():
            pool.wanted = None
            if pool.is_open:
                gates.append(self._close(name, FlipReason.AGENT_STOPPED, reason, now))
            self._reporter.withdraw(name)
        return Plan(tuple(gates), self._say("reclaim", now, reason) if offered else ())

    def last_word(self, now: Now) -> Plan:
        """After ``stop``: the timings that no record has told yet."""
        return Plan((), self._say("heartbeat", now, "")) if self._reporter.has_news else Plan()

    def _close(self, pool: str, why: FlipReason, reason: str, now: Now) -> CloseGate:
        self._start_draining(self._pools[pool], reason, now)
        return CloseGate(pool, why)

    def _start_draining(self, pool: _Pool, reason: str, now: Now) -> None:
        pool.is_open = False
        pool.reason = reason
        pool.drain_until_ns = now.mono_ns + self._settings.drain_limit_ns

    def _say(self, kind: Kind, now: Now, reason: str) -> tuple[CapacityEvent]:
        return (self._reporter.record(kind, now_ms=now.wall_ms, reason=reason),)


def _announced(pool: str, offer: Offer, now: Now) -> tuple[GateStep, ...]:
    """What a gate that is opened has to be told anew, as its closing cleared it."""
    if offer.reclaim_at_ms is None:
        return ()
    return (AnnounceReclaim(pool, now.mono_ns + max(0, offer.reclaim_at_ms - now.wall_ms) * 1_000_000),)


def _timing(accelerator: str, reason: str, report: DrainReport, now: Now) -> ReclaimTiming:
    """Times are the slowest ranker's, null where one has not answered. The dead are left out: they gave back all."""
    gave_way = not report.pending_pids
    return ReclaimTiming(
        accelerator=accelerator,
        reason=reason,
        flipped_ms=now.wall_ms_at(report.closed_ns),
        reaction_us=max((each.reaction_ns // 1_000 for each in report.drained), default=0) if gave_way else None,
        drained_us=max((each.drained_after_ns // 1_000 for each in report.drained), default=0) if gave_way else None,
        num_rankers=len(report.drained) + len(report.pending_pids),
    )
