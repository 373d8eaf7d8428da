"""What one host tells Kafka: numbered records, each a full snapshot of the idle capacity that it offers. Pure."""

from typing import Final, Literal

from schemas.records import CapacityEvent, Offer, ReclaimTiming

Kind = Literal["offer", "update", "reclaim", "heartbeat", "notice"]

# Readers refuse an epoch that is further in the future than INTERTIDAL_SKEW_MS, 5 s; clocks wander by less than this.
_SET_BACK_MS: Final = 2_000


class HostReporter:
    """Keeps the snapshot of one host and writes its next record.

    Within ``epoch_ms``, the agent's start, ``seq`` rises by one with each record. Offers are kept by pool; records list
    them by the pools' names, so that equal snapshots are equal records. A reclaim's timing waits here for the next
    record, whatever its kind.

    Where the wall clock is set back behind the epoch, a new one begins: readers would refuse an epoch in the future,
    and with it every record until that time has come. A clock that jumps and stays ahead of its epoch changes nothing.
    """

    def __init__(self, *, cell: str, host: str, epoch_ms: int) -> None:
        self.cell = cell
        self.host = host
        self._epoch_ms = epoch_ms
        self._seq = 0
        self._offers: dict[str, Offer] = {}
        self._completed: list[ReclaimTiming] = []

    def offered(self, pool: str) -> Offer | None:
        """What the host offers of a pool now; None when nothing."""
        return self._offers.get(pool)

    def put(self, pool: str, offer: Offer) -> None:
        """Offer capacity, or change what is offered of a pool."""
        self._offers[pool] = offer

    def withdraw(self, pool: str) -> None:
        """Offer nothing of a pool any more; without effect when nothing was."""
        self._offers.pop(pool, None)

    def completed(self, timing: ReclaimTiming) -> None:
        """Let the next record tell how a reclaim went."""
        self._completed.append(timing)

    @property
    def has_news(self) -> bool:
        """Whether a reclaim's timing waits for a record."""
        return bool(self._completed)

    def record(self, kind: Kind, *, now_ms: int, reason: str = "") -> CapacityEvent:
        """The host's next record."""
        if now_ms < self._epoch_ms - _SET_BACK_MS:
            self._epoch_ms, self._seq = now_ms, 0
        event = CapacityEvent(
            cell=self.cell,
            host=self.host,
            epoch_ms=self._epoch_ms,
            seq=self._seq,
            event_time_ms=now_ms,
            kind=kind,
            offers=[self._offers[pool] for pool in sorted(self._offers)],
            reason=reason,
            reclaims=self._completed,
        )
        self._seq += 1
        self._completed = []
        return event
