"""What is wrong with the capacity events of a range of ``fleet.capacity``, rule by rule and host by host. Pure.

Whether a record is read and believed is judged by ingest's own processor; what ingest does not mind, or cannot see, is
judged here: numbering, snapshots, beats, one agent a host.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ops.agent.check_document import Broken, CheckDocument, Example, HostSeen, Rule
from schemas.errors import RecordError
from schemas.framing import Decoder
from schemas.records import CapacityEvent, Offer
from schemas.settings import TimeSettings
from schemas.topics import FLEET_CAPACITY
from streams.ingest.capacity import CapacityKind
from streams.ingest.cells import Cells
from streams.ingest.partition import PartitionProcessor, RawRecord

_RULE_OF_REASON: Final[Mapping[str, Rule]] = {
    "key_mismatch": "key",
    "wrong_partition": "partition",
    "invalid_field": "value",
    "length_mismatch": "value",
    "unknown_cell": "cell",
    "future_event": "times",
}
# Of one host and rule: what comes behind is counted.
_MAX_EXAMPLES: Final = 3
# What is told of numbers that were seen is told of so many records back.
_REMEMBERED: Final = 256


@dataclass(slots=True)
class _Epoch:
    """An epoch of a host, the ``begun``th in the log: what it said last, and digests of its last records by number.

    ``offers`` is None where the record before is not known.
    """

    begun: int

    next_seq: int
    event_time_ms: int
    offers: list[Offer] | None = None
    digests: dict[int, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class _Host:
    seen: HostSeen
    append_ms: int
    epochs: dict[int, _Epoch] = field(default_factory=dict)
    newest_epoch_ms: int = -1


class Conformance:
    """Takes records in the order of each partition; what is broken is known at any time.

    ``num_partitions`` is the topic's; ``since_ms`` where the range begins, before which nothing is known. Without
    ``cells`` every cell counts as declared.
    """

    def __init__(
        self, *, time: TimeSettings, num_partitions: int, cells: Cells | None, since_ms: int = 0, host: str = ""
    ) -> None:
        self._time = time
        self._num_partitions = num_partitions
        self._cells = cells if cells is not None else Cells(window_ms=time.window_ms)
        self._is_cell_checked = cells is not None
        self._since_ms = since_ms
        self._only = host
        self._processors: dict[int, PartitionProcessor] = {}
        self._decoder = Decoder(FLEET_CAPACITY.record_types)
        self._hosts: dict[tuple[str, str], _Host] = {}
        self._broken: dict[tuple[str, str, Rule], Broken] = {}
        self._num_records = 0

    def see(self, partition: int, raw: RawRecord) -> None:
        """Take the next record of a partition."""
        refusals = self._processor(partition).process([raw]).refusals
        error = refusals[0].error if refusals else None
        try:
            record = self._decoder.decode(raw.value)
        except RecordError as refused:
            if not self._only:
                cell = (raw.key or b"").decode("utf-8", "replace")
                self._num_records += 1
                self._break("", cell, _rule_of(refused), partition, raw.offset, str(refused))
            return
        if not isinstance(record, CapacityEvent) or (self._only and record.host != self._only):
            return
        self._num_records += 1
        if error is not None and (self._is_cell_checked or error.reason != "unknown_cell"):
            self._break(record.host, record.cell, _rule_of(error), partition, raw.offset, str(error))
        self._judge(record, partition, raw)

    def document(self) -> CheckDocument:
        """All that is known."""
        return CheckDocument(
            is_conformant=not self._broken,
            num_records=self._num_records,
            hosts=[self._hosts[place].seen for place in sorted(self._hosts)],
            broken=[self._broken[place] for place in sorted(self._broken)],
        )

    def _processor(self, partition: int) -> PartitionProcessor:
        if partition not in self._processors:
            self._processors[partition] = PartitionProcessor(
                CapacityKind(),
                partition,
                num_partitions=self._num_partitions,
                time=self._time,
                cells=self._cells,
            )
        return self._processors[partition]

    def _judge(self, record: CapacityEvent, partition: int, raw: RawRecord) -> None:
        place = (record.cell, record.host)
        host = self._hosts.get(place)
        if host is None:
            seen = HostSeen(
                host=record.host,
                cell=record.cell,
                num_records=0,
                num_repeats=0,
                num_epochs=0,
                num_missing=0,
                longest_silence_ms=0,
            )
            host = self._hosts[place] = _Host(seen, raw.append_ms)
        host.seen.num_records += 1
        found = _Found(self, record, partition, raw.offset)
        self._judge_silence(host, raw, found)
        epoch = self._epoch(host, record, found)
        is_new = self._judge_sequence(host, epoch, record, raw, found)
        if is_new:
            if record.event_time_ms < epoch.event_time_ms - self._time.skew_ms:
                found.broken("times", f"event_time_ms goes back by {epoch.event_time_ms - record.event_time_ms} ms")
            epoch.event_time_ms = record.event_time_ms
            if record.epoch_ms > record.event_time_ms + self._time.skew_ms:
                ahead_ms = record.epoch_ms - record.event_time_ms
                found.broken("epoch", f"epoch_ms is {ahead_ms} ms later than the record's own time")
            self._judge_snapshot(epoch, record, found)

    def _judge_silence(self, host: _Host, raw: RawRecord, found: "_Found") -> None:
        silent_ms = raw.append_ms - host.append_ms
        host.append_ms = raw.append_ms
        host.seen.longest_silence_ms = max(host.seen.longest_silence_ms, silent_ms)
        if silent_ms > self._time.host_ttl_ms:
            limit = f"its time to live is {self._time.host_ttl_ms} ms"
            found.broken("heartbeat", f"nothing was heard for {silent_ms} ms; {limit}")

    def _epoch(self, host: _Host, record: CapacityEvent, found: "_Found") -> _Epoch:
        epoch = host.epochs.get(record.epoch_ms)
        if epoch is None:
            host.seen.num_epochs += 1
            # A first number above 0 is one that was seen before the range began, if its epoch did.
            first = 0 if record.epoch_ms >= self._since_ms + self._time.skew_ms else record.seq
            epoch = host.epochs[record.epoch_ms] = _Epoch(host.seen.num_epochs, first, record.event_time_ms)
            if record.epoch_ms < host.newest_epoch_ms:
                found.broken("epoch", f"epoch_ms went back from {host.newest_epoch_ms} to {record.epoch_ms}")
        elif epoch.begun < host.seen.num_epochs and record.seq >= epoch.next_seq:
            # What a spool still held would have come before the next epoch began, not after.
            found.broken("one_agent", f"epoch {record.epoch_ms} goes on after another one has begun")
        host.newest_epoch_ms = max(host.newest_epoch_ms, record.epoch_ms)
        return epoch

    def _judge_sequence(
        self, host: _Host, epoch: _Epoch, record: CapacityEvent, raw: RawRecord, found: "_Found"
    ) -> bool:
        """Whether the number is new."""
        digest = hashlib.blake2b(raw.value or b"", digest_size=8).digest()
        if record.seq < epoch.next_seq:
            before = epoch.digests.get(record.seq)
            if before is not None and before != digest:
                found.broken("sequence", f"number {record.seq} was another record before")
            elif before is None and record.seq + _REMEMBERED >= epoch.next_seq:
                found.broken("sequence", f"number {record.seq} comes after {epoch.next_seq - 1}")
            else:
                host.seen.num_repeats += 1
            return False
        if record.seq > epoch.next_seq:
            num_missing = record.seq - epoch.next_seq
            host.seen.num_missing += num_missing
            epoch.offers = None
            found.broken(
                "sequence", f"{num_missing} records before number {record.seq} are missing: lost, or dropped by a spool"
            )
        epoch.next_seq = record.seq + 1
        epoch.digests[record.seq] = digest
        epoch.digests.pop(record.seq - _REMEMBERED, None)
        return True

    def _judge_snapshot(self, epoch: _Epoch, record: CapacityEvent, found: "_Found") -> None:
        if record.kind == "offer" and not record.offers:
            found.broken("snapshot", "an offer that offers nothing")
        if record.kind == "heartbeat" and epoch.offers is not None and _sorted(record.offers) != _sorted(epoch.offers):
            was, now = len(epoch.offers), len(record.offers)
            found.broken("snapshot", f"a heartbeat says other than the record before it ({was} offers, then {now})")
        epoch.offers = record.offers

    def _break(self, host: str, cell: str, rule: Rule, partition: int, offset: int, detail: str) -> None:
        place = (cell, host, rule)
        broken = self._broken.get(place)
        if broken is None:
            broken = self._broken[place] = Broken(host=host, cell=cell, rule=rule, num_records=0, examples=[])
        broken.num_records += 1
        if len(broken.examples) < _MAX_EXAMPLES:
            broken.examples.append(Example(partition=partition, offset=offset, detail=detail))


@dataclass(frozen=True, slots=True)
class _Found:
    """Where the record that is judged stands."""

    conformance: Conformance
    record: CapacityEvent
    partition: int
    offset: int

    def broken(self, rule: Rule, detail: str) -> None:
        record = self.record
        self.conformance._break(record.host, record.cell, rule, self.partition, self.offset, detail)


def _rule_of(error: RecordError) -> Rule:
    return _RULE_OF_REASON.get(error.reason, "framing")


def _sorted(offers: list[Offer]) -> list[Offer]:
    """In an order that agents need not keep."""
    return sorted(offers, key=repr)
