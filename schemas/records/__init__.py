"""Typed records of every topic; their Avro schemas are derived from these types."""

from schemas.records.capacity import CapacityEvent, Offer, ReclaimTiming
from schemas.records.cells import CellDeclaration, CellLimits, CellRevision
from schemas.records.clock import ClockRecord
from schemas.records.control import (
    CandidateTarget,
    ControllerSnapshot,
    DepthValue,
    LeverUnits,
    PoolSnapshot,
    ResourcePrice,
    SegmentShare,
    UpgradeValue,
    WindowRef,
)
from schemas.records.dead_letter import DeadLetter, RawHeader
from schemas.records.latency import Account, HistogramFields, LatencyInterval, RouteInterval, SegmentTraffic, ShedUnits
from schemas.records.levers import AcceleratorFit, CurvePoint, LeverTerms, ValueCurve
from schemas.records.measurement import ArmGuard, OutcomesWindow, ResultsWindow, StratumSums, VersionTally
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
from schemas.records.uplift import Effect, Guardrail, SampleRatio, SegmentUplift
from schemas.records.windows import (
    AgedUnits,
    CapacityWindow,
    ControlWindow,
    LabelledUnits,
    LatencyWindow,
    OperatorCommand,
    PoolWindow,
    ReporterFigures,
    RouterFigures,
    RouteWindow,
)

__all__ = [
    "AcceleratorFit",
    "Account",
    "AgedUnits",
    "ArmGuard",
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
    "CurvePoint",
    "DeadLetter",
    "DepthValue",
    "Effect",
    "Guardrail",
    "HistogramFields",
    "LabelledUnits",
    "LatencyInterval",
    "LatencyWindow",
    "LeverTerms",
    "LeverUnits",
    "Offer",
    "OperatorCommand",
    "OptionalItem",
    "OutcomesWindow",
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
    "ReporterFigures",
    "ResourcePrice",
    "ResultsWindow",
    "RouteInterval",
    "RouteWindow",
    "RouterFigures",
    "SampleRatio",
    "SegmentShare",
    "SegmentTraffic",
    "SegmentUplift",
    "ShedUnits",
    "StratumSums",
    "UpgradeValue",
    "ValueCurve",
    "VersionTally",
    "WindowRef",
]
