"""How a controller is set up, and what it is called in the records that it sends."""

from dataclasses import dataclass

from streams.control.allocator.problem import AllocatorSettings
from streams.control.gains import DEFAULT_GAINS, Gains
from streams.control.uplift.guardrails import DEFAULT_GUARDRAILS, GuardrailSettings

CONTROLLER_VERSION = "pid-2"
MICRO = 1_000_000
MS_PER_S = 1_000
DEFAULT_ALLOCATOR = AllocatorSettings()


@dataclass(frozen=True, kw_only=True)
class ControlSettings:
    """How many windows a target is valid for, how often a snapshot and a split are made, and how the loops steer.

    ``snapshot_ticks`` and ``allocator_ticks`` lie between two of their kind. ``allocator`` is as cautious as it is in
    every cell, but for the cell's own ``utilisation``. ``guardrails`` are those of every cell and segment.
    """

    validity_windows: int = 3
    snapshot_ticks: int = 30
    gains: Gains = DEFAULT_GAINS
    allocator_ticks: int = 10
    allocator: AllocatorSettings = DEFAULT_ALLOCATOR
    guardrails: GuardrailSettings = DEFAULT_GUARDRAILS

    def __post_init__(self) -> None:
        for name in ("validity_windows", "snapshot_ticks", "allocator_ticks"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} {getattr(self, name)} must be positive")


DEFAULT_SETTINGS = ControlSettings()
