"""From what sources saw and what the owner claims to what each host's agent does. Pure; time is passed in."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from ops.agent.holds import Hold, coming, in_force
from ops.agent.host_agent import HostAgent
from ops.agent.host_set import HostSet
from ops.agent.moments import Now
from ops.agent.plans import HostPlan, Plan
from ops.agent.policy import PolicySettings, PoolPolicy, Wish
from ops.agent.readings import Reading
from schemas.records import Offer

CPU: Final = "cpu"
RESERVED: Final = "reserved"
# Between two decisions when nothing is new: a hold begins, a reading grows old.
_DECIDE_EVERY_NS: Final = 1_000_000_000
# Cores and memory beside a pool wander all the time; a change of less is no news before the next heartbeat.
_WORTH_TELLING: Final = 0.1


@dataclass(frozen=True, kw_only=True)
class ClaimSettings:
    """A hold to come is announced at most ``announce_ms`` ahead, and obeyed ``early_ms`` before it begins."""

    announce_ms: int = 3_600_000
    early_ms: int = 5_000


class WatchedHost:
    """One host: a policy for each of its pools, and what its agent was told last."""

    def __init__(
        self, agent: HostAgent, settings_of: Callable[[str, str], PolicySettings], claims: ClaimSettings
    ) -> None:
        """``settings_of`` gives the settings of a pool by its name and the kind of its accelerator."""
        self.agent = agent
        self._settings_of = settings_of
        self._claims = claims
        self._policies: dict[str, PoolPolicy] = {}
        self._said: dict[str, Offer] = {}
        self._host_pressure = 0.0

    def see(self, readings: Iterable[Reading], now: Now) -> None:
        """Take in readings; a pool that was not known is taken on."""
        readings = list(readings)
        # What stands still for want of the host's memory or disk stands still on its accelerators too. Sources are
        # read each at its own time: what the host's said last counts.
        self._host_pressure = max(
            (each.pressure for each in readings if each.accelerator == CPU), default=self._host_pressure
        )
        for reading in readings:
            policy = self._policies.get(reading.pool)
            if policy is None:
                policy = PoolPolicy(self._settings_of(reading.pool, reading.accelerator))
                self._policies[reading.pool] = policy
                self.agent.add_pool(reading.pool)
            policy.see(replace(reading, pressure=max(self._host_pressure, reading.pressure)), now.mono_ns)

    def decide(self, holds: Iterable[Hold], now: Now) -> Plan:
        """What follows for every pool from its policy, the reserve of its kind, and the owner's holds."""
        holds = [*holds, *self._read_holds()]
        wishes = self._wishes(holds, now)
        for pool in self._kept_back(wishes):
            wishes[pool] = Wish(None, RESERVED)
        plan = Plan()
        # What is taken back comes first: a gate must not wait until others are open.
        for pool, wish in sorted(wishes.items(), key=lambda item: (item[1].offer is not None, item[0])):
            plan += self._apply(pool, wish, now)
            plan += self._announce(pool, holds, now)
        return plan

    def _wishes(self, holds: list[Hold], now: Now) -> dict[str, Wish]:
        """By pool. Idle cores are given out once: beside devices in the order of their names, then as cores alone."""
        wishes: dict[str, Wish] = {}
        taken_cores = 0.0
        for pool in sorted(self._policies, key=lambda name: (name == CPU, name)):
            wish = wishes[pool] = self._wish(pool, holds, now, taken_cores=taken_cores)
            if wish.offer is not None and wish.offer.unusable is None and pool != CPU:
                taken_cores += wish.offer.cpu_cores
        return wishes

    def _wish(self, pool: str, holds: list[Hold], now: Now, *, taken_cores: float) -> Wish:
        hold = in_force(holds, pool, now.wall_ms, early_ms=self._claims.early_ms)
        # Asked in any case: what is not looked at cannot grow old.
        after = coming(holds, pool, now.wall_ms, within_ms=self._claims.announce_ms)
        lasts_s = math.inf if after is None else (after.starts_ms - now.wall_ms) / 1e3
        idle_cores = self._idle_cores()
        wish = self._policies[pool].wish(
            now.mono_ns,
            host_cores=None if idle_cores is None else max(0.0, idle_cores - taken_cores),
            taken_units=taken_cores if pool == CPU else 0.0,
            lasts_s=lasts_s,
        )
        return wish if hold is None else Wish(None, hold.reason)

    def _read_holds(self) -> list[Hold]:
        """Announcements that came with the readings."""
        return [
            Hold(key=f"reading:{pool}", reason="announced", starts_ms=policy.reading.reclaim_at_ms, pools=(pool,))
            for pool, policy in sorted(self._policies.items())
            if policy.reading is not None and policy.reading.reclaim_at_ms is not None
        ]

    def _idle_cores(self) -> float | None:
        """Whole cores that the owner leaves idle on the host; None where no source says."""
        for policy in self._policies.values():
            if policy.reading is not None and policy.reading.accelerator == CPU:
                return math.floor(max(0.0, policy.reading.units - policy.reading.owner_units))
        return None

    def _kept_back(self, wishes: Mapping[str, Wish]) -> list[str]:
        """Pools of whole devices that stay idle for the owner: of each kind first those that are not offered yet."""
        kept: list[str] = []
        missing: dict[str, float] = {}
        offers = {pool: wish.offer for pool, wish in wishes.items() if wish.offer is not None}
        for pool in sorted(offers, key=lambda name: (name in self._said, name)):
            reading, reserve = self._policies[pool].reading, self._policies[pool].settings.reserve_units
            assert reading is not None
            left = missing.setdefault(reading.accelerator, reserve)
            if not reading.divisible and left > 0.0:
                missing[reading.accelerator] = left - reading.units
                kept.append(pool)
        return kept

    def _apply(self, pool: str, wish: Wish, now: Now) -> Plan:
        said = self._said.get(pool)
        if wish.offer is None:
            if said is None:
                return Plan()
            del self._said[pool]
            return self.agent.reclaim(pool, now, reason=wish.reason)
        if said is not None and not _is_news(said, wish.offer):
            return Plan()
        self._said[pool] = wish.offer
        return self.agent.offer(pool, wish.offer, now)

    def _announce(self, pool: str, holds: list[Hold], now: Now) -> Plan:
        offered = self.agent.offered(pool)
        if offered is None:
            return Plan()
        hold = coming(holds, pool, now.wall_ms, within_ms=self._claims.announce_ms)
        if hold is None:
            return self.agent.call_off(pool, now)
        if offered.reclaim_at_ms == hold.starts_ms:
            return Plan()
        return self.agent.notice(pool, now, ahead_ns=(hold.starts_ms - now.wall_ms) * 1_000_000, reason=hold.reason)


class WatchedHosts(HostSet):
    """All hosts that one process watches. They share readings and holds: copies of one host, for load tests."""

    def __init__(self, hosts: Mapping[str, WatchedHost]) -> None:
        self._hosts = hosts
        super().__init__({name: host.agent for name, host in hosts.items()})
        self._holds: tuple[Hold, ...] = ()
        self._decide_due_ns = 0

    @property
    def next_due_ns(self) -> int | None:
        due_ns = super().next_due_ns
        return None if due_ns is None else min(due_ns, self._decide_due_ns)

    def see(self, readings: Iterable[Reading], now: Now) -> None:
        """Take in readings; they count at the next ``advance``."""
        readings = list(readings)
        for host in self._hosts.values():
            host.see(readings, now)
        self._decide_due_ns = now.mono_ns

    def claim(self, holds: Iterable[Hold], now: Now) -> None:
        """Let these holds stand instead of those before; they count at the next ``advance``."""
        holds = tuple(holds)
        if holds != self._holds:
            self._holds = holds
            self._decide_due_ns = now.mono_ns

    def start(self, now: Now) -> list[HostPlan]:
        return self.advance(now)

    def advance(self, now: Now) -> list[HostPlan]:
        plans: list[HostPlan] = []
        if now.mono_ns >= self._decide_due_ns:
            self._decide_due_ns = now.mono_ns + _DECIDE_EVERY_NS
            plans += [(name, host.decide(self._holds, now)) for name, host in self._hosts.items()]
        return self.noted([*plans, *self.tick(now)])


def _is_news(said: Offer, offer: Offer) -> bool:
    """Whether an offer differs from the one told last by more than a little of what stands beside it."""
    if replace(said, cpu_cores=0.0, memory_bytes=0) != replace(offer, cpu_cores=0.0, memory_bytes=0):
        return True
    return _moved(said.cpu_cores, offer.cpu_cores) or _moved(said.memory_bytes, offer.memory_bytes)


def _moved(before: float, after: float) -> bool:
    return abs(after - before) > _WORTH_TELLING * max(before, after)
