"""A dead letter: the record as it was, why it was refused, and a key that a crash does not change."""

from dataclasses import replace

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message

from schemas.dead_letters import ATTEMPT_HEADER, Headers, RawRecord, dead_letter_key, envelope
from schemas.errors import RecordError
from schemas.framing import DEAD_LETTER_MAX_BYTES, decode_as, encode
from schemas.kafka.dead_letters import dead_letter
from schemas.records import DeadLetter

ERROR = RecordError("bad_framing", "no frame", position=0)


def raw(headers: Headers = ()) -> RawRecord:
    return RawRecord(
        topic="control.windows",
        partition=3,
        offset=17,
        timestamp_ms=1_000,
        timestamp_kind="append",
        key=b"us-east",
        value=b"\x00\xff",
        headers=headers,
    )


def test_a_refused_record_is_enveloped_as_it_was() -> None:
    record = raw([("trace", b"t"), ("empty", None)])
    letter = decode_as(encode(envelope(record, ERROR, part="control", stage="window")), DeadLetter)
    assert (letter.topic, letter.partition, letter.offset) == ("control.windows", 3, 17)
    assert (letter.key, letter.value) == (b"us-east", b"\x00\xff")
    assert (letter.timestamp_ms, letter.timestamp_kind) == (1_000, "append")
    assert [(header.key, header.value) for header in letter.headers] == [("trace", b"t"), ("empty", None)]
    assert (letter.part, letter.stage, letter.reason, letter.position) == ("control", "window", "bad_framing", 0)
    assert dead_letter_key(letter) == b"control.windows/3/17"


def test_a_message_gives_the_letter_of_its_record() -> None:
    headers: list[tuple[str, bytes | None]] = [("trace", b"t"), ("empty", None), (ATTEMPT_HEADER, b"2")]
    message = Message(
        topic="control.windows",
        partition=3,
        offset=17,
        key=b"us-east",
        value=b"\x00\xff",
        headers=[*headers],
        timestamp=(TIMESTAMP_LOG_APPEND_TIME, 1_000),
    )
    assert dead_letter(message, ERROR, part="a", stage="b") == envelope(raw(headers), ERROR, part="a", stage="b")


@pytest.mark.parametrize(
    ("headers", "attempt"),
    [([], 0), ([(ATTEMPT_HEADER, b"2")], 2), ([(ATTEMPT_HEADER, b"-2")], 0), ([(ATTEMPT_HEADER, None)], 0)],
)
def test_the_attempt_is_what_the_redriven_record_says(headers: Headers, attempt: int) -> None:
    assert envelope(raw(headers), ERROR, part="control", stage="window").attempt == attempt


def test_an_error_that_says_too_much_still_makes_a_letter_that_can_be_read() -> None:
    error = RecordError("invalid_field", "x" * 9_000, field="y" * 900)
    letter = decode_as(encode(envelope(raw(), error, part="control", stage="window")), DeadLetter)
    assert (len(letter.field), len(letter.detail)) == (256, 4_096)


def test_a_number_of_attempts_that_no_integer_holds_is_none() -> None:
    letter = envelope(raw([("intertidal.attempt", b"9" * 20)]), RecordError("empty", "x"), part="p", stage="s")
    assert letter.attempt == 0
    assert decode_as(encode(letter), DeadLetter) == letter


def test_whatever_it_holds_a_letter_fits_its_topic_and_says_what_was_cut() -> None:
    record = replace(
        raw([(f"h{index}" * 600, b"v" * 100_000) for index in range(1_000)]), value=b"v" * (6 << 20), key=b"k" * 100_000
    )
    letter = envelope(record, RecordError("too_large", "6 MiB"), part="p", stage="s")
    encoded = encode(letter)
    assert len(encoded) < DEAD_LETTER_MAX_BYTES
    assert decode_as(encoded, DeadLetter) == letter
    assert letter.detail == (
        f"6 MiB (value cut from {6 << 20} bytes, key cut from 100000 bytes, headers cut, there were 1000)"
    )
