"""What enters the router's core and what it asks for: the boundary to Kafka, or to a twin."""

from dataclasses import dataclass

from schemas.errors import RecordError
from schemas.records import LatencyInterval, RankingRequest, RankingResult, RankingWork
from schemas.records.fields import Route
from schemas.tracing import TraceContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """One record of the requests topic: the request, or why it cannot be read."""

    partition: int
    offset: int
    key: bytes | None
    append_ms: int
    record: RankingRequest | RecordError
    trace: TraceContext | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendWork:
    """Send ``work`` to ``partition`` of the route's work topic."""

    route: Route
    partition: int
    work: RankingWork
    trace: TraceContext | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishResult:
    """Publish ``result`` to ``partition``, keyed by user; once acknowledged, say so with ``RouterCore.published``."""

    partition: int
    offset: int
    result: RankingResult
    trace: TraceContext | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseRequest:
    """Dead-letter the request at ``offset``; once acknowledged, say so with ``RouterCore.published``."""

    partition: int
    offset: int
    error: RecordError


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Commit ``offset`` of the requests' ``partition`` with ``metadata``: everything before it is durable."""

    partition: int
    offset: int
    metadata: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishInterval:
    """Send the metrics of one interval, keyed by cell."""

    interval: LatencyInterval


Action = SendWork | PublishResult | RefuseRequest | Commit | PublishInterval
