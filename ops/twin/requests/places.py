"""Where replicas run, and how fast: dedicated ones by the load, opportunistic ones by the units of the hosts.

Speeds are those that the tick level calculates with: a unit does what its lever's terms, else the cell's limits, say.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from ops.simulator.scenario_model import Cell, Host, Scenario
from ops.simulator.timeline import HostEvent, host_timeline
from ops.twin.requests.curve import ServiceCurve
from ops.twin.requests.engine import S
from ranking.consumer.planner import PlanSettings
from schemas.records.fields import Lever

_CALL_SIZE = PlanSettings().call_size


@dataclass(frozen=True, kw_only=True)
class Place:
    """Room for one replica: on units of a host, or on dedicated hardware where ``host`` is None."""

    name: str
    cell: Cell
    host: Host | None = None
    units: float = 1.0


def dedicated_places(scenario: Scenario) -> list[Place]:
    """Those of the scenario, in turn for its cells, and more where its rate needs them for the load of the base."""
    shares = sum(cell.traffic_share for cell in scenario.cells)
    needed = sum(
        scenario.arrivals.rate_per_s
        * (cell.traffic_share / shares)
        * cell.limits.base_candidates
        / cell.limits.units_per_unit_s
        for cell in scenario.cells
    )
    num = max(scenario.processes.dedicated_rankers, math.ceil(needed / (scenario.twin.base_load or 1.0)))
    return [
        Place(name=f"dedicated-{number + 1}", cell=scenario.cells[number % len(scenario.cells)])
        for number in range(num)
    ]


def opportunistic_places(scenario: Scenario) -> list[Place]:
    """A replica for each unit of every host that is of use; one for a host of less than a unit."""
    cells = {cell.name: cell for cell in scenario.cells}
    places: list[Place] = []
    for host in scenario.hosts:
        if host.unusable is None:
            num = max(1, round(host.units))
            places += [
                Place(
                    name=f"opportunistic-{len(places) + number}",
                    cell=cells[host.cell],
                    host=host,
                    units=host.units / num,
                )
                for number in range(1, num + 1)
            ]
    return places


def curve_of(place: Place, lever: Lever | None, measured: ServiceCurve) -> ServiceCurve:
    """Service times of a replica for a lever, None for base work."""
    limits = place.cell.limits
    units_per_s = limits.units_per_unit_s
    for terms in limits.levers:
        if place.host is not None and terms.lever == lever:
            fits = {fit.accelerator: fit.units_per_unit_s for fit in terms.fits}
            units_per_s = fits[place.host.accelerator]
    return measured.at_rate(units_per_s * place.units, call_size=_CALL_SIZE)


def speed_of(place: Place, scenario: Scenario, *, zero_ns: int) -> Callable[[int], float]:
    """Factor of a replica's speed by the time in ns: surges, and updates of what its host offers."""
    host = place.host
    if host is None:
        return lambda _: 1.0
    steps = [(zero_ns + round(event.at_s * S), event.units / host.units) for event in _updates(scenario, host)]
    surges = [
        (zero_ns + round(surge.at_s * S), zero_ns + round((surge.at_s + surge.duration_s) * S), surge.speed_factor)
        for surge in scenario.twin.surges
        if surge.speed_factor != 1.0
    ]
    if not steps and not surges:
        return lambda _: 1.0

    def speed(now_ns: int) -> float:
        factor = next((factor for at_ns, factor in reversed(steps) if at_ns <= now_ns), 1.0)
        for start_ns, end_ns, surge_factor in surges:
            if start_ns <= now_ns < end_ns:
                factor *= surge_factor
        # Offered nothing, it is not closed for that: it crawls.
        return max(factor, 1e-3)

    return speed


def _updates(scenario: Scenario, host: Host) -> list[HostEvent]:
    return [event for event in host_timeline(scenario) if event.host == host.name and event.action == "update"]
