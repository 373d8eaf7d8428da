"""Running sums of what the hosts of a cell offer, by accelerator. Pure; O(1) per offer added or taken away."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from schemas.records import PoolWindow
from streams.ingest.bounds import OTHER, bounded, labelled, largest
from streams.ingest.offers import OfferLine

# Limits of what one window lists, so that it stays well under the broker's record limit of 1 MiB.
MAX_POOLS = 128
MAX_PROVIDERS = 16
# A vocabulary of the contract, with room to grow.
MAX_WORDS = 16


class Pool:
    """Sums of one accelerator; whole numbers, so that taking away is exact. Quantities times 10^6.

    Labels whose units came down to 0 stay until the pool goes or ``prune`` is called.
    """

    __slots__ = ("causes", "cpu_cores", "memory_bytes", "noticed", "num_hosts", "providers", "units", "unusable")

    def __init__(self) -> None:
        self.num_hosts = 0
        self.units = 0
        self.cpu_cores = 0
        self.memory_bytes = 0
        self.noticed = 0
        self.unusable: defaultdict[str, int] = defaultdict(int)
        self.causes: defaultdict[str, int] = defaultdict(int)
        self.providers: defaultdict[str, int] = defaultdict(int)

    def prune(self) -> None:
        """Forget labels without units."""
        for totals in (self.unusable, self.causes, self.providers):
            for label in [label for label, units in totals.items() if units == 0]:
                del totals[label]

    def fold(self, other: "Pool") -> None:
        """Add another pool's sums; a host that offers both is then counted twice."""
        self.num_hosts += other.num_hosts
        self.units += other.units
        self.cpu_cores += other.cpu_cores
        self.memory_bytes += other.memory_bytes
        self.noticed += other.noticed
        for mine, theirs in (
            (self.unusable, other.unusable),
            (self.causes, other.causes),
            (self.providers, other.providers),
        ):
            for label, units in theirs.items():
                mine[label] += units


class Pools:
    """Pools of one cell: what every live host offers, summed up."""

    def __init__(self) -> None:
        self._pools: dict[str, Pool] = {}

    def add(self, lines: Iterable[OfferLine]) -> None:
        """Add the offers of one host."""
        self._apply(lines, 1)

    def take_away(self, lines: Iterable[OfferLine]) -> None:
        """Take away the offers of one host, as they were added; a pool without hosts goes."""
        for accelerator in self._apply(lines, -1):
            if self._pools[accelerator].num_hosts == 0:
                del self._pools[accelerator]

    def windows(self, *, num_offers: Mapping[str, int], num_reclaims: Mapping[str, int]) -> list[PoolWindow]:
        """Every pool, in order of accelerators, with the events of the window beside it.

        A pool that has events but no host left is listed too. Beyond MAX_POOLS the smallest stand together as
        ``(other)``.
        """
        for pool in self._pools.values():
            pool.prune()
        sizes = {
            name: self._pools[name].units if name in self._pools else 0
            for name in {*self._pools, *num_offers, *num_reclaims}
        }
        kept, rest = largest(sizes, MAX_POOLS)
        listed = [
            _window(name, self._pools.get(name) or Pool(), num_offers.get(name, 0), num_reclaims.get(name, 0))
            for name in kept
        ]
        if rest:
            folded = Pool()
            for name in rest:
                folded.fold(self._pools.get(name) or Pool())
            offers, reclaims = (sum(counts.get(name, 0) for name in rest) for counts in (num_offers, num_reclaims))
            listed.append(_window(OTHER, folded, offers, reclaims))
        return sorted(listed, key=lambda pool: pool.accelerator)

    def _apply(self, lines: Iterable[OfferLine], sign: int) -> set[str]:
        touched = set()
        for accelerator, units, cpu_cores, memory_bytes, cause, unusable, provider, noticed in lines:
            pool = self._pools.get(accelerator)
            if pool is None:
                pool = self._pools[accelerator] = Pool()
            if accelerator not in touched:
                touched.add(accelerator)
                pool.num_hosts += sign
            units *= sign  # noqa: PLW2901  # the one name that the sums below share
            pool.units += units
            pool.cpu_cores += sign * cpu_cores
            pool.memory_bytes += sign * memory_bytes
            if noticed:
                pool.noticed += units
            pool.causes[cause] += units
            pool.providers[provider] += units
            if unusable is not None:
                pool.unusable[unusable] += units
        return touched


def _window(accelerator: str, pool: Pool, num_offers: int, num_reclaims: int) -> PoolWindow:
    return PoolWindow(
        accelerator=accelerator,
        num_hosts=pool.num_hosts,
        units_micro=bounded(pool.units),
        cpu_cores_micro=bounded(pool.cpu_cores),
        memory_bytes=bounded(pool.memory_bytes),
        unusable=labelled(pool.unusable, limit=MAX_WORDS),
        causes=labelled(pool.causes, limit=MAX_WORDS),
        providers=labelled(pool.providers, limit=MAX_PROVIDERS),
        noticed_units_micro=bounded(pool.noticed),
        num_offers=num_offers,
        num_reclaims=num_reclaims,
    )
