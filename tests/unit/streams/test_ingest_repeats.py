"""Heartbeats that repeat are read without being decoded, and nobody can tell."""

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from schemas.errors import RecordError
from schemas.framing import Decoder, encode
from schemas.records import CapacityEvent
from schemas.topics import FLEET_CAPACITY
from streams.ingest import pools, repeats
from streams.ingest.capacity import CapacityCell
from streams.ingest.repeats import RepeatDecoder
from tests.unit.streams.ingest_logs import capacity_record
from tests.unit.streams.ingest_makers import LIMITS, TIME, capacity_of, event, offer


class CountingDecoder(Decoder):
    """Counts what is decoded in full."""

    def __init__(self) -> None:
        super().__init__(FLEET_CAPACITY.record_types)
        self.num_decoded = 0

    def decode(self, value: bytes | None) -> Struct:
        self.num_decoded += 1
        return super().decode(value)


def outcome(decoder: Decoder | RepeatDecoder, value: bytes | None) -> Any:
    try:
        return decoder.decode(value)
    except RecordError as error:
        return error.reason, str(error), error.field, error.position


def test_only_what_a_host_says_anew_is_decoded() -> None:
    plain = CountingDecoder()
    decoder = RepeatDecoder(plain)
    same = [event(seq=seq, at_ms=1_000 + seq, offers=[offer("h200", 2.0)]) for seq in (0, 1, 63, 64, 70_000, 2**40)]
    assert [decoder.decode(encode(record)) for record in same] == same
    assert plain.num_decoded == 1
    for other in (
        event(seq=9, at_ms=1_000, offers=[offer("h200", 2.5)]),
        event(seq=9, at_ms=1_000, offers=[offer("h200", 2.5)], kind="offer"),
        event(seq=9, at_ms=1_000, offers=[offer("h200", 2.5)], kind="offer", epoch_ms=5),
        event(seq=9, at_ms=1_000, offers=[offer("h200", 2.5)], kind="offer", epoch_ms=5, host="other"),
    ):
        num_before = plain.num_decoded
        assert decoder.decode(encode(other)) == other
        assert plain.num_decoded == num_before + 1


@settings(max_examples=300)
@given(seed=st.integers(0, 2**32))
def test_every_value_is_read_or_refused_as_by_the_plain_decoder(seed: int) -> None:
    """Few hosts that mostly repeat themselves, and bytes broken anywhere: in the frame, the numbers, what is said."""
    rng = random.Random(seed)
    plain, decoder = Decoder(FLEET_CAPACITY.record_types), RepeatDecoder(Decoder(FLEET_CAPACITY.record_types))
    said = [capacity_record(rng, 1_000) for _ in range(3)]
    for _ in range(30):
        record = rng.choice(said)
        numbers = {"seq": rng.choice((0, 1, 64, 2**31, 2**62)), "event_time_ms": rng.choice((0, 5, 2**41, 2**53))}
        value = encode(CapacityEvent(**{name: getattr(record, name) for name in record.__struct_fields__} | numbers))
        match rng.randrange(4):
            case 0:
                value = value[: rng.randrange(len(value) + 1)]
            case 1:
                place = rng.randrange(len(value))
                value = value[:place] + bytes([rng.randrange(256)]) + value[place + 1 :]
            case 2:
                value = (
                    value[:place] + rng.randbytes(2) + value[place:] if (place := rng.randrange(len(value))) else b""
                )
        assert outcome(decoder, value) == outcome(plain, value)


def test_what_is_remembered_is_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(repeats, "MAX_REMEMBERED_BYTES", 2_000)
    decoder = RepeatDecoder(Decoder(FLEET_CAPACITY.record_types))
    for number in range(100):
        decoder.decode(encode(event(host=f"h-{number}", at_ms=1_000, offers=[offer("h200", 1.0)])))
        held = sum(len(who) + len(what) for who, (what, _) in decoder._last.items())
        assert held == decoder._num_bytes <= 2_000


def test_words_that_nobody_says_any_more_are_forgotten_and_the_sums_stay(monkeypatch: Any) -> None:
    """Every window a new provider; hosts that stay, that fall silent, and one that counts anew from below."""
    monkeypatch.setattr(pools, "_MIN_GROUPS", 8)
    cell = CapacityCell(window_ms=TIME.window_ms, ttl_ms=TIME.host_ttl_ms)
    monkeypatch.setattr(cell._pools, "_max_groups", 8)
    numbered = []
    for window in range(10, 60):
        at_ms = window * TIME.window_ms
        for host, said in (("stays", "own"), ("changes", f"p-{window}"), (f"once-{window}", f"q-{window}")):
            record = event(host=host, seq=window, at_ms=at_ms, offers=[offer("h200", 1.0, provider=said)])
            cell.accept(record, window=window, append_ms=at_ms, late=False)
        (pool,) = capacity_of(cell.close(window, LIMITS)).pools
        # A host of one window lives for two: those of this window and of the one before.
        live = {"own", f"p-{window}", f"q-{window}", *([f"q-{window - 1}"] if window > 10 else [])}
        assert {label.label: label.units_micro for label in pool.providers} == dict.fromkeys(live, 1_000_000)
        assert (pool.num_hosts, pool.units_micro) == (len(live), len(live) * 1_000_000)
        numbered.append(len(cell._pools._groups))
    assert max(numbered) <= 8 + 2


def test_what_counts_again_after_its_words_were_forgotten_counts_as_what_it_said(monkeypatch: Any) -> None:
    """A record that belongs to a later window may have been appended before the one that it outranks meanwhile."""
    monkeypatch.setattr(pools, "_MIN_GROUPS", 2)
    cell = CapacityCell(window_ms=100, ttl_ms=250)
    monkeypatch.setattr(cell._pools, "_max_groups", 2)

    def providers_of(window: int, *said: tuple[str, int, int, str]) -> dict[str, int]:
        for host, seq, append_ms, provider in said:
            record = event(host=host, seq=seq, at_ms=window * 100, offers=[offer("h200", 1.0, provider=provider)])
            cell.accept(record, window=window, append_ms=append_ms, late=False)
        found = capacity_of(cell.close(window, LIMITS)).pools
        return {label.label: label.units_micro for pool in found for label in pool.providers}

    assert providers_of(8, ("goes", 1, 800, "first")) == {"first": 1_000_000}
    assert providers_of(10, ("h", 1, 1_099, "own")) == {"own": 1_000_000}
    # For one window a record of a later number counts; the other words take the numbers of those that are forgotten.
    both = {"other": 1_000_000, "third": 1_000_000}
    assert providers_of(11, ("h", 2, 1_000, "other"), ("stays", 1, 1_150, "third")) == both
    assert len(cell._pools._groups) == 2
    assert providers_of(12) == {"own": 1_000_000, "third": 1_000_000}
