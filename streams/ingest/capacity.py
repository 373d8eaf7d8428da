"""Capacity of a cell: what its live hosts offer at each window's end. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from schemas.errors import RecordError
from schemas.framing import Decoder
from schemas.records import CapacityEvent, CapacityWindow, CellLimits
from schemas.settings import TimeSettings
from schemas.topics import FLEET_CAPACITY
from streams.ingest.aggregate import Closed
from streams.ingest.expiry import ExpiryQueue, Snapshot, insert
from streams.ingest.pools import Pools
from streams.ingest.repeats import RepeatDecoder

# One host's accelerator kinds, causes and providers; more is no host.
MAX_OFFERS = 256


class CapacityKind:
    """Events of ``fleet.capacity``."""

    name: Literal["capacity"] = "capacity"
    topic = FLEET_CAPACITY

    def decoder(self) -> RepeatDecoder:
        return RepeatDecoder(Decoder(self.topic.record_types))

    def believe(self, record: CapacityEvent) -> None:
        if len(record.offers) > MAX_OFFERS:
            raise RecordError(
                "invalid_field",
                f"{len(record.offers)} offers of one host, at most {MAX_OFFERS} are read",
                field="offers",
            )

    def source(self, record: CapacityEvent) -> str:
        return record.host

    def aggregate(self, time: TimeSettings) -> "CapacityCell":
        return CapacityCell(window_ms=time.window_ms, ttl_ms=time.host_ttl_ms)


class _Open:
    """One open window: its counts, and of each host the records that may count at its end."""

    __slots__ = ("fronts", "num_duplicates", "num_events", "num_late", "offers", "reclaims")

    def __init__(self) -> None:
        self.fronts: dict[str, list[Snapshot]] = {}
        self.num_events = 0
        self.num_duplicates = 0
        self.num_late = 0
        self.offers: Counter[str] = Counter()
        self.reclaims: Counter[str] = Counter()


class CapacityCell:
    """Windows of one cell's capacity.

    A host's state at the end ``E`` of window ``T`` is its record furthest in the numbering among the accepted ones
    that belong to windows up to ``T`` and were appended at ``E - ttl_ms`` or later; without one the host is silent.
    So what comes late still updates its host by its number, and the state depends on ``ttl_ms`` of the log alone.

    Per record O(1); per window the work is that of the hosts that sent something or of which a record expired. Offers
    are looked at when their window closes, all hosts' together, and only where they are not what the host said before.
    Counts of a window: ``num_events`` accepted records, ``num_late`` of them late, ``num_offers`` accepted events of
    kind ``offer`` that name the pool, ``num_reclaims`` reclaims reported complete.
    """

    def __init__(self, *, window_ms: int, ttl_ms: int) -> None:
        self._window_ms = window_ms
        self._ttl_ms = ttl_ms
        self._open: dict[int, _Open] = {}
        self._hosts: dict[str, list[Snapshot]] = {}
        self._expiry = ExpiryQueue(ttl_ms=ttl_ms, window_ms=window_ms)
        self._pools = Pools()

    def accept(self, record: CapacityEvent, *, window: int, append_ms: int, late: bool) -> None:
        open_window = self._opened(window)
        open_window.num_events += 1
        open_window.num_late += late
        snapshot = Snapshot(append_ms, (record.epoch_ms, record.seq), record.offers)
        front = open_window.fronts.get(record.host)
        if front is None:
            open_window.fronts[record.host] = [snapshot]
        else:
            insert(front, snapshot)
        if record.kind == "offer":
            open_window.offers.update({offer.accelerator for offer in record.offers})
        for timing in record.reclaims:
            open_window.reclaims[timing.accelerator] += 1

    def count_duplicate(self, window: int) -> None:
        self._opened(window).num_duplicates += 1

    def close(self, window: int, limits: CellLimits) -> Closed:
        closed = self._open.pop(window, None) or _Open()
        num_silent = self._advance(window, closed.fronts)
        return Closed(
            capacity=CapacityWindow(
                limits=limits,
                pools=self._pools.windows(num_offers=closed.offers, num_reclaims=closed.reclaims),
                num_hosts=len(self._hosts),
                num_hosts_silent=num_silent,
                num_events=closed.num_events,
                num_duplicates=closed.num_duplicates,
                num_late=closed.num_late,
            )
        )

    def _opened(self, window: int) -> _Open:
        open_window = self._open.get(window)
        if open_window is None:
            open_window = self._open[window] = _Open()
        return open_window

    def _advance(self, window: int, fronts: dict[str, list[Snapshot]]) -> int:
        """Bring every host that changed to the window's end; returns how many fell silent."""
        oldest_ms = (window + 1) * self._window_ms - self._ttl_ms
        num_silent = 0
        gone: list[bytes | None] = []
        come: list[Snapshot] = []
        for host in fronts.keys() | self._expiry.due(window):
            before, after = self._renew(host, fronts.get(host, ()), oldest_ms)
            if before is after:
                continue
            if after is None:
                num_silent += 1
            elif before is not None and after.offers is before.offers:
                # A heartbeat mostly repeats what its host said before, and is then decoded once.
                after.rows = before.rows
                continue
            else:
                come.append(after)
            if before is not None:
                gone.append(before.rows)
        self._count(gone, come)
        return num_silent

    def _renew(self, host: str, front: Sequence[Snapshot], oldest_ms: int) -> tuple[Snapshot | None, Snapshot | None]:
        """Bring one host to a window's end; returns what counted of it before and what counts now."""
        held = self._hosts.get(host) or []
        before = held[0] if held else None
        for snapshot in front:
            if snapshot.append_ms >= oldest_ms and insert(held, snapshot):
                self._expiry.add(host, snapshot.append_ms)
        while held and held[0].append_ms < oldest_ms:
            del held[0]
        if held:
            self._hosts[host] = held
            return before, held[0]
        self._hosts.pop(host, None)
        return before, None

    def _count(self, gone: Iterable[bytes | None], come: Sequence[Snapshot]) -> None:
        """Take away and add rows; those that come are packed first, unless they counted at some time before."""
        unpacked = [snapshot for snapshot in come if snapshot.rows is None]
        for snapshot, rows in zip(unpacked, self._pools.pack([snapshot.offers for snapshot in unpacked]), strict=True):
            snapshot.rows = rows
        self._pools.update(gone=filter(None, gone), come=[snapshot.rows or b"" for snapshot in come])
        if self._pools.is_full:
            self._renumber()

    def _renumber(self) -> None:
        for held in self._hosts.values():
            # What stopped counting keeps rows of the old numbering: it is packed again should it ever count again.
            for snapshot in held[1:]:
                snapshot.rows = None
        counting = [held[0] for held in self._hosts.values()]
        for snapshot, rows in zip(counting, self._pools.renumber([s.rows or b"" for s in counting]), strict=True):
            snapshot.rows = rows
