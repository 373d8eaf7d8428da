"""Reads capacity events, and decodes only what is new: most heartbeats repeat what their host said before. Pure.

A body is the fields in their order, without names or lengths (Avro specification, "Binary encoding"):

    who                          | seq, event time | what
    frame, cell, host, epoch_ms  |                 | kind, offers, reason, reclaims

Where ``who`` and ``what`` are, byte for byte, those of the last event of that host, its fields have been decoded and
found within their bounds before; only the two numbers between them are read. Everything else takes the usual way, so
that a record is refused, or not, with the same reason as ever.
"""

from msgspec import Struct
from msgspec.structs import replace

from schemas.avro import schema_fingerprint
from schemas.framing import SINGLE_OBJECT_HEADER_BYTES, SINGLE_OBJECT_MARKER, Decoder
from schemas.records import CapacityEvent
from schemas.records.fields import MAX_TIME_MS

assert CapacityEvent.__struct_fields__[:5] == ("cell", "host", "epoch_ms", "seq", "event_time_ms")

_FRAME = SINGLE_OBJECT_MARKER + schema_fingerprint(CapacityEvent)
# Of encoded records, about 90,000 hosts of eight offers; decoded they take five times as much. Beyond that all are
# forgotten, and decoded once more.
MAX_REMEMBERED_BYTES = 64 << 20
# A number in more bytes than these is not within the bounds of any field.
_MAX_NUMBER_BYTES = 9
_MAX_SEQ = 2**62


class RepeatDecoder:
    """As `schemas.framing.Decoder`, but events that say the same share one list of offers. Nobody may change it."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._last: dict[bytes, tuple[bytes, CapacityEvent]] = {}
        self._num_bytes = 0

    def decode(self, value: bytes | None) -> Struct:
        """Record in ``value``; raises RecordError as `Decoder.decode` does."""
        if value is None or not value.startswith(_FRAME):
            return self._decoder.decode(value)
        try:
            who_end = _end_of_epoch(value)
            seq, time_start = _number(value, who_end)
            event_time_ms, what_start = _number(value, time_start)
        except _NotSplit:
            return self._decoder.decode(value)
        who, what = value[:who_end], value[what_start:]
        last = self._last.get(who)
        if last is not None and last[0] == what and seq <= _MAX_SEQ and event_time_ms <= MAX_TIME_MS:
            return replace(last[1], seq=seq, event_time_ms=event_time_ms)
        record = self._decoder.decode(value)
        if isinstance(record, CapacityEvent):
            self._remember(who, what, record)
        return record

    def _remember(self, who: bytes, what: bytes, record: CapacityEvent) -> None:
        last = self._last.get(who)
        self._num_bytes += len(what) - len(last[0]) if last is not None else len(who) + len(what)
        if self._num_bytes > MAX_REMEMBERED_BYTES:
            self._last.clear()
            self._num_bytes = len(who) + len(what)
        self._last[who] = (what, record)


class _NotSplit(Exception):
    """The bytes are not cut where they should be; the decoder says what is wrong with them, if anything is."""


def _end_of_epoch(value: bytes) -> int:
    """Where the body's third field ends: two strings and a number."""
    position = SINGLE_OBJECT_HEADER_BYTES
    for _ in range(2):
        length, position = _number(value, position)
        position += length
    return _number(value, position)[1]


def _number(value: bytes, position: int) -> tuple[int, int]:
    """A number that is not negative, and the position behind it: zigzag, seven bits a byte, lowest first."""
    number = shift = 0
    for byte in value[position : position + _MAX_NUMBER_BYTES]:
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            # Zigzag: an odd one is negative.
            if number & 1:
                break
            return number >> 1, position
        shift += 7
    raise _NotSplit
