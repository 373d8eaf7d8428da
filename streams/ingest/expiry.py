"""The freshest records of a host, and the window in which each of them expires. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from schemas.records import Offer
from streams.ingest.sequence import Order


class Snapshot(Struct):
    """One accepted record of a host: its times, its place in the host's numbering, what the host offers.

    ``rows`` are its offers as they entered the sums; None as long as they did not.
    """

    append_ms: int
    event_ms: int
    order: Order
    offers: Sequence[Offer]
    rows: bytes | None = None

    @property
    def packed(self) -> bytes:
        """Its rows, once they are packed."""
        assert self.rows is not None
        return self.rows

    def outranks(self, other: "Snapshot") -> bool:
        """Whether ``other`` can never count again: this one is at least as far in the numbering and as fresh."""
        return self.append_ms >= other.append_ms and self.order >= other.order


def insert(front: list[Snapshot], snapshot: Snapshot) -> bool:
    """Put a snapshot among those of its host that may still count; returns False when it never can.

    The front is in order of append time, and the numbering falls along it, so that its first member that has not
    expired is what the host offers. It holds one snapshot unless a host starts to count anew.
    """
    if not front:
        front.append(snapshot)
        return True
    if len(front) == 1 and snapshot.outranks(front[0]):
        front[0] = snapshot
        return True
    if any(held.outranks(snapshot) for held in front):
        return False
    front[:] = [held for held in front if not snapshot.outranks(held)]
    front.append(snapshot)
    front.sort(key=lambda held: held.append_ms)
    return True


class ExpiryQueue:
    """Hosts by the window at whose end one of their snapshots is older than the time to live.

    A snapshot of append time ``a`` counts at a window's end ``E`` while ``a >= E - ttl_ms``; the first window in
    which it does not has the index floor((a + ttl_ms) / window_ms).
    """

    def __init__(self, *, ttl_ms: int, window_ms: int) -> None:
        self._ttl_ms = ttl_ms
        self._window_ms = window_ms
        self._hosts: dict[int, set[str]] = {}

    def add(self, host: str, append_ms: int) -> None:
        """Note that a snapshot of the host expires."""
        window = (append_ms + self._ttl_ms) // self._window_ms
        hosts = self._hosts.get(window)
        if hosts is None:
            hosts = self._hosts[window] = set()
        hosts.add(host)

    def due(self, window: int) -> set[str]:
        """Hosts of which a snapshot expires in the window; each window is asked for once, in order."""
        return self._hosts.pop(window, set())
