"""What each lever could do with each pool and within which bounds: the ground on which every split stands.

A *place* is a lever on a pool where it runs (compatibility). One accelerator unit of pool p given to lever l does

    g_pl = units_per_unit_s x utilisation x (1 - reserve_share) x e_pl    work units per second

with e = max(0, s - lost_start_cost (1 - s)) and s the share of the pool's units that outlives the lever's start: lost
units do nothing and cost a start. Where e is 0 there is no place. At most r_pl = min(U_p, C_p / c_pl, M_p / m_pl) units
can be run there, by the pool's units, cores and memory and what a unit of the lever needs of each.

Bounds of a lever over the cell, in units:

- cap: ``max_share`` x sum of U_p over all pools. It holds for a lever that is alone as well: what it leaves is at once
  there for the lever that comes next.
- floor: phi_l x sum over p of r_pl e_pl: ``floor_share`` of the usable units that it can run on and that outlive its
  start. Where the floors of all levers add up to more than 1, each is divided by their sum; where a lever may do no
  more than a certain work, its floor does no more than that.

So the floors can always be kept, all together: phi_l r_pl e_pl units for every place need at most sum of phi_l <= 1 of
every resource of a pool, and no more than the cap. (``streams.control.allocator.rule`` starts from this split.)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

from schemas.records import AcceleratorFit
from schemas.records.fields import Lever
from streams.control.allocator.curves import Piece, merged, value_of
from streams.control.allocator.problem import (
    GIB_BYTES,
    MIN_QUANTITY,
    AllocatorSettings,
    LeverOption,
    PoolSupply,
    Problem,
    believed,
)

RESOURCES = ("accelerator", "cpu", "memory")
LEVERS: tuple[Lever, ...] = get_args(Lever)

# Units given to each place, in the order of the market's places.
Units = list[float]


@dataclass(frozen=True, kw_only=True)
class Place:
    """A lever on a pool where it runs. ``pool`` and ``lever`` are positions in the market.

    ``needs`` of each resource per unit, ``most_units`` r and the resource that sets it, ``work_per_unit_s`` g,
    ``lives`` e.
    """

    pool: int
    lever: int
    needs: tuple[float, float, float]
    most_units: float
    bound_by: int
    work_per_unit_s: float
    lives: float


@dataclass(frozen=True, kw_only=True)
class Market:
    """Pools by name and enabled levers in their order, so that no order of the problem's matters.

    ``supplies`` of each resource per pool; places by pool, then lever. Per lever: its concave curve as ``pieces``, the
    most work that counts, cap and floor in units, and the share phi that the floor was made from (0 where the limit on
    its work made it).
    """

    accelerators: tuple[str, ...]
    levers: tuple[Lever, ...]
    supplies: tuple[tuple[float, float, float], ...]
    places: tuple[Place, ...]
    pieces: tuple[tuple[Piece, ...], ...]
    max_work_units_s: tuple[float, ...]
    max_shares: tuple[float, ...]
    caps: tuple[float, ...]
    floors: tuple[float, ...]
    floor_shares: tuple[float, ...]

    @cached_property
    def by_pool(self) -> tuple[tuple[int, ...], ...]:
        """Places of each pool."""
        return tuple(
            tuple(at for at, place in enumerate(self.places) if place.pool == pool)
            for pool in range(len(self.accelerators))
        )

    @cached_property
    def by_lever(self) -> tuple[tuple[int, ...], ...]:
        """Places of each lever."""
        return tuple(
            tuple(at for at, place in enumerate(self.places) if place.lever == lever)
            for lever in range(len(self.levers))
        )

    def lever_units(self, units: Units, lever: int) -> float:
        """Units that the lever has in the cell."""
        return math.fsum(units[at] for at in self.by_lever[lever])

    def work_units_s(self, units: Units, lever: int) -> float:
        """Work that the lever does with them."""
        return math.fsum(units[at] * self.places[at].work_per_unit_s for at in self.by_lever[lever])

    def used(self, units: Units, pool: int, resource: int) -> float:
        """What a split uses of a resource of a pool."""
        return math.fsum(units[at] * self.places[at].needs[resource] for at in self.by_pool[pool])

    def value_s(self, units: Units) -> float:
        """What a split earns per second."""
        return math.fsum(
            value_of(self.pieces[lever], self.work_units_s(units, lever)) for lever in range(len(self.levers))
        )


def market_of(problem: Problem) -> Market:
    """The market of a problem. Figures that are no quantities count as nothing, so that it can always be made."""
    settings = problem.settings
    pools = sorted(problem.pools, key=lambda pool: pool.accelerator)
    options = sorted(
        (option for option in problem.levers if option.enabled), key=lambda option: LEVERS.index(option.terms.lever)
    )
    supplies = tuple(
        (believed(pool.usable_units), believed(pool.cpu_cores), believed(pool.memory_gib)) for pool in pools
    )
    places = tuple(
        place
        for number, pool in enumerate(pools)
        for lever, option in enumerate(options)
        if (place := _place(number, lever, pool=pool, option=option, settings=settings)) is not None
    )
    max_work = tuple(
        believed(option.max_work_units_s) if option.max_work_units_s is not None else math.inf for option in options
    )
    usable = math.fsum(supply[0] for supply in supplies)
    max_shares = tuple(believed(option.terms.max_share, most=1.0) for option in options)
    floors, floor_shares = _floors(places, options, max_work)
    return Market(
        accelerators=tuple(pool.accelerator for pool in pools),
        levers=tuple(option.terms.lever for option in options),
        supplies=supplies,
        places=places,
        pieces=tuple(
            merged(option.value_curves, confidence=settings.confidence, max_work_units_s=most)
            for option, most in zip(options, max_work, strict=True)
        ),
        max_work_units_s=max_work,
        max_shares=max_shares,
        caps=tuple(share * usable for share in max_shares),
        floors=floors,
        floor_shares=floor_shares,
    )


def _place(
    number: int, lever: int, *, pool: PoolSupply, option: LeverOption, settings: AllocatorSettings
) -> Place | None:
    fit = next((fit for fit in option.terms.fits if fit.accelerator == pool.accelerator), None)
    if fit is None:
        return None
    survives = believed(pool.survives.get(option.terms.lever, 1.0), most=1.0)
    lives = survives - settings.lost_start_cost * (1.0 - survives)
    speed = believed(fit.units_per_unit_s) * settings.utilisation * (1.0 - settings.reserve_share)
    if lives < MIN_QUANTITY or speed < MIN_QUANTITY:
        return None
    needs = _needs(fit)
    supply = (believed(pool.usable_units), believed(pool.cpu_cores), believed(pool.memory_gib))
    most = [have / need if need > 0.0 else math.inf for have, need in zip(supply, needs, strict=True)]
    return Place(
        pool=number,
        lever=lever,
        needs=needs,
        most_units=min(most),
        bound_by=most.index(min(most)),
        work_per_unit_s=speed * lives,
        lives=lives,
    )


def _needs(fit: AcceleratorFit) -> tuple[float, float, float]:
    return 1.0, believed(fit.cpu_cores_per_unit), believed(fit.memory_bytes_per_unit / GIB_BYTES)


def _floors(
    places: Sequence[Place], options: Sequence[LeverOption], max_work: Sequence[float]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Floor of each lever in units, and its phi; by the module's formulas."""
    wanted = [believed(option.terms.floor_share, most=believed(option.terms.max_share, most=1.0)) for option in options]
    shrunk = max(1.0, math.fsum(wanted))
    floors, shares = [], []
    for lever, share in enumerate(wanted):
        own = [place for place in places if place.lever == lever]
        units = share / shrunk * math.fsum(place.most_units * place.lives for place in own)
        work = share / shrunk * math.fsum(place.most_units * place.lives * place.work_per_unit_s for place in own)
        limited = work > max_work[lever]
        floors.append(units * max_work[lever] / work if limited else units)
        shares.append(0.0 if limited else share / shrunk)
    return tuple(floors), tuple(shares)
