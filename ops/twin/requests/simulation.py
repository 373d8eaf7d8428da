"""A scenario simulated request by request: everything wired up, and played from the first arrival to the last account.

1. cells are declared, hosts open their gates, replicas join; 2. requests arrive, from the warm-up on; 3. after the last
of them all accounts are closed.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from msgspec import Struct

from ops.simulator.scenario_model import Scenario
from ops.twin.controllers import Production
from ops.twin.metrics import Run, totals_of
from ops.twin.requests.callers import Callers, people_of
from ops.twin.requests.control import ControlEnds, ControlPlane
from ops.twin.requests.curve import MEASURED, ServiceCurve
from ops.twin.requests.engine import MS, Engine, S
from ops.twin.requests.fleet import Fleet
from ops.twin.requests.gates import RankerGate
from ops.twin.requests.hops import Hops, Log
from ops.twin.requests.places import Place, curve_of, dedicated_places, opportunistic_places, speed_of
from ops.twin.requests.replica import ReplicaEndpoints, ReplicaNode, ReplicaTerms
from ops.twin.requests.roles import ROUTE_OF, Roles
from ops.twin.requests.router import RouterEndpoints, RouterNode
from ops.twin.requests.routes import WorkRoute
from ops.twin.requests.tally import Tally
from ops.twin.requests.terms import with_terms
from ops.twin.service import ServiceTimes
from ranking.consumer.executor import OptionalCall
from ranking.router.arms import ArmSettings
from ranking.router.core import RouterCore
from ranking.router.events import Intake
from ranking.router.experiment import Experiment
from ranking.router.policy import RouterPolicy
from schemas.partition import partition_for
from schemas.records import CandidateTarget, PoolSnapshot, RankingAnswer, RankingRequest
from schemas.records.fields import FLOAT32_BYTES, Route
from schemas.topics import REQUEST_PARTITIONS, WORK_PARTITIONS

# A whole hour long ago, at which windows of every length in use begin: runs of one seed are the same whenever they are
# made.
START_MS: Final = 1_700_000_000_000 // 3_600_000 * 3_600_000
ROUTES: Final[tuple[Route, ...]] = ("baseline", "wide", "powerful")
# As by tick, where there are neither arms nor doses: all that a target asks for is assigned to everybody.
_EVERYBODY: Final = Experiment(arms=ArmSettings(holdout_share=0.0, rma_share=1.0, sbm_share=1.0), explored_share=0.0)
_CONTROLLER: Final = Production.name
_HOP_STREAM: Final = 14
_GIVE_UP_MS: Final = RouterPolicy().degrade_after_ms + RouterPolicy().account_limit_ms


@dataclass(frozen=True, kw_only=True)
class Kill:
    """At ``at_s`` after the warm-up a replica is ended without a word, and started again a while later, or never."""

    at_s: float
    replica: str
    restart_after_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a simulation is made of beside its scenario. ``on_call`` is told of each optional call of a replica."""

    seed: int
    kills: tuple[Kill, ...] = ()
    curve: ServiceCurve = MEASURED
    times: ServiceTimes = field(default_factory=ServiceTimes)
    on_call: Callable[[str, OptionalCall], None] = lambda _name, _call: None


class Simulation:
    """One run. ``on_progress`` is told, now and then, which share of the simulated time has passed."""

    def __init__(
        self, scenario: Scenario, setup: Setup, *, on_progress: Callable[[float], None] = lambda _: None
    ) -> None:
        if scenario.twin.copies > 1:
            raise ValueError(f"{scenario.name}: copies of cells are played by tick, not by request")
        scenario = self.scenario = with_terms(scenario)
        self._setup = setup
        self._on_progress = on_progress
        self.engine = Engine(START_MS * MS)
        self._zero_ns = self.engine.now_ns + round(scenario.warm_up_s * S)
        self._end_ns = self.engine.now_ns + round(scenario.traffic_s * S)
        people = people_of(scenario, seed=setup.seed)
        self._num_features = len(people.all[0].features) // FLOAT32_BYTES
        self.tally = Tally(scenario, people, zero_ms=self._zero_ns // MS)
        self._num_hops = 0
        self.control = ControlPlane(
            scenario=scenario,
            engine=self.engine,
            hops=self._new_hops(),
            ends=ControlEnds(self.tally.note_window, self._controlled),
        )
        self._nodes_of_host: dict[str, list[ReplicaNode]] = defaultdict(list)
        self._fleet = Fleet(
            scenario,
            self.engine,
            zero_ns=self._zero_ns,
            send=self.control.tell_capacity,
            on_closed=self._gate_closed,
        )
        self._dedicated_places = dedicated_places(scenario)
        places = opportunistic_places(scenario)
        # Apart, so that what is optional changes nothing of the time that base work takes.
        self._hops_of: dict[Route, Hops] = {route: self._new_hops() for route in ROUTES}
        self.routes: dict[Route, WorkRoute] = {
            route: WorkRoute(
                self.engine,
                self._hops_of[route],
                num_partitions=max(WORK_PARTITIONS, len(self._dedicated_places if route == "baseline" else places)),
                is_optional=route != "baseline",
            )
            for route in ROUTES
        }
        self.roles = Roles(places, self.engine, start=self._started, routes=self.routes)
        self.dedicated: dict[str, ReplicaNode] = {}
        request_hops = self._new_hops()
        self._logs = [Log(request_hops) for _ in range(REQUEST_PARTITIONS)]
        self._num_asked = [0] * REQUEST_PARTITIONS
        self.num_requests = 0
        self.routers = [self._router(number) for number in range(scenario.processes.routers)]
        self._requests = Callers(scenario, people, seed=setup.seed, start_ms=START_MS, width=self._width).requests()

    def run(self) -> Run:
        """Play it to its end."""
        self.control.start()  # 1
        self._fleet.start()
        for place in self._dedicated_places:
            node = self.dedicated[place.name] = self._started(place, "baseline")
            self.routes["baseline"].join(node)
        self.roles.begin()
        for kill in self._setup.kills:
            self.engine.at(self._zero_ns + round(kill.at_s * S), self._kill, kill)
        self._ask_next()  # 2
        begin_ns = self.engine.now_ns
        step_ns = max(S, (self._end_ns - begin_ns) // 100)
        while self.engine.now_ns < self._end_ns:
            self.engine.run(min(self._end_ns, self.engine.now_ns + step_ns))
            self._on_progress((self.engine.now_ns - begin_ns) / (self._end_ns - begin_ns))
        settle_ms = self.scenario.requests.deadline_ms + _GIVE_UP_MS + 3 * self.scenario.time.window_ms
        self.engine.run(self._end_ns + round(settle_ms) * MS)  # 3
        cells = self.tally.runs(until_ms=self._end_ns // MS)
        return Run(
            scenario=self.scenario.name,
            detail="request",
            seed=self._setup.seed,
            controller=_CONTROLLER,
            window_ms=self.scenario.time.window_ms,
            duration_s=self.scenario.duration_s,
            totals=totals_of(cells),
            cells=cells,
        )

    def _new_hops(self) -> Hops:
        self._num_hops += 1
        return Hops(self._setup.times, np.random.default_rng([self._setup.seed, _HOP_STREAM, self._num_hops]))

    # Requests

    def _ask_next(self) -> None:
        following = next(self._requests, None)
        if following is not None:
            at_s, request = following
            self.engine.at(START_MS * MS + round(at_s * S), self._ask, request)

    def _ask(self, request: RankingRequest) -> None:
        key = request.user_id.encode()
        partition = partition_for(key, REQUEST_PARTITIONS)
        appended_ns, read_ns = self._logs[partition].append(self.engine.now_ns)
        intake = Intake(
            partition=partition,
            offset=self._num_asked[partition],
            key=key,
            append_ms=appended_ns // MS,
            record=request,
        )
        self._num_asked[partition] += 1
        self.num_requests += 1
        self.engine.at(read_ns, self._router_of(partition).request, intake)
        self._ask_next()

    def _router_of(self, partition: int) -> RouterNode:
        return self.routers[partition % len(self.routers)]

    def _router(self, number: int) -> RouterNode:
        policy = RouterPolicy(
            skew_ms=self.scenario.time.skew_ms, interval_ms=self.scenario.time.interval_ms, experiment=_EVERYBODY
        )
        name = f"router-{number + 1}"
        core = RouterCore(
            policy,
            router=name,
            num_partitions={route: self.routes[route].num_partitions for route in ROUTES},
            num_request_partitions=REQUEST_PARTITIONS,
            seed=self._setup.seed + number,
        )
        return RouterNode(
            core,
            self.engine,
            self._new_hops(),
            RouterEndpoints(
                routes=self.routes,
                publish=self.tally.note_result,
                report=self.control.tell_latency,
                upgraded=self.tally.upgraded,
            ),
            partitions=range(number, REQUEST_PARTITIONS, self.scenario.processes.routers),
        )

    def _answered(self, partition: int, answer: RankingAnswer) -> None:
        self._router_of(partition).answer(answer)

    def _width(self, cell: str) -> float:
        """How far from base to the most candidates the target of a cell is, in [0, 1]."""
        target = self.routers[0].core.targets.valid(cell, self.engine.now_ms)
        if target is None or target.max_candidates == target.base_candidates:
            return 0.0
        return (target.candidate_target - target.base_candidates) / (target.max_candidates - target.base_candidates)

    def _controlled(self, record: Struct) -> None:
        self.tally.note_record(record)
        if isinstance(record, CandidateTarget):
            for router in self.routers:
                router.core.targets.update(record)
        elif isinstance(record, PoolSnapshot):
            self.roles.split(record)

    # Replicas

    def _started(self, place: Place, route: Route) -> ReplicaNode:
        host = place.host
        lever = next((lever for lever, of_lever in ROUTE_OF.items() if of_lever == route), None)
        limits = place.cell.limits
        per_candidate = limits.units_per_upgrade / limits.base_candidates if route == "powerful" else 1.0
        node = ReplicaNode(
            ReplicaTerms(
                name=place.name,
                cell=place.cell.name,
                route=route,
                curve=curve_of(place, lever, self._setup.curve).times(per_candidate or 1.0),
                num_features=self._num_features,
                interval_ns=self.scenario.time.interval_ms * MS,
                speed=speed_of(place, self.scenario, zero_ns=self._zero_ns),
                units_per_candidate=per_candidate or 1.0,
            ),
            self.engine,
            ReplicaEndpoints(
                answer=self._answered,
                hop_ns=self._hops_of[route].next_ns,
                report=self.control.tell_latency,
                on_call=self._setup.on_call,
            ),
            gate=None if host is None else RankerGate(self._fleet.gate(host), now_ns=self.engine.now_ns),
        )
        if host is not None:
            self._nodes_of_host[host.name].append(node)
        return node

    def _kill(self, kill: Kill) -> None:
        if kill.replica in self.dedicated:
            self.routes["baseline"].kill(self.dedicated[kill.replica])
        else:
            self.roles.kill(kill.replica)
        if kill.restart_after_s is not None:
            self.engine.at(self.engine.now_ns + round(kill.restart_after_s * S), self._restart, kill.replica)

    def _restart(self, name: str) -> None:
        dead = self.dedicated.get(name)
        if dead is None:
            self.roles.restart(name)
            return
        place = next(place for place in self._dedicated_places if place.name == name)
        node = self.dedicated[name] = self._started(place, "baseline")
        self.routes["baseline"].replace(dead, node)

    def _gate_closed(self, host: str, now_ns: int) -> None:
        for node in self._nodes_of_host[host]:
            node.look_soon(now_ns)
