"""Typed records of every topic; their Avro schemas are derived from these types."""

from schemas.records.capacity import CapacityEvent, Offer, ReclaimTiming
from schemas.records.cells import CellDeclaration, CellLimits, CellRevision
from schemas.records.clock import ClockRecord
from schemas.records.control import (
    CandidateTarget,
    ControllerSnapshot,
    PoolSnapshot,
    SegmentShare,
    WindowRef,
)
from schemas.records.dead_letter import DeadLetter, RawHeader
from schemas.records.latency import Account, HistogramFields, LatencyInterval, RouteInterval, ShedUnits
from schemas.records.precompute import PrecomputeJob, PrecomputeResult
from schemas.records.ranking import (
    ChunkShed,
    OptionalItem,
    RankingAnswer,
    RankingOutcome,
    RankingRequest,
    RankingResult,
    RankingWork,
)
from schemas.records.uplift import SegmentUplift
from schemas.records.windows import (
    CapacityWindow,
    ControlWindow,
    LabelledUnits,
    LatencyWindow,
    OperatorCommand,
    PoolWindow,
    RouteWindow,
)

__all__ = [
    "Account",
    "CandidateTarget",
    "CapacityEvent",
    "CapacityWindow",
    "CellDeclaration",
    "CellLimits",
    "CellRevision",
    "ChunkShed",
    "ClockRecord",
    "ControlWindow",
    "ControllerSnapshot",
    "DeadLetter",
    "HistogramFields",
    "LabelledUnits",
    "LatencyInterval",
    "LatencyWindow",
    "Offer",
    "OperatorCommand",
    "OptionalItem",
    "PoolSnapshot",
    "PoolWindow",
    "PrecomputeJob",
    "PrecomputeResult",
    "RankingAnswer",
    "RankingOutcome",
    "RankingRequest",
    "RankingResult",
    "RankingWork",
    "RawHeader",
    "ReclaimTiming",
    "RouteInterval",
    "RouteWindow",
    "SegmentShare",
    "SegmentUplift",
    "ShedUnits",
    "WindowRef",
]
