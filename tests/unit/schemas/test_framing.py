"""What a reader makes of bytes that are not what they should be: a reason, a field, a position, never a crash."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.avro import avro_schema, encode_body, parsed_schema, schema_fingerprint
from schemas.errors import RecordError
from schemas.framing import MAX_RECORD_BYTES, Decoder, decode_as, encode
from schemas.records import CapacityEvent, ClockRecord, Offer, RankingRequest

EVENT = CapacityEvent(
    cell="us-east",
    host="host-1",
    epoch_ms=1,
    seq=2,
    event_time_ms=3,
    kind="heartbeat",
    offers=[Offer(accelerator="h100", units=1.0, cpu_cores=2.0, memory_bytes=3, idle_cause="off_peak")],
)


def refused(value: bytes | None, decoder: Decoder | None = None) -> RecordError:
    with pytest.raises(RecordError) as caught:
        (decoder or Decoder([CapacityEvent, ClockRecord])).decode(value)
    return caught.value


def detail_of(value: bytes) -> str | None:
    """Why a value cannot be read; None when it can be."""
    try:
        Decoder([CapacityEvent, ClockRecord]).decode(value)
    except RecordError as error:
        return error.detail
    return None


def test_both_record_types_of_a_topic_are_told_apart() -> None:
    decoder = Decoder([CapacityEvent, ClockRecord])
    assert decoder.decode(encode(EVENT)) == EVENT
    assert decoder.decode(encode(ClockRecord(writer="w"))) == ClockRecord(writer="w")


def test_fingerprint_is_the_one_of_the_avro_specification() -> None:
    # The specification's own test vector: CRC-64-AVRO of "null" is 63dd24e7cc258f8a, little-endian on the wire.
    from fastavro.schema import fingerprint

    assert bytes.fromhex(fingerprint('"null"', "CRC-64-AVRO")) == bytes.fromhex("63dd24e7cc258f8a")[::-1]
    assert encode(EVENT)[2:10] == schema_fingerprint(CapacityEvent)


@pytest.mark.parametrize("value", [None, b""])
def test_empty(value: bytes | None) -> None:
    assert refused(value).reason == "empty"


def test_too_large_is_refused_before_it_is_read() -> None:
    assert refused(b"\xc3\x01" + b"x" * MAX_RECORD_BYTES).reason == "too_large"


def test_bad_framing_names_the_position() -> None:
    error = refused(b"{'json': 1}")
    assert (error.reason, error.position) == ("bad_framing", 0)


def test_unknown_schema() -> None:
    error = refused(b"\xc3\x01" + b"12345678" + b"body")
    assert (error.reason, error.position) == ("unknown_schema", 2)


def test_schema_of_another_topic_is_unknown_here() -> None:
    assert refused(encode(EVENT), Decoder([ClockRecord])).reason == "unknown_schema"


def test_confluent_framing_is_recognised_without_a_registry() -> None:
    error = refused(b"\x00\x00\x00\x00\x07" + encode_body(EVENT))
    assert error.reason == "unknown_schema"
    assert "schema id 7" in error.detail


def test_confluent_framing_gives_the_same_record() -> None:
    decoder = Decoder([CapacityEvent], schema_by_id=lambda schema_id: ("CapacityEvent", parsed_schema(CapacityEvent)))
    assert decoder.decode(b"\x00\x00\x00\x00\x07" + encode_body(EVENT)) == EVENT


@given(st.integers(min_value=0, max_value=len(encode(EVENT)) - 1))
def test_each_truncation_is_refused(length: int) -> None:
    assert refused(encode(EVENT)[:length]).reason in {"empty", "truncated", "malformed", "invalid_field", "bad_framing"}


def test_bytes_behind_the_record_are_refused_with_their_position() -> None:
    error = refused(encode(EVENT) + b"!")
    assert (error.reason, error.position) == ("malformed", len(encode(EVENT)))


@given(st.binary(max_size=200))
def test_noise_never_raises_anything_else(noise: bytes) -> None:
    for value in (noise, b"\xc3\x01" + schema_fingerprint(CapacityEvent) + noise):
        assert detail_of(value) != ""


@pytest.mark.parametrize(
    ("units", "field"),
    [(float("nan"), "offers[0].units"), (float("inf"), "offers[0].units"), (-1.0, "offers[0].units")],
)
def test_unbelievable_units_name_the_field(units: float, field: str) -> None:
    offer = Offer(accelerator="h100", units=units, cpu_cores=2.0, memory_bytes=3, idle_cause="off_peak")
    event = CapacityEvent(
        cell="us-east", host="h", epoch_ms=1, seq=2, event_time_ms=3, kind="heartbeat", offers=[offer]
    )
    error = refused(encode(event))
    assert (error.reason, error.field) == ("invalid_field", field)


def test_unknown_word_of_a_vocabulary_names_the_field() -> None:
    body = encode(EVENT).replace(b"heartbeat", b"hartbreak")
    error = refused(body)
    assert (error.reason, error.field) == ("invalid_field", "kind")


def test_arrays_of_different_length_name_the_field() -> None:
    good = RankingRequest(
        request_id="r",
        user_id="u",
        cell="c",
        intake_ms=1,
        deadline_ms=2,
        num_base_candidates=1,
        num_results=1,
        ad_ids=bytes(8),
        bids=bytes(4),
        retrieval_scores=bytes(4),
        user_features=bytes(4),
    )
    # Avro bytes: the length (4, zigzag 8) before the four bytes of `bids`; make them eight.
    body = encode(good)
    prefix = b"\x10" + bytes(8)
    assert body.count(prefix + b"\x08" + bytes(4)) == 1
    broken = body.replace(prefix + b"\x08" + bytes(4), prefix + b"\x10" + bytes(8))
    with pytest.raises(RecordError) as caught:
        decode_as(broken, RankingRequest)
    assert (caught.value.reason, caught.value.field) == ("length_mismatch", "bids")


def test_schema_holds_the_documentation() -> None:
    assert avro_schema(CapacityEvent)["doc"].startswith("State of one host's idle capacity")
