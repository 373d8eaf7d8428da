"""What the allocator says: the split in force, its prices, and how it was made. Part of a controller's state."""

from typing import Literal

from msgspec import Struct

from schemas.records import ResourcePrice
from schemas.records.fields import Lever, Name, Quantity, Share, Text

Mode = Literal["program", "kept", "rule"]


class LeverGrant(Struct, frozen=True, kw_only=True):
    """What one lever gets of a pool. ``share`` is of the usable units and stands until the next split."""

    lever: Lever
    share: Share
    units: Quantity


class PoolGrants(Struct, frozen=True, kw_only=True):
    """One pool: grants in the order of levers, those of nothing left out; prices where they are known."""

    accelerator: Name
    usable_units: Quantity
    grants: tuple[LeverGrant, ...] = ()
    prices: tuple[ResourcePrice, ...] = ()


class Allocation(Struct, frozen=True, kw_only=True):
    """One cell's split. ``value_s`` is what it earns at the lower bound of the curves, ``detail`` says what binds.

    ``mode``: made by the ``program``; the last split ``kept``, scaled into today's limits; or the ``rule``.
    """

    pools: tuple[PoolGrants, ...]
    value_s: Quantity
    mode: Mode
    detail: Text

    def pool(self, accelerator: str) -> PoolGrants | None:
        """The pool's part, or None where the split does not know it."""
        return next((pool for pool in self.pools if pool.accelerator == accelerator), None)

    def share(self, accelerator: str, lever: Lever) -> float:
        """Share of the pool's usable units that the lever has."""
        pool = self.pool(accelerator)
        return next((grant.share for grant in pool.grants if grant.lever == lever), 0.0) if pool is not None else 0.0
