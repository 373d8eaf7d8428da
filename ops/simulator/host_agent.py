"""The agent of one host: from what the owner wants to flips of gates and records for Kafka. Pure; time is passed in."""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from ops.simulator.host_reporter import HostReporter, Kind
from schemas.gate import FlipReason
from schemas.gate_writer import DrainReport
from schemas.records import CapacityEvent, Offer, ReclaimTiming

LEASE_EXPIRED = "lease_expired"


@dataclass(frozen=True)
class Now:
    """One instant by both clocks of the host: records carry the wall clock's, intervals go by the monotonic one."""

    wall_ms: int
    mono_ns: int

    def wall_ms_at(self, mono_ns: int) -> int:
        """The wall clock's time of a recent moment of the monotonic clock."""
        return self.wall_ms - round((self.mono_ns - mono_ns) / 1e6)


@dataclass(frozen=True)
class OpenGate:
    """Let optional work run in a pool."""

    accelerator: str


@dataclass(frozen=True)
class RenewGate:
    """Prolong the lease of an open pool; when that is refused, the agent hears of it by ``lease_lost``."""

    accelerator: str


@dataclass(frozen=True)
class CloseGate:
    """Stop optional work in a pool now."""

    accelerator: str
    reason: FlipReason


@dataclass(frozen=True)
class AnnounceReclaim:
    """Tell the pool's rankers when a reclaim will come, on the monotonic clock; 0 takes it back."""

    accelerator: str
    at_ns: int


GateStep = OpenGate | RenewGate | CloseGate | AnnounceReclaim


@dataclass(frozen=True)
class Plan:
    """What is to be done for one host: every gate step first, then the records. Losing this order would let a slow
    broker delay a reclaim."""

    gates: tuple[GateStep, ...] = ()
    records: tuple[CapacityEvent, ...] = ()


@dataclass
class _Pool:
    """A gate as the agent has set it.

    ``is_open``: flipped open. ``drain_until_ns``: closed and waiting for its rankers until then, None when not.
    ``wanted``: to be offered again once drained.
    """

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
    """State machine of one host with one gate per accelerator kind.

    A gate is open while usable capacity is offered; capacity that nobody can use is reported, its gate stays closed.
    A pool wanted back before its rankers have drained is offered as soon as they have.
    """

    def __init__(self, reporter: HostReporter, pools: Sequence[str], settings: HostAgentSettings, *, now: Now) -> None:
        self._reporter = reporter
        self._pools = {accelerator: _Pool() for accelerator in pools}
        self._settings = settings
        self._heartbeat_due_ns = now.mono_ns + settings.phase_ns
        self._renew_due_ns = now.mono_ns + settings.renew_ns

    @property
    def due_ns(self) -> int:
        """When ``tick`` has something to do next."""
        return min(self._heartbeat_due_ns, self._renew_due_ns)

    @property
    def draining(self) -> list[str]:
        """Accelerator kinds whose gate is closed and whose rankers have not all given way yet."""
        return [accelerator for accelerator, pool in self._pools.items() if pool.drain_until_ns is not None]

    def offer(self, offer: Offer, now: Now, *, reason: str = "") -> Plan:
        """The owner leaves capacity idle, or offers other amounts of it: gate open if it is usable, then the record."""
        pool = self._pools[offer.accelerator]
        if pool.drain_until_ns is not None:
            pool.wanted = offer
            return Plan()
        before = self._reporter.offered(offer.accelerator)
        if before is None:
            offer = replace(offer, offered_since_ms=now.wall_ms)
        else:
            offer = replace(offer, offered_since_ms=before.offered_since_ms, reclaim_at_ms=before.reclaim_at_ms)
        self._reporter.put(offer)
        gates: tuple[GateStep, ...] = ()
        if offer.unusable is None and not pool.is_open:
            gates = (OpenGate(offer.accelerator),)
            pool.is_open = True
        elif offer.unusable is not None and pool.is_open:
            gates = (self._close(offer.accelerator, pool, FlipReason.RECLAIMED, offer.unusable, now),)
        return Plan(gates, self._say("offer" if before is None else "update", now, reason))

    def reclaim(self, accelerator: str, now: Now, *, reason: str) -> Plan:
        """The owner wants an accelerator kind back now: 1. gate closed, 2. the record."""
        pool = self._pools[accelerator]
        pool.wanted = None
        if self._reporter.offered(accelerator) is None:
            return Plan()
        gates: tuple[GateStep, ...] = ()
        if pool.is_open:
            gates = (self._close(accelerator, pool, FlipReason.RECLAIMED, reason, now),)
        self._reporter.withdraw(accelerator)
        return Plan(gates, self._say("reclaim", now, reason))

    def notice(self, accelerator: str, now: Now, *, ahead_ns: int, reason: str) -> Plan:
        """The owner will want an accelerator kind back ``ahead_ns`` from now; no effect where nothing is offered."""
        offer = self._reporter.offered(accelerator)
        if offer is None:
            return Plan()
        self._reporter.put(replace(offer, reclaim_at_ms=now.wall_ms + ahead_ns // 1_000_000))
        return Plan((AnnounceReclaim(accelerator, now.mono_ns + ahead_ns),), self._say("notice", now, reason))

    def lease_lost(self, accelerator: str, now: Now) -> Plan:
        """The lease ran out before it was renewed, so rankers have seen the gate closed: a reclaim that nobody wanted.

        It is reported as one, and the capacity is offered anew once the rankers have drained.
        """
        pool = self._pools[accelerator]
        offer = self._reporter.offered(accelerator)
        self._start_draining(pool, LEASE_EXPIRED, now)
        pool.wanted = offer
        self._reporter.withdraw(accelerator)
        return Plan((), self._say("reclaim", now, LEASE_EXPIRED))

    def drained(self, accelerator: str, report: DrainReport, now: Now, *, is_last_look: bool = False) -> Plan:
        """Take a look at a closed gate's rankers: keep the timing once all have given way, or the time is over."""
        pool = self._pools[accelerator]
        if pool.drain_until_ns is None:
            return Plan()
        if report.pending_pids and now.mono_ns < pool.drain_until_ns and not is_last_look:
            return Plan()
        pool.drain_until_ns = None
        self._reporter.completed(_timing(accelerator, pool.reason, report, now))
        offer, pool.wanted = pool.wanted, None
        return Plan() if offer is None else self.offer(offer, now)

    def tick(self, now: Now) -> Plan:
        """Renewals and the heartbeat, where they are due."""
        gates: tuple[GateStep, ...] = ()
        if now.mono_ns >= self._renew_due_ns:
            self._renew_due_ns = now.mono_ns + self._settings.renew_ns
            gates = tuple(RenewGate(accelerator) for accelerator, pool in self._pools.items() if pool.is_open)
        if now.mono_ns < self._heartbeat_due_ns:
            return Plan(gates)
        # A fixed beat: after a pause of the process one heartbeat is due, not one for each that was missed.
        num_missed = (now.mono_ns - self._heartbeat_due_ns) // self._settings.heartbeat_ns
        self._heartbeat_due_ns += (1 + num_missed) * self._settings.heartbeat_ns
        return Plan(gates, self._say("heartbeat", now, ""))

    def stop(self, now: Now, *, reason: str) -> Plan:
        """The agent ends: every gate closed, everything taken back."""
        gates: list[GateStep] = []
        offered = [accelerator for accelerator in self._pools if self._reporter.offered(accelerator) is not None]
        for accelerator, pool in self._pools.items():
            pool.wanted = None
            if pool.is_open:
                gates.append(self._close(accelerator, pool, FlipReason.AGENT_STOPPED, reason, now))
            self._reporter.withdraw(accelerator)
        return Plan(tuple(gates), self._say("reclaim", now, reason) if offered else ())

    def last_word(self, now: Now) -> Plan:
        """After ``stop``: the timings that no record has told yet."""
        return Plan((), self._say("heartbeat", now, "")) if self._reporter.has_news else Plan()

    def _close(self, accelerator: str, pool: _Pool, why: FlipReason, reason: str, now: Now) -> CloseGate:
        self._start_draining(pool, reason, now)
        return CloseGate(accelerator, why)

    def _start_draining(self, pool: _Pool, reason: str, now: Now) -> None:
        pool.is_open = False
        pool.reason = reason
        pool.drain_until_ns = now.mono_ns + self._settings.drain_limit_ns

    def _say(self, kind: Kind, now: Now, reason: str) -> tuple[CapacityEvent]:
        return (self._reporter.record(kind, now_ms=now.wall_ms, reason=reason),)


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
