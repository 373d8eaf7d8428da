"""What a host offers, reduced to what is summed up, and shared between the hosts that offer the same. Pure."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple, cast

from schemas.records import Offer
from streams.ingest.bounds import UNKNOWN, micro

MAX_INTERNED = 1 << 16
# All that a line is made of; what an offer says beside it does not enter the sums.
_FIELDS: Callable[[Offer], tuple[object, ...]] = attrgetter(
    "accelerator", "units", "cpu_cores", "memory_bytes", "idle_cause", "unusable", "provider", "reclaim_at_ms"
)


class OfferLine(NamedTuple):
    """One offer as it enters its pool's sums; quantities times 10^6."""

    accelerator: str
    units: int
    cpu_cores: int
    memory_bytes: int
    cause: str
    unusable: str | None
    provider: str
    noticed: bool


OfferLines = tuple[OfferLine, ...]


class OfferInterner:
    """Gives equal offers the same line.

    A fleet offers few different things and repeats them with every heartbeat: what is kept of a host is then a few
    references instead of its decoded offers, and two heartbeats that say the same compare by identity. A line
    dropped from the table is still equal by value.
    """

    def __init__(self) -> None:
        self._lines: dict[tuple[object, ...], OfferLine] = {}

    def lines(self, offers: Sequence[Offer]) -> OfferLines:
        """The lines of one host's offers, in their order."""
        keys = list(map(_FIELDS, offers))
        lines = tuple(map(self._lines.get, keys))
        if None in lines:
            return tuple(self._line(key, offer) for key, offer in zip(keys, offers, strict=True))
        return cast(OfferLines, lines)

    def _line(self, key: tuple[object, ...], offer: Offer) -> OfferLine:
        line = self._lines.get(key)
        if line is None:
            if len(self._lines) >= MAX_INTERNED:
                self._lines.clear()
            line = self._lines[key] = _line(offer)
        return line


def _line(offer: Offer) -> OfferLine:
    return OfferLine(
        accelerator=offer.accelerator,
        units=micro(offer.units),
        cpu_cores=micro(offer.cpu_cores),
        memory_bytes=offer.memory_bytes,
        cause=offer.idle_cause,
        unusable=offer.unusable,
        provider=offer.provider or UNKNOWN,
        noticed=offer.reclaim_at_ms is not None,
    )
