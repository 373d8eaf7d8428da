"""Which files a scenario's traffic is taken from, and the factors that somebody gave. Pure."""

from dataclasses import dataclass
from typing import Final

MAX_SPEED: Final = 1e7
MIN_SPEED: Final = 1e-3
MAX_RATE: Final = 1_000.0
MIN_RATE: Final = 1e-6
MAX_FROM_S: Final = 1e9
MAX_HOSTS: Final = 16


@dataclass(frozen=True, kw_only=True)
class WantedArrivals:
    """Arrivals from ``from_s`` after the file's first one, ``speed`` seconds of the file in one of the run, each sent
    ``rate`` times on average. None: chosen. Raises ValueError for a factor out of range."""

    path: str
    from_s: float | None = None
    speed: float | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        _check("arrivals from_s", self.from_s, 0.0, MAX_FROM_S)
        _check("arrivals speed", self.speed, MIN_SPEED, MAX_SPEED)
        _check("arrivals rate", self.rate, MIN_RATE, MAX_RATE)


@dataclass(frozen=True, kw_only=True)
class WantedCapacity:
    """A fleet from ``from_s`` after the trace's start, ``speed`` seconds of it in one of the run, as ``hosts`` hosts.

    None: chosen. Raises ValueError for a factor out of range.
    """

    path: str
    from_s: float | None = None
    speed: float | None = None
    hosts: int | None = None

    def __post_init__(self) -> None:
        _check("capacity from_s", self.from_s, 0.0, MAX_FROM_S)
        _check("capacity speed", self.speed, MIN_SPEED, MAX_SPEED)
        _check("capacity hosts", self.hosts, 1, MAX_HOSTS)


@dataclass(frozen=True, kw_only=True)
class WantedFiles:
    """What is taken from files; None: as the scenario has it. ``pairs`` is the path of the quantiles."""

    arrivals: WantedArrivals | None = None
    capacity: WantedCapacity | None = None
    pairs: str | None = None

    def over(self, other: "WantedFiles") -> "WantedFiles":
        """These, and the other's where nothing is wanted here."""
        return WantedFiles(
            arrivals=self.arrivals or other.arrivals,
            capacity=self.capacity or other.capacity,
            pairs=self.pairs or other.pairs,
        )


NO_FILES: Final = WantedFiles()


def _check(name: str, value: float | None, least: float, most: float) -> None:
    # Written so that NaN is refused too.
    if value is not None and not least <= value <= most:
        raise ValueError(f"{name} must be from {least:g} to {most:g}, is {value:g}")
