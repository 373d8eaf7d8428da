"""Settings of a consumer of results, beside where it reads and where it keeps its place."""

from dataclasses import dataclass
from typing import Any

# Four times the results that a router remembers of its partition.
HORIZON_RECORDS = 16_384
# Longer than on the request path: nobody waits for a reader, and one that pauses should keep its partitions.
SESSION_MS = 10_000
HEARTBEAT_MS = 1_000


@dataclass(frozen=True, kw_only=True)
class ResultsOptions:
    """``horizon_records``: how many offsets of a partition a duplicate is looked for in.

    ``max_batch``: records of one batch at most. ``queue_kib``: what is fetched ahead, of all partitions together.
    ``max_handling_s``: a caller that does not come back for the next batch for so long loses its partitions to others.
    ``member``: a name that outlives the process; with one, a process that is restarted within ten seconds gets its
    partitions back at once, and one that ends is waited for as long. Raises ValueError.
    """

    horizon_records: int = HORIZON_RECORDS
    max_batch: int = 500
    queue_kib: int = 16_384
    max_handling_s: float = 300.0
    member: str | None = None

    def __post_init__(self) -> None:
        if self.horizon_records < 0:
            raise ValueError("horizon_records must not be negative")
        if self.max_batch < 1:
            raise ValueError("max_batch must be at least 1")
        if self.queue_kib < 1:
            raise ValueError("queue_kib must be at least 1")
        if not self.max_handling_s * 1e3 >= SESSION_MS:
            raise ValueError(f"max_handling_s must be at least {SESSION_MS / 1e3:g}, the length of a session")

    def client_settings(self) -> dict[str, Any]:
        """Settings of the Kafka client."""
        settings: dict[str, Any] = {
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "max.poll.interval.ms": round(self.max_handling_s * 1e3),
            "queued.max.messages.kbytes": self.queue_kib,
        }
        if self.member is not None:
            settings["group.instance.id"] = self.member
        return settings
