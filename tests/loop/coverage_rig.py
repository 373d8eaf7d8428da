"""Closes the coverage loop: requests of segments, routers that apply the shares, a pool that serves what is sent."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np

from schemas.records import CellLimits, SegmentTraffic, WindowRef
from streams.control.coverage.decide_coverage import CoverageDecision, decide_coverage
from streams.control.coverage.inputs import CoverageInputs
from streams.control.coverage.loop import CoverageLoop
from streams.control.evidence import Evidence, gathered, num_samples, p99_ms, shed_share
from streams.control.gains import DEFAULT_GAINS, Gains
from streams.control.hold import Hold
from tests.unit.streams.control_makers import histogram

WINDOW_S = 10.0
UNITS_PER_UPGRADE = 1_000.0
UNITS_PER_UNIT_S = 50_000.0
SPAN = 0.5
LIMITS = CellLimits(
    base_candidates=100, max_candidates=600, latency_limit_ms=150.0, max_coverage=SPAN, exploration_share=0.05
)
# Where no request would ever be answered, time-outs bound what is measured.
MAX_LOAD = 0.99


@dataclass(kw_only=True)
class SegmentPlant:
    """A cell of ``num_requests`` a tick, drawn from ``mix`` by ``dice``, or exactly as expected without.

    ``deaf`` is the share of requests at routers without a valid target, ``early`` that which comes before the newest
    target is there. The pool can do ``capacity`` upgrades a tick: p99 = ``idle_p99_ms`` / (1 - load), that of an M/M/1
    queue, and beyond a load of ``sheds_at`` it sheds. What is asked for acts ``dead_ticks`` later.
    """

    num_requests: int
    mix: Mapping[str, float]
    allowed: Mapping[str, float] = field(default_factory=dict)
    deaf: float = 0.0
    early: float = 0.2
    capacity: float = 1e9
    idle_p99_ms: float = 30.0
    sheds_at: float | None = None
    dead_ticks: int = 0
    dice: np.random.Generator | None = None
    _loads: deque[float] = field(default_factory=deque)

    def expected(self, decision: CoverageDecision) -> float:
        """Mean probability over all requests under the true mix, by routers that all know the decision."""
        shares = {listed.segment: listed.share for listed in decision.segment_shares}
        return sum(
            weight * self.allowed.get(segment, 0.9) * shares.get(segment, decision.other_share)
            for segment, weight in self.mix.items()
        )

    def requests(self, newest: CoverageDecision, before: CoverageDecision) -> list[SegmentTraffic]:
        """Requests of one window, and what routers assigned to them."""
        targets = ((1.0 - self.deaf) * (1.0 - self.early), newest), ((1.0 - self.deaf) * self.early, before)
        window = []
        for segment, weight in sorted(self.mix.items()):
            num, allowed = weight * self.num_requests, self.allowed.get(segment, 0.9)
            shares = [
                (part, {listed.segment: listed.share for listed in made.segment_shares}.get(segment, made.other_share))
                for part, made in targets
            ]
            made = self._exact if self.dice is None else self._drawn
            window.append(made(segment, num, allowed, shares))
        return window

    def served(self, num_routed: int) -> tuple[float, int]:
        """p99 of the powerful route and how many upgrades it dropped in a window in which so many were sent."""
        self._loads.append(num_routed / self.capacity)
        load = self._loads.popleft() if len(self._loads) > self.dead_ticks else 0.0
        dropped = 0
        if self.sheds_at is not None and load > self.sheds_at:
            dropped = round(num_routed * (1.0 - self.sheds_at / load))
            load = self.sheds_at
        return self.idle_p99_ms / (1.0 - min(load, MAX_LOAD)), dropped

    def _exact(self, segment: str, num: float, allowed: float, shares: list[tuple[float, float]]) -> SegmentTraffic:
        probability = sum(part * share for part, share in shares)
        return SegmentTraffic(
            segment=segment,
            num_requests=round(num),
            num_allowed=round(num * allowed),
            probability_micro=round(round(num * allowed) * probability * 1e6),
            num_routed=round(num * allowed * probability),
        )

    def _drawn(self, segment: str, mean: float, allowed: float, shares: list[tuple[float, float]]) -> SegmentTraffic:
        assert self.dice is not None
        num = int(self.dice.poisson(mean))
        num_allowed = int(self.dice.binomial(num, allowed))
        met = self.dice.multinomial(num_allowed, [*(part for part, _ in shares), self.deaf])
        return SegmentTraffic(
            segment=segment,
            num_requests=num,
            num_allowed=num_allowed,
            probability_micro=sum(
                int(each) * round(share * 1e6) for each, (_, share) in zip(met, shares, strict=False)
            ),
            num_routed=sum(int(self.dice.binomial(each, share)) for each, (_, share) in zip(met, shares, strict=False)),
        )


@dataclass(kw_only=True)
class CoverageRig:
    """One cell's coverage loop in closed loop. Its state goes through its bytes at every tick."""

    plant: SegmentPlant
    limits: CellLimits = LIMITS
    gains: Gains = DEFAULT_GAINS
    # So many upgrades a second are paid for.
    paid_per_s: float = 1e6
    estimates: Mapping[str, float] = field(default_factory=dict)
    hold: Hold | None = None
    num_routers: int = 1
    loop: CoverageLoop = field(default_factory=CoverageLoop)
    decisions: list[CoverageDecision] = field(default_factory=list)
    windows: list[list[SegmentTraffic]] = field(default_factory=list)

    @property
    def coverage(self) -> float:
        return self.decisions[-1].coverage if self.decisions else 0.0

    def tick(self) -> CoverageDecision:
        """One window from the plant; the decision that follows."""
        nothing = CoverageDecision(
            coverage=0.0, segment_shares=(), other_share=0.0, budget_units_s=0.0, reason="", detail="",
            loop=CoverageLoop(),
        )  # fmt: skip
        before, newest = ([nothing, nothing, *self.decisions])[-2:]
        window = self.plant.requests(newest, before)
        num_routed = sum(traffic.num_routed for traffic in window)
        p99, dropped = self.plant.served(num_routed)
        seen = gathered(
            self.loop.evidence,
            Evidence(
                windows=(WindowRef(kind="latency", source_partition=0, window_index=len(self.decisions)),),
                latency=histogram([p99] * num_routed),
                offered=num_routed,
                dropped=dropped,
            ),
        )
        num_requests = sum(traffic.num_requests for traffic in window)
        inputs = CoverageInputs(
            limits=self.limits,
            usable_units=self.paid_per_s * UNITS_PER_UPGRADE / UNITS_PER_UNIT_S / self.limits.utilisation,
            units_per_unit_s=UNITS_PER_UNIT_S,
            units_per_upgrade=UNITS_PER_UPGRADE,
            planned_rate_per_s=self.plant.num_requests / WINDOW_S,
            num_routers=self.num_routers,
            num_requests=num_requests,
            segments=tuple(window),
            powerful_p99_ms=p99_ms(seen),
            num_samples=num_samples(seen),
            shed_share=shed_share(seen),
            num_windows=len(seen.windows),
            estimates=self.estimates,
            hold=self.hold,
        )
        decision = decide_coverage(inputs, loop=msgspec.structs.replace(self.loop, evidence=seen), gains=self.gains)
        self.loop = msgspec.msgpack.decode(msgspec.msgpack.encode(decision.loop), type=CoverageLoop)
        self.decisions.append(decision)
        self.windows.append(window)
        return decision

    def run(self, num_ticks: int) -> list[float]:
        """Coverage after each of so many ticks."""
        return [self.tick().coverage for _ in range(num_ticks)]
