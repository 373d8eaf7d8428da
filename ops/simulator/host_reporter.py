"""What one host tells Kafka: numbered records, each a full snapshot of the idle capacity that it offers. Pure."""

from typing import Literal

from schemas.records import CapacityEvent, Offer, ReclaimTiming

Kind = Literal["offer", "update", "reclaim", "heartbeat", "notice"]


class HostReporter:
    """Keeps the snapshot of one host and writes its next record.

    Within ``epoch_ms``, the agent's start, ``seq`` rises by one with each record. Offers are kept by accelerator
    kind; records list them by name, so that equal snapshots are equal records. A reclaim's timing waits here for
    the next record, whatever its kind.
    """

    def __init__(self, *, cell: str, host: str, epoch_ms: int) -> None:
        self.cell = cell
        self.host = host
        self._epoch_ms = epoch_ms
        self._seq = 0
        self._offers: dict[str, Offer] = {}
        self._completed: list[ReclaimTiming] = []

    def offered(self, accelerator: str) -> Offer | None:
        """What the host offers of an accelerator kind now; None when nothing."""
        return self._offers.get(accelerator)

    def put(self, offer: Offer) -> None:
        """Offer capacity, or change what is offered of its accelerator kind."""
        self._offers[offer.accelerator] = offer

    def withdraw(self, accelerator: str) -> None:
        """Offer nothing of an accelerator kind any more; without effect when nothing was."""
        self._offers.pop(accelerator, None)

    def completed(self, timing: ReclaimTiming) -> None:
        """Let the next record tell how a reclaim went."""
        self._completed.append(timing)

    @property
    def has_news(self) -> bool:
        """Whether a reclaim's timing waits for a record."""
        return bool(self._completed)

    def record(self, kind: Kind, *, now_ms: int, reason: str = "") -> CapacityEvent:
        """The host's next record."""
        event = CapacityEvent(
            cell=self.cell,
            host=self.host,
            epoch_ms=self._epoch_ms,
            seq=self._seq,
            event_time_ms=now_ms,
            kind=kind,
            offers=[self._offers[accelerator] for accelerator in sorted(self._offers)],
            reason=reason,
            reclaims=self._completed,
        )
        self._seq += 1
        self._completed = []
        return event
