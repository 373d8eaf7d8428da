"""The linear program of one market, in numbers near 1, and what its solution means.

With x_pl the units that lever l gets of pool p, and y_lk the work that its curve's piece k gets:

    maximise    sum of slope_lk y_lk
    subject to  sum over l of x_pl        <= U_p                     accelerator units of pool p
                sum over l of c_pl x_pl   <= C_p                     its cores
                sum over l of m_pl x_pl   <= M_p                     its memory
                sum over k of y_lk        <= sum over p of g_pl x_pl   work of lever l
                sum over p of x_pl        <= cap_l                   no lever takes everything
                sum over p of x_pl        >= floor_l                 exploration
                0 <= y_lk <= width_lk,  x_pl >= 0

(Dantzig, Linear Programming and Extensions, 1963, for concave curves as bounded pieces and for prices as duals.)
Pieces need no order of their own: the steepest earns most, so it is filled first. Every column and row is divided by
its own size, and the objective by what all levers together could earn, so that a tolerance means the same for every
cell. What cannot bind is left out: the cores of a pool that has enough for every unit, say.

Ties. Of splits that are worth the same, HiGHS would take any. Each share of a place costs ``PREFERENCE``, so that units
that earn nothing are not given out, and a little more or less by the order of pools and levers, so that the first
levers get the first pools. (Costs with a strict Monge property: of two levers and two pools only one exchange is best.
Hoffman, On simple linear programming problems, 1963.) Cores get
``LOOSE`` more room than accelerators and memory once more: where several bind at the same point the price is the
accelerator's, then the cores'.

Prices. A resource's price is by how much its unit more would raise the value: the dual of its row, and, as one more
accelerator unit also lifts the caps, and any resource may lift floors, the duals of those by how much they are lifted.
"""

import math
from dataclasses import dataclass

from streams.control.allocator.curves import Piece, cut
from streams.control.allocator.market import RESOURCES, Market, Place, Units
from streams.control.allocator.solver import Solver
from streams.control.allocator.tableau import Columns, RowKey, Rows

PREFERENCE = 5e-7
# More than all preferences together, so that of splits that are worth the same the last one stays.
LEAST_BONUS = 2e-6
LOOSE = 1e-8
# Work that a lever's places could do, times this, bounds the pieces that are looked at: the next unit has a price too.
BEYOND = 2.0


@dataclass(frozen=True, kw_only=True)
class Stay:
    """The last split as an anchor: units of each place, and the bonus for each unit that stays."""

    units: Units
    bonuses: list[float]


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """The best split, and by how much the value rises with each row's bound (falls, for a floor: negative)."""

    units: Units
    rises: dict[RowKey, float]

    def rise(self, what: str, number: int) -> float:
        """Rise of the value per unit of a bound; 0 of one that was left out, as it cannot bind."""
        return self.rises.get((what, number), 0.0)


def optimum(market: Market, *, solver: Solver, stay: Stay | None = None) -> Optimum:
    """The split that earns most, bonuses of ``stay`` included. Raises UnsolvedError."""
    if not market.places:
        return Optimum(units=[], rises={})
    sizes = [_size(market, place) for place in market.places]
    pieces = [_within_reach(market, lever, sizes) for lever in range(len(market.levers))]
    scale_s = math.fsum(piece.value_s for own in pieces for piece in own) or 1.0
    columns = Columns(num_places=len(sizes))
    for at, size in enumerate(sizes):
        cost = _preference(market, market.places[at])
        columns.add_place(at, size=size, cost=cost)
        if stay is not None and stay.units[at] > 0.0:
            bonus = max(stay.bonuses[at] * size / scale_s, LEAST_BONUS)
            columns.add_place(at, size=size, cost=cost - bonus, upper=stay.units[at] / size)
    rows = Rows()
    _bound_resources(market, columns, rows, sizes)
    for lever, own in enumerate(market.by_lever):
        work = math.fsum(market.places[at].work_per_unit_s * sizes[at] for at in own)
        terms = [(columns.add(cost=-piece.value_s / scale_s, upper=1.0), piece.work_units_s) for piece in pieces[lever]]
        terms += [
            (column, -market.places[at].work_per_unit_s * sizes[at]) for at in own for column in columns.of_place[at]
        ]
        if pieces[lever]:
            rows.add(("work", lever), terms, upper=0.0, size=work)
        whole = math.fsum(sizes[at] for at in own)
        units = [(column, sizes[at]) for at in own for column in columns.of_place[at]]
        if market.caps[lever] < whole:
            rows.add(("cap", lever), units, upper=market.caps[lever], size=whole)
        if market.floors[lever] > 0.0:
            rows.add(("floor", lever), units, lower=market.floors[lever], size=whole)
    found = solver(rows.program(columns))
    units_N = [0.0] * len(sizes)
    for column, (at, size) in columns.places.items():
        units_N[at] += size * max(0.0, float(found.columns_N[column]))
    rises = {
        key: -float(dual) * scale_s / size
        for key, size, dual in zip(rows.keys, rows.sizes, found.row_duals_M, strict=True)
    }
    return Optimum(units=units_N, rises=rises)


def prices(market: Market, found: Optimum) -> list[dict[str, float]]:
    """Value per second of one more unit of each resource, for each pool."""
    lifted = math.fsum(found.rise("cap", lever) * share for lever, share in enumerate(market.max_shares))
    priced = []
    for pool, own in enumerate(market.by_pool):
        rises = {resource: [found.rise(resource, pool)] for resource in RESOURCES}
        rises["accelerator"].append(lifted)
        for place in (market.places[at] for at in own):
            # One more unit of what bounds a place is more that can be run there, and so a higher floor.
            runnable = 1.0 / place.needs[place.bound_by]
            lift = market.floor_shares[place.lever] * place.lives * runnable
            rises[RESOURCES[place.bound_by]].append(found.rise("floor", place.lever) * lift)
        priced.append({resource: max(0.0, math.fsum(parts)) for resource, parts in rises.items()})
    return priced


def _preference(market: Market, place: Place) -> float:
    """Cost of a whole place: later pools and levers cost more, though a later lever less so on a later pool."""
    pool, lever = place.pool / len(market.accelerators), place.lever / len(market.levers)
    return PREFERENCE * (1.0 + (pool + lever - pool * lever) / 4.0)


def _size(market: Market, place: Place) -> float:
    """Units that a share of a place is counted in: all that can run there, or would if what is missing came."""
    return place.most_units or market.supplies[place.pool][0] or 1.0


def _within_reach(market: Market, lever: int, sizes: list[float]) -> list[Piece]:
    reach = BEYOND * math.fsum(market.places[at].work_per_unit_s * sizes[at] for at in market.by_lever[lever])
    return list(cut(market.pieces[lever], reach))


def _bound_resources(market: Market, columns: Columns, rows: Rows, sizes: list[float]) -> None:
    """One row for each resource of a pool that its units could use up."""
    for pool, own in enumerate(market.by_pool):
        usable = market.supplies[pool][0]
        for number, resource in enumerate(RESOURCES):
            have = market.supplies[pool][number]
            needs = [(at, market.places[at].needs[number]) for at in own if market.places[at].needs[number] > 0.0]
            if not needs or (number > 0 and max(need for _, need in needs) * usable <= have):
                continue
            rows.add(
                (resource, pool),
                [(column, need * sizes[at]) for at, need in needs for column in columns.of_place[at]],
                upper=have * (1.0 + LOOSE * (number + 1)),
                size=max(have, *(need * sizes[at] for at, need in needs)),
            )
