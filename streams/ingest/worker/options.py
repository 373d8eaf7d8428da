"""How an ingest worker is set up."""

from dataclasses import dataclass, field

from schemas.attribution_keys import UNSIGNED, AttributionKeys
from schemas.settings import MeasurementSettings, TimeSettings
from schemas.topics import Namespace


@dataclass(frozen=True, kw_only=True)
class IngestOptions:
    """``worker_id`` is unique among the workers of a group.

    With ``static_member`` it is the group's instance id too: a worker that a supervisor restarts at once keeps its
    partitions, without a rebalance; but a worker that stops for good is missed only after the session. Health and
    metrics answer on loopback at ``health_port``, 0 for a free one. ``keys`` verify attribution tokens.
    """

    namespace: Namespace
    time: TimeSettings
    worker_id: str
    health_port: int = 0
    static_member: bool = False
    measurement: MeasurementSettings = field(default_factory=MeasurementSettings)
    keys: AttributionKeys = UNSIGNED

    def __post_init__(self) -> None:
        if not self.worker_id:
            raise ValueError("worker_id must not be empty")
