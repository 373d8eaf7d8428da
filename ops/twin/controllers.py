"""What steers a cell of the twin: windows in, a word out. The controller of production is one of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from schemas.records import CandidateTarget, ControlWindow, PoolSnapshot
from schemas.records.fields import Lever
from streams.control.processor import apply
from streams.control.settings import DEFAULT_SETTINGS, ControlSettings
from streams.control.state import CellState

Split = Mapping[Lever, float]


@dataclass(frozen=True, kw_only=True)
class Word:
    """What a controller says after a window: the target, and of each pool by name the share that a lever has.

    A pool that is not named stays as it is.
    """

    target: CandidateTarget
    splits: Mapping[str, Split] = field(default_factory=dict)


class Controller(Protocol):
    """Steers one cell."""

    @property
    def name(self) -> str:
        """How runs call it."""
        ...

    def close(self, capacity: ControlWindow, latency: ControlWindow) -> Word | None:
        """Take in the two windows of one index; what is to be done from then on, None for nothing new."""
        ...


class Production:
    """The pure controller of production, driven as its agent drives it."""

    name = "intertidal"

    def __init__(self, cell: str, *, settings: ControlSettings = DEFAULT_SETTINGS) -> None:
        self._state = CellState(cell=cell)
        self._settings = settings

    def close(self, capacity: ControlWindow, latency: ControlWindow) -> Word | None:
        target: CandidateTarget | None = None
        splits: dict[str, Split] = {}
        for window in (capacity, latency):
            self._state, records = apply(self._state, window, settings=self._settings)
            for record in records:
                if isinstance(record, CandidateTarget):
                    target = record
                elif isinstance(record, PoolSnapshot):
                    splits[record.accelerator] = _split(record)
        return None if target is None else Word(target=target, splits=splits)


def _split(pool: PoolSnapshot) -> Split:
    """Shares of a pool's usable units; RMA has all of a pool that nobody split."""
    if not pool.levers:
        return {"rma": 1.0}
    usable_micro = pool.units_micro - sum(reason.units_micro for reason in pool.unusable)
    return {
        lever.lever: min(1.0, lever.units_micro / usable_micro) if usable_micro > 0 else 0.0 for lever in pool.levers
    }
