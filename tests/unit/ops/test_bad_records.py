"""Bad records over all topics: each is refused with a reason that names the field, and comes back in once repaired."""

import json
from collections import Counter
from typing import Any

import pytest

from ops.dlq.letters import Letter
from ops.dlq.redrive import Redriven, Terms, judged, repaired_letters
from ops.dlq.view import content_of, lines, to_json
from ops.record_json import to_json as record_to_json
from schemas.dead_letters import RawRecord, envelope
from schemas.errors import RecordError
from schemas.framing import Decoder, decode_as, encode
from schemas.records import DeadLetter
from schemas.topics import FLEET_CAPACITY, RANKING_REQUESTS, Topic
from tests.unit.ops.bad_records import REFUSING, Bad, all_bad_records, bad_records, good, place, unchecked
from tests.unit.ops.dlq_makers import INTAKE, NOW_MS, event

# What is wrong with the record as a whole, or before its first field.
WITHOUT_FIELD = {"empty", "too_large", "bad_framing", "unknown_schema"}


def raw(bad: Bad, offset: int) -> RawRecord:
    return RawRecord(
        topic=bad.topic.name,
        partition=bad.partition,
        offset=offset,
        timestamp_ms=NOW_MS,
        timestamp_kind="append",
        key=bad.key,
        value=bad.value,
    )


def letter(bad: Bad, offset: int) -> Letter:
    """The dead letter that the topic's reader writes of it."""
    with pytest.raises(RecordError) as refused:
        INTAKE.check(bad.topic, raw(bad, offset))
    said = envelope(raw(bad, offset), refused.value, part="reader", stage="intake")
    # As it comes back from its topic.
    return Letter(partition=0, offset=offset, append_ms=NOW_MS, letter=decode_as(encode(said), DeadLetter))


def test_there_are_enough_of_them_on_every_topic() -> None:
    counts = Counter(bad.topic.name for bad in all_bad_records())
    assert set(counts) == {topic.name for topic in REFUSING}
    assert min(counts.values()) >= 20
    assert counts.total() >= 200


@pytest.mark.parametrize("topic", REFUSING, ids=lambda topic: topic.name)
def test_the_good_record_is_believed(topic: Topic) -> None:
    key, partition = place(topic, good(topic))
    record = raw(
        Bad(topic=topic, name="", key=key, partition=partition, value=encode(good(topic)), reasons=(), field=None), 1
    )
    assert INTAKE.check(topic, record) == good(topic)


@pytest.mark.parametrize("topic", REFUSING, ids=lambda topic: topic.name)
def test_each_is_refused_with_a_reason_that_names_the_field(topic: Topic) -> None:
    for offset, bad in enumerate(bad_records(topic)):
        found = letter(bad, offset)
        assert found.reason in bad.reasons, (bad.name, found)
        if bad.field is not None:
            assert found.field == bad.field, bad.name
        elif found.reason not in WITHOUT_FIELD:
            assert found.field, bad.name


@pytest.mark.parametrize("topic", REFUSING, ids=lambda topic: topic.name)
def test_each_is_shown_and_comes_back_in_once_repaired(topic: Topic) -> None:
    letters = [letter(bad, offset) for offset, bad in enumerate(bad_records(topic))]
    shown = [json.loads(json.dumps(to_json(found, topic, is_done=False))) for found in letters]
    for line, found in zip(shown, letters, strict=True):
        assert "\n".join(lines(found, topic, is_done=False))
        # A repair: whatever it was, it is the good record now.
        line["record"] = record_to_json(good(topic))
        line["type"] = None
    text = "\n".join(json.dumps(line) for line in shown).encode()
    terms = Terms(run="r1", repaired=repaired_letters(text, topic))
    decoder = Decoder(topic.record_types)
    for found in letters:
        record = judged(found, topic, INTAKE, terms, now_ms=NOW_MS)
        assert isinstance(record, Redriven), found
        assert decoder.decode(record.value) == good(topic)
        if topic.key != "none":
            assert (record.key, record.partition) == place(topic, good(topic))


def test_a_value_beyond_its_bounds_is_found_in_the_bytes() -> None:
    data = event(cell="us-east")
    value = encode(data).replace(b"off_peak", b"no_cause")
    bad = Bad(
        topic=FLEET_CAPACITY, name="", key=b"us-east", partition=0, value=value, reasons=("invalid_field",), field=None
    )
    content = content_of(letter(bad, 1), FLEET_CAPACITY)
    assert content.record is not None
    assert content.record["offers"][0]["idle_cause"] == "no_cause"
    (at,) = content.places
    assert at.path == "offers[0].idle_cause"
    # Behind its length.
    assert value[at.start + 1 : at.end] == b"no_cause"


def test_what_can_be_read_of_a_record_that_ends_too_early_is_shown_to_the_byte() -> None:
    value = encode(event())
    cut = value[: value.index(b"off_peak") + 3]
    bad = Bad(topic=FLEET_CAPACITY, name="", key=b"us-east", partition=0, value=cut, reasons=("truncated",), field=None)
    found = letter(bad, 1)
    content = content_of(found, FLEET_CAPACITY)
    assert content.record is None
    assert content.partial is not None
    assert content.partial["host"] == "h1"
    assert "idle_cause" not in content.partial["offers"][0]
    assert [at.path for at in content.places] == ["offers[0].idle_cause"]
    assert content.position == value.index(b"off_peak")
    text = "\n".join(lines(found, FLEET_CAPACITY, is_done=False))
    assert "offers[0].idle_cause" in text
    assert "[6f]" in text


def test_a_record_of_numbers_that_are_none_can_be_shown_and_repaired() -> None:
    data: dict[str, Any] = {
        field: getattr(good(RANKING_REQUESTS), field) for field in good(RANKING_REQUESTS).__struct_fields__
    }
    data["bids"] = b"\x00\x00\xc0\x7f" * (len(data["bids"]) // 4)
    key, partition = place(RANKING_REQUESTS, good(RANKING_REQUESTS))
    bad = Bad(
        topic=RANKING_REQUESTS,
        name="",
        key=key,
        partition=partition,
        value=unchecked(RANKING_REQUESTS.record_types[0], data),
        reasons=("invalid_field",),
        field="bids",
    )
    line = json.loads(json.dumps(to_json(letter(bad, 4), RANKING_REQUESTS, is_done=False), allow_nan=False))
    assert set(line["record"]["bids"]) == {"NaN"}
    line["record"]["bids"] = [0.5] * len(line["record"]["bids"])
    assert repaired_letters(json.dumps(line).encode(), RANKING_REQUESTS).keys() == {(0, 4)}
