"""What one pool's window says: sums over its offers, and what happened to them. Pure."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from schemas.age_classes import AGE_CLASSES_S
from schemas.records import AgedUnits, PoolWindow
from streams.ingest.bounds import bounded, labelled
from streams.ingest.losses import Losses
from streams.ingest.offers import Group

MAX_PROVIDERS = 16
# A vocabulary of the contract, with room to grow.
MAX_WORDS = 16


@dataclass(frozen=True, slots=True)
class Events:
    """What happened to the pools of a cell inside one window, by accelerator."""

    num_offers: Counter[str] = field(default_factory=Counter)
    num_reclaims: Counter[str] = field(default_factory=Counter)
    losses: Losses = field(default_factory=Losses)

    def accelerators(self) -> set[str]:
        """Accelerators to which anything happened."""
        return {*self.num_offers, *self.num_reclaims, *self.losses.accelerators()}


class Pool:
    """Sums of one accelerator; whole numbers, quantities times 10^6. A label stands there only if it has units."""

    __slots__ = (
        "causes", "cpu_cores", "memory_bytes", "noticed", "num_hosts", "num_hosts_silent", "num_offers", "num_reclaims",
        "providers", "silent_units", "taken_by_class", "unit_ms", "units", "units_by_class", "unusable",
    )  # fmt: skip

    def __init__(self) -> None:
        self.num_hosts = 0
        self.units = 0
        self.cpu_cores = 0
        self.memory_bytes = 0
        self.noticed = 0
        self.unusable: defaultdict[str, int] = defaultdict(int)
        self.causes: defaultdict[str, int] = defaultdict(int)
        self.providers: defaultdict[str, int] = defaultdict(int)
        self.unit_ms = 0
        self.units_by_class = [0] * len(AGE_CLASSES_S)
        self.taken_by_class = [0] * len(AGE_CLASSES_S)
        self.num_offers = 0
        self.num_reclaims = 0
        self.num_hosts_silent = 0
        self.silent_units = 0

    def add_units(self, group: Group, units: int) -> None:
        """Add the units of one group's offers."""
        if not units:
            return
        self.units += units
        self.causes[group.cause] += units
        self.providers[group.provider] += units
        if group.unusable is not None:
            self.unusable[group.unusable] += units
        # What is of no use now is not counted as usable, so its going takes nothing away.
        if group.noticed and group.unusable is None:
            self.noticed += units

    def note(self, accelerator: str, events: Events) -> None:
        """Note what happened to the accelerator."""
        lost = events.losses
        self.num_offers = events.num_offers[accelerator]
        self.num_reclaims = events.num_reclaims[accelerator]
        self.num_hosts_silent = lost.num_hosts_silent.get(accelerator, 0)
        self.silent_units = lost.silent_units.get(accelerator, 0)
        self.taken_by_class = lost.taken_by_class.get(accelerator, self.taken_by_class)

    def fold(self, other: "Pool") -> None:
        """Add another pool's sums; a host that offers both is then counted twice."""
        self.num_hosts += other.num_hosts
        self.units += other.units
        self.cpu_cores += other.cpu_cores
        self.memory_bytes += other.memory_bytes
        self.noticed += other.noticed
        self.unit_ms += other.unit_ms
        self.num_offers += other.num_offers
        self.num_reclaims += other.num_reclaims
        self.num_hosts_silent += other.num_hosts_silent
        self.silent_units += other.silent_units
        self.units_by_class = _added(self.units_by_class, other.units_by_class)
        self.taken_by_class = _added(self.taken_by_class, other.taken_by_class)
        for mine, theirs in (
            (self.unusable, other.unusable),
            (self.causes, other.causes),
            (self.providers, other.providers),
        ):
            for label, units in theirs.items():
                mine[label] += units

    def window(self, accelerator: str) -> PoolWindow:
        """The record of these sums, within its bounds."""
        return PoolWindow(
            accelerator=accelerator,
            num_hosts=self.num_hosts,
            units_micro=bounded(self.units),
            cpu_cores_micro=bounded(self.cpu_cores),
            memory_bytes=bounded(self.memory_bytes),
            unusable=labelled(self.unusable, limit=MAX_WORDS),
            causes=labelled(self.causes, limit=MAX_WORDS),
            providers=labelled(self.providers, limit=MAX_PROVIDERS),
            noticed_units_micro=bounded(self.noticed),
            num_offers=self.num_offers,
            num_reclaims=self.num_reclaims,
            num_hosts_silent=self.num_hosts_silent,
            silent_units_micro=bounded(self.silent_units),
            age_unit_ms=bounded(self.unit_ms),
            ages=[
                AgedUnits(from_age_s=from_age_s, units_micro=bounded(units), taken_micro=bounded(taken))
                for from_age_s, units, taken in zip(
                    AGE_CLASSES_S, self.units_by_class, self.taken_by_class, strict=True
                )
                if units or taken
            ],
        )


def _added(mine: list[int], theirs: list[int]) -> list[int]:
    return [one + other for one, other in zip(mine, theirs, strict=True)]
