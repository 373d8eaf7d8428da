"""Capacity of a cell: what its live hosts offer at each window's end. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from schemas.errors import RecordError
from schemas.framing import Decoder
from schemas.records import CapacityEvent, CapacityWindow, CellLimits
from schemas.settings import TimeSettings
from schemas.topics import FLEET_CAPACITY
from streams.ingest.aggregate import Closed, NumberedKind
from streams.ingest.expiry import ExpiryQueue, Snapshot, insert
from streams.ingest.losses import Losses, Step
from streams.ingest.pool import Events
from streams.ingest.pools import Pools
from streams.ingest.repeats import RepeatDecoder

# One host's accelerator kinds, causes and providers; more is no host.
MAX_OFFERS = 256
# Records of one host and window whose losses are told one by one; of a host that changes its mind more often than that,
# the rest is told by what it offers at the window's end.
MAX_STEPS = 64
# What takes capacity back says so. Other records repeat or add: what comes and goes between them goes unseen.
_TAKES = frozenset(("reclaim", "update"))


class CapacityKind(NumberedKind):
    """Events of ``fleet.capacity``."""

    name: Literal["capacity"] = "capacity"
    topic = FLEET_CAPACITY

    def decoder(self) -> RepeatDecoder:
        return RepeatDecoder(Decoder(self.topic.record_types))

    def believe(self, record: CapacityEvent, time: TimeSettings) -> None:
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
    """One open window: its counts, of each host the records that may count at its end, and those on the way there."""

    __slots__ = ("fronts", "num_duplicates", "num_events", "num_late", "offers", "reclaims", "steps")

    def __init__(self) -> None:
        self.fronts: dict[str, list[Snapshot]] = {}
        self.steps: dict[str, list[Snapshot]] = {}
        self.num_events = 0
        self.num_duplicates = 0
        self.num_late = 0
        self.offers: Counter[str] = Counter()
        self.reclaims: Counter[str] = Counter()


class _Path(NamedTuple):
    """A host's way through a window: what counted at its start, its steps, what counts at its end."""

    before: Snapshot | None
    between: Sequence[Snapshot]
    after: Snapshot | None

    def snapshots(self) -> Iterator[Snapshot]:
        """Everything on the way."""
        if self.before is not None:
            yield self.before
        yield from self.between
        if self.after is not None:
            yield self.after

    def steps(self, end_ms: int) -> Iterator[Step]:
        """From each to the next; packed."""
        for one, next_one in pairwise(self.snapshots()):
            yield Step(one.packed, next_one.packed, next_one.event_ms)
        if self.after is None:
            *_, last = self.snapshots()
            yield Step(last.packed, None, end_ms)


class CapacityCell:
    """Windows of one cell's capacity.

    A host's state at the end ``E`` of window ``T`` is its record furthest in the numbering among the accepted ones
    that belong to windows up to ``T`` and were appended at ``E - ttl_ms`` or later; without one the host is silent.
    So what comes late still updates its host by its number, and the state depends on ``ttl_ms`` of the log alone.

    Per record O(1); per window the work is that of the hosts that sent something or of which a record expired. Offers
    are looked at when their window closes, all hosts' together, and only where they are not what the host said before.
    Counts of a window: ``num_events`` accepted records, ``num_late`` of them late, ``num_offers`` accepted events of
    kind ``offer`` that name the pool, ``num_reclaims`` reclaims reported complete.

    What a host lost inside a window is told by its steps through it (`streams.ingest.losses`): from what counted at the
    window's start through every accepted ``update`` and ``reclaim`` of the window and the record right before it there,
    in the order of their numbers, to what counts at its end. So an offer that came and went between two windows' ends
    is told too. A step's time is its record's event time; a host that fell silent did so at the window's end.
    """

    def __init__(self, *, window_ms: int, ttl_ms: int) -> None:
        self._window_ms = window_ms
        self._ttl_ms = ttl_ms
        self._open: dict[int, _Open] = {}
        self._hosts: dict[str, list[Snapshot]] = {}
        self._expiry = ExpiryQueue(ttl_ms=ttl_ms, window_ms=window_ms)
        self._pools = Pools(window_ms=window_ms)

    def accept(self, record: CapacityEvent, *, window: int, append_ms: int, late: bool) -> None:
        open_window = self._opened(window)
        open_window.num_events += 1
        open_window.num_late += late
        snapshot = Snapshot(append_ms, record.event_time_ms, (record.epoch_ms, record.seq), record.offers)
        front = open_window.fronts.get(record.host)
        if record.kind in _TAKES:
            steps = open_window.steps.setdefault(record.host, [])
            if len(steps) < MAX_STEPS:
                # The front's last is the record before: append times rise, and no duplicate comes here.
                steps += [snapshot] if front is None else [front[-1], snapshot]
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
        paths = self._advance(window, closed)
        losses = self._count((window + 1) * self._window_ms, paths)
        events = Events(closed.offers, closed.reclaims, losses)
        return Closed(
            capacity=CapacityWindow(
                limits=limits,
                pools=self._pools.windows(events),
                num_hosts=len(self._hosts),
                num_hosts_silent=sum(path.after is None for path in paths),
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

    def _advance(self, window: int, closed: _Open) -> list[_Path]:
        """Bring every host to the window's end; returns the paths of those that changed."""
        oldest_ms = (window + 1) * self._window_ms - self._ttl_ms
        paths: list[_Path] = []
        for host in closed.fronts.keys() | self._expiry.due(window):
            before, after = self._renew(host, closed.fronts.get(host, ()), oldest_ms)
            if before is after:
                continue
            steps = closed.steps.get(host)
            if before is not None and after is not None and after.offers is before.offers and steps is None:
                # A heartbeat mostly repeats what its host said before, and is then decoded once.
                after.rows = before.rows
            else:
                paths.append(_Path(before, _between(before, steps, after) if steps else (), after))
        return paths

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

    def _count(self, end_ms: int, paths: Sequence[_Path]) -> Losses:
        """Take away and add rows, and returns what was lost; rows that never counted are packed first."""
        unpacked = [snapshot for path in paths for snapshot in path.snapshots() if snapshot.rows is None]
        for snapshot, rows in zip(unpacked, self._pools.pack([snapshot.offers for snapshot in unpacked]), strict=True):
            snapshot.rows = rows
        # A host that is new has no way behind it.
        ways = [path for path in paths if path.before is not None or path.between]
        losses = self._pools.losses([step for path in ways for step in path.steps(end_ms)])
        self._pools.update(
            end_ms,
            gone=[path.before.packed for path in paths if path.before is not None],
            come=[path.after.packed for path in paths if path.after is not None],
        )
        if self._pools.is_full:
            self._renumber()
        return losses

    def _renumber(self) -> None:
        for held in self._hosts.values():
            # What stopped counting keeps rows of the old numbering: it is packed again should it ever count again.
            for snapshot in held[1:]:
                snapshot.rows = None
        counting = [held[0] for held in self._hosts.values()]
        for snapshot, rows in zip(counting, self._pools.renumber([s.rows or b"" for s in counting]), strict=True):
            snapshot.rows = rows


def _between(before: Snapshot | None, steps: Sequence[Snapshot], after: Snapshot | None) -> Sequence[Snapshot]:
    """Steps of a host between what counted of it and what counts, in the order of its numbering."""
    return sorted(
        (
            step
            for step in steps
            if (before is None or step.order > before.order) and (after is None or step.order < after.order)
        ),
        key=lambda step: step.order,
    )
