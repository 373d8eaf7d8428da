"""What is to be done for one host: steps of its gates first, then records for Kafka. Pure."""

from dataclasses import dataclass

from schemas.gate import FlipReason
from schemas.records import CapacityEvent


@dataclass(frozen=True)
class OpenGate:
    """Let optional work run in a pool."""

    pool: str


@dataclass(frozen=True)
class RenewGate:
    """Prolong the lease of an open pool; when that is refused, the agent hears of it by ``lease_lost``."""

    pool: str


@dataclass(frozen=True)
class CloseGate:
    """Stop optional work in a pool now."""

    pool: str
    reason: FlipReason


@dataclass(frozen=True)
class AnnounceReclaim:
    """Tell the pool's rankers when a reclaim will come, on the monotonic clock; 0 takes it back."""

    pool: str
    at_ns: int


GateStep = OpenGate | RenewGate | CloseGate | AnnounceReclaim


@dataclass(frozen=True)
class Plan:
    """Every gate step comes before the records. Losing this order would let a slow broker delay a reclaim."""

    gates: tuple[GateStep, ...] = ()
    records: tuple[CapacityEvent, ...] = ()

    def __add__(self, other: "Plan") -> "Plan":
        """Both, the gates of both first."""
        return Plan(self.gates + other.gates, self.records + other.records)


# A host's name, and what is to be done for it.
HostPlan = tuple[str, Plan]
