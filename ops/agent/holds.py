"""The owner's claims on pools: while one holds, nothing is offered; one that is yet to come is announced. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

EVERYTHING: Final[tuple[str, ...]] = ()


@dataclass(frozen=True, kw_only=True)
class Hold:
    """A time in which the owner has pools for itself, milliseconds since the Unix epoch.

    ``starts_ms`` is 0 for one that is in force from its making on: a clock that is set back must not undo it.
    ``ends_ms`` is None for as long as it stands. ``pools`` is empty for all. ``key`` names what made it: of two holds
    with one key the later stands.
    """

    key: str
    reason: str
    starts_ms: int
    ends_ms: int | None = None
    pools: tuple[str, ...] = EVERYTHING

    def __post_init__(self) -> None:
        if self.ends_ms is not None and self.ends_ms < self.starts_ms:
            raise ValueError(f"{self.key}: ends before it starts")

    def is_about(self, pool: str) -> bool:
        """Whether the pool is among those claimed."""
        return not self.pools or pool in self.pools

    def is_over(self, now_ms: int) -> bool:
        """Whether it means nothing any more."""
        return self.ends_ms is not None and now_ms >= self.ends_ms


def in_force(holds: Iterable[Hold], pool: str, now_ms: int, *, early_ms: int = 0) -> Hold | None:
    """The hold on a pool that begins first of those that hold now; None when the owner claims nothing of it.

    Each counts from ``early_ms`` before its start on, so that rankers have given way when it comes.
    """
    active = (
        hold
        for hold in holds
        if hold.is_about(pool) and hold.starts_ms - early_ms <= now_ms and not hold.is_over(now_ms)
    )
    return min(active, key=lambda hold: (hold.starts_ms, hold.key), default=None)


def coming(holds: Iterable[Hold], pool: str, now_ms: int, *, within_ms: int) -> Hold | None:
    """The next hold on a pool that is yet to begin and is not further off than ``within_ms``."""
    ahead = (hold for hold in holds if hold.is_about(pool) and now_ms < hold.starts_ms <= now_ms + within_ms)
    return min(ahead, key=lambda hold: (hold.starts_ms, hold.key), default=None)
