"""Which lever each opportunistic replica works for, as the controller splits the pools."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ops.twin.requests.engine import Engine, S
from ops.twin.requests.places import Place
from ops.twin.requests.replica import ReplicaNode
from ops.twin.requests.routes import WorkRoute
from schemas.records import PoolSnapshot
from schemas.records.fields import Lever, Route

ROUTE_OF: Final[dict[Lever, Route]] = {"rma": "wide", "sbm": "powerful"}


@dataclass(slots=True)
class _Role:
    """What a place is for: ``node`` is there once its lever has started up. ``turn`` counts changes, so that a start
    that was overtaken by another change is left out."""

    place: Place
    lever: Lever | None = None
    node: ReplicaNode | None = None
    turn: int = 0


class Roles:
    """Starts and stops replicas. A pool that nobody splits is the wide route's, from the beginning."""

    def __init__(
        self,
        places: list[Place],
        engine: Engine,
        *,
        start: Callable[[Place, Route], ReplicaNode],
        routes: Mapping[Route, WorkRoute],
    ) -> None:
        self._engine = engine
        self._start = start
        self._routes = routes
        self._roles = [_Role(place) for place in places]

    def begin(self) -> None:
        """Where a cell has no levers, extra candidates may have everything at once."""
        for role in self._roles:
            if not role.place.cell.limits.levers:
                role.lever = "rma"
                self._ready((role, role.turn))

    @property
    def nodes(self) -> list[ReplicaNode]:
        """The replicas that run now."""
        return [role.node for role in self._roles if role.node is not None]

    def node(self, name: str) -> ReplicaNode | None:
        """The replica that runs at a place now."""
        return next((role.node for role in self._roles if role.place.name == name), None)

    def split(self, snapshot: PoolSnapshot) -> None:
        """Follow the controller: as many replicas for each lever as its share of the pool is worth."""
        usable_micro = snapshot.units_micro - sum(reason.units_micro for reason in snapshot.unusable)
        if not snapshot.levers or usable_micro <= 0:
            return
        own = [
            role
            for role in self._roles
            if role.place.cell.name == snapshot.cell
            and role.place.host is not None
            and role.place.host.accelerator == snapshot.accelerator
        ]
        wanted = {
            grant.lever: round(min(1.0, grant.units_micro / usable_micro) * len(own))
            for grant in snapshot.levers
            if grant.lever in ROUTE_OF
        }
        for lever, num in wanted.items():
            held = [role for role in own if role.lever == lever]
            for role in held[num:]:
                self._give_up(role)
        for lever, num in wanted.items():
            free = [role for role in own if role.lever is None]
            for role in free[: max(0, num - sum(role.lever == lever for role in own))]:
                self._take_up(role, lever)

    def kill(self, name: str) -> None:
        """The replica of a place is gone without a word; its place waits for `restart`."""
        node = self.node(name)
        assert node is not None, f"nothing runs at {name}"
        self._routes[node.terms.route].kill(node)

    def restart(self, name: str) -> None:
        """Start a killed replica again."""
        role = next(role for role in self._roles if role.place.name == name)
        if role.lever is not None:
            self._ready((role, role.turn))

    def _take_up(self, role: _Role, lever: Lever) -> None:
        role.lever = lever
        role.turn += 1
        startup_s = next(terms.startup_s for terms in role.place.cell.limits.levers if terms.lever == lever)
        self._engine.at(self._engine.now_ns + round(startup_s * S), self._ready, (role, role.turn))

    def _give_up(self, role: _Role) -> None:
        role.lever = None
        role.turn += 1
        if role.node is not None and role.node.died_ns is None:
            self._routes[role.node.terms.route].leave(role.node)
        role.node = None

    def _ready(self, started: tuple[_Role, int]) -> None:
        role, turn = started
        if role.turn == turn and role.lever is not None:
            route = ROUTE_OF[role.lever]
            role.node = self._start(role.place, route)
            self._routes[route].join(role.node)
