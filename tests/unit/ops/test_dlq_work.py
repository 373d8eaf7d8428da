"""Redriving and discarding dead letters: nothing lost, nothing twice, killed at any step."""

import json
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops import cli
from ops.dlq import work
from ops.dlq.groups import grouped
from ops.dlq.letters import Letter
from ops.dlq.marks import MarksError, read_back
from ops.dlq.redrive import (
    APPENDED_HEADER,
    REDRIVE_HEADER,
    Redriven,
    Stays,
    Terms,
    judged,
    repaired_letters,
)
from ops.dlq.view import to_json
from ops.dlq.work import MarksFullError, Outcome, Redrive, UnfinishedRunError, discard, plan, redrive, unfinished
from ops.replay.pace import Pace
from schemas.dead_letters import ATTEMPT_HEADER, MAX_KEPT_BYTES, RawRecord, envelope
from schemas.errors import RecordError
from schemas.framing import Decoder, encode
from schemas.partition import partition_for
from schemas.records import CapacityEvent
from schemas.topics import CONTROL_WINDOWS, FLEET_CAPACITY
from tests.unit.ops.dlq_makers import (
    HOME,
    INTAKE,
    NOW_MS,
    KilledError,
    MemoryLog,
    event,
    garbage,
    letter,
    undeclared,
)
from tests.unit.streams.control_makers import command_window


def redrive_of(run: str = "r1", **terms: Any) -> Redrive:
    return Redrive(
        topic=FLEET_CAPACITY,
        intake=INTAKE,
        terms=Terms(run=run, **terms),
        chosen=lambda _: True,
        now_ms=lambda: NOW_MS,
    )


def go(log: MemoryLog, run: str = "r1", **terms: Any) -> Outcome:
    marks = log.marks()
    begun = unfinished(marks)
    pace = Pace(0.0, clock_s=lambda: 0.0, sleep=lambda _: None)
    return redrive(
        log, marks, redrive_of(run if begun is None else begun.name, **terms), topic="fleet.capacity", pace=pace
    )


def hosts(log: MemoryLog) -> list[str]:
    decoder = Decoder(FLEET_CAPACITY.record_types)
    found = []
    for sent in log.sent:
        record = decoder.decode(sent.value)
        assert isinstance(record, CapacityEvent)
        found.append(record.host)
    return found


def verdict(found: Letter, **terms: Any) -> Redriven | Stays:
    return judged(found, FLEET_CAPACITY, INTAKE, Terms(run="r1", **terms), now_ms=NOW_MS)


def test_a_record_that_is_believed_by_now_goes_back_as_it_was() -> None:
    found = undeclared(7, headers=[("trace", b"t"), ("empty", None)])
    assert found.letter is not None
    record = verdict(found)
    assert isinstance(record, Redriven)
    assert (record.key, record.value, record.partition) == (b"us-east", found.letter.value, HOME)
    assert list(record.headers) == [
        ("trace", b"t"),
        ("empty", None),
        (ATTEMPT_HEADER, b"1"),
        (REDRIVE_HEADER, b"r1/0/7"),
        (APPENDED_HEADER, str(NOW_MS - 5_000).encode()),
    ]


def test_attempts_are_counted_and_bounded_and_the_first_append_time_is_kept() -> None:
    headers = [(ATTEMPT_HEADER, b"2"), (REDRIVE_HEADER, b"r0/0/3"), (APPENDED_HEADER, b"17")]
    record = verdict(undeclared(7, headers=headers))
    assert isinstance(record, Redriven)
    assert dict(record.headers) == {ATTEMPT_HEADER: b"3", REDRIVE_HEADER: b"r1/0/7", APPENDED_HEADER: b"17"}
    stays = verdict(undeclared(7, headers=[(ATTEMPT_HEADER, b"3")]))
    assert isinstance(stays, Stays)
    assert stays.why == "attempts"
    assert isinstance(verdict(undeclared(7, headers=[(ATTEMPT_HEADER, b"3")]), max_attempts=4), Redriven)


@pytest.mark.parametrize(
    ("found", "why", "words"),
    [
        (garbage(1), "refused", "bad_framing"),
        (letter(1, encode(event(cell="eu")), RecordError("unknown_cell", "eu"), key=b"eu"), "refused", "unknown_cell"),
        (letter(1, encode(event()), RecordError("key_mismatch", "x"), key=b"eu"), "refused", "key_mismatch"),
        (letter(1, None, RecordError("empty", "no value")), "refused", "empty"),
        (Letter(partition=0, offset=1, append_ms=1, letter=None, why="malformed: x"), "unreadable", "malformed"),
    ],
)
def test_what_would_be_refused_again_stays(found: Letter, why: str, words: str) -> None:
    stays = verdict(found)
    assert isinstance(stays, Stays)
    assert stays.why == why
    assert words in stays.detail


def test_a_record_of_the_wrong_partition_goes_where_its_key_leads() -> None:
    found = undeclared(1, partition=(HOME + 1) % 8)
    record = verdict(found)
    assert isinstance(record, Redriven)
    assert record.partition == HOME


def test_a_record_that_its_letter_could_not_hold_stays() -> None:
    raw = RawRecord(
        topic="fleet.capacity",
        partition=HOME,
        offset=1,
        timestamp_ms=1,
        timestamp_kind="append",
        key=b"us-east",
        value=encode(event()) + b"\0" * MAX_KEPT_BYTES,
    )
    said = envelope(raw, RecordError("too_large", "too large (really)"), part="ingest", stage="read")
    stays = verdict(Letter(partition=0, offset=1, append_ms=1, letter=said))
    assert isinstance(stays, Stays)
    assert stays.why == "cut"


def test_a_repaired_record_has_the_key_that_it_says() -> None:
    bad = letter(1, encode(event(cell="us-wets")), RecordError("unknown_cell", "us-wets"), key=b"us-wets")
    line = to_json(bad, FLEET_CAPACITY, is_done=False)
    line["record"]["cell"] = "us-east"
    found = repaired_letters(json.dumps(line).encode() + b"\n\n", FLEET_CAPACITY)
    record = verdict(bad, repaired=found)
    assert isinstance(record, Redriven)
    assert (record.key, record.partition) == (b"us-east", HOME)
    assert Decoder(FLEET_CAPACITY.record_types).decode(record.value) == event()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{", "line 1"),
        (b"[]", "line 1"),
        (b'{"partition": 0, "offset": 1}', "record"),
        (b'{"partition": 0, "offset": "1", "record": {}}', "is none"),
        (b'{"partition": 0, "offset": 1, "record": {}, "type": "Other"}', "Other"),
        (b'{"partition": 0, "offset": 1, "record": {"cell": "x"}}', "host"),
    ],
)
def test_a_file_of_repairs_that_is_wrong_names_the_line(text: bytes, words: str) -> None:
    with pytest.raises(ValueError, match="line 1") as refused:
        repaired_letters(text, FLEET_CAPACITY)
    assert words in str(refused.value)


def test_a_plan_sends_nothing_and_says_what_a_run_does() -> None:
    log = MemoryLog([undeclared(0), garbage(1), undeclared(2)])
    planned = plan(log, log.marks(), redrive_of())
    assert (log.sent, log.committed) == ([], None)
    assert (planned.num_redriven, planned.stays) == (2, Counter(refused=1))
    done = go(log)
    assert (done.num_redriven, done.stays) == (planned.num_redriven, planned.stays)
    assert hosts(log) == ["h0", "h2"]


def test_a_second_redrive_sends_what_the_first_left_only() -> None:
    log = MemoryLog([undeclared(0), garbage(1), undeclared(2)])
    go(log)
    log.found.append(undeclared(4))
    assert go(log, "r2").num_redriven == 1
    assert hosts(log) == ["h0", "h2", "h4"]


def test_a_letter_that_was_written_twice_is_redriven_once() -> None:
    log = MemoryLog([undeclared(0, origin_offset=9), undeclared(1), undeclared(2, origin_offset=9)])
    outcome = go(log)
    assert (outcome.num_redriven, outcome.num_again) == (2, 1)
    assert hosts(log) == ["h0", "h1"]
    assert log.marks()[0].position == 4


@given(st.lists(st.booleans(), max_size=12), st.lists(st.integers(0, 40), max_size=5))
def test_killed_at_any_steps_nothing_is_lost_and_nothing_sent_twice(good: list[bool], deaths: list[int]) -> None:
    log = MemoryLog([undeclared(i) if is_good else garbage(i) for i, is_good in enumerate(good)])
    for number, dies_at in enumerate(deaths):
        log.dies_at = dies_at
        with suppress(KilledError):
            go(log, f"r{number}")
    log.dies_at = None
    go(log, "last")
    assert sorted(hosts(log)) == sorted(f"h{i}" for i, is_good in enumerate(good) if is_good)
    marks = log.marks()[0]
    assert marks.run is None
    assert [marks.is_done(i) for i in range(len(good))] == good
    if any(good):
        # The last note says the same, but for itself.
        (noted,) = read_back(log.notes[-1].value).values()
        assert [noted.is_done(i) for i in range(len(good))] == good
        assert noted.run is None


def test_marks_are_committed_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "COMMIT_EVERY", 2)
    log = MemoryLog([undeclared(i) for i in range(5)])
    # The run's note, two hand-overs, two acknowledgements, a commit; then the third hand-over.
    log.dies_at = 6
    with pytest.raises(KilledError):
        go(log)
    marks = log.marks()[0]
    assert marks.position == 2
    assert marks.run is not None


def test_what_cannot_be_marked_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ops.dlq.marks.MAX_RANGES", 2)
    log = MemoryLog([garbage(i) if i % 2 == 0 else undeclared(i) for i in range(10)])
    with pytest.raises(MarksFullError, match="at 5"):
        go(log)
    assert hosts(log) == ["h1", "h3"]
    assert log.marks()[0].is_done(3)


def test_what_is_given_up_is_written_down_and_done() -> None:
    log = MemoryLog([undeclared(0), garbage(1), garbage(2), undeclared(3), garbage(4)])
    count = discard(log, log.marks(), "fleet.capacity", chosen=lambda found: found.reason == "bad_framing", why="junk")
    assert count == 3
    (note,) = log.notes
    assert (note.part, note.stage) == ("operator", "discard")
    assert "3 letters given up: junk" in note.detail
    assert "offsets 1-2,4" in note.detail
    marks = log.marks()[0]
    assert [marks.is_done(i) for i in range(6)] == [False, True, True, False, True, True]
    assert go(log).num_redriven == 2
    # With the notes of both.
    assert log.marks()[0].position == 7


def test_nothing_is_given_up_before_a_killed_redrive_was_ended() -> None:
    log = MemoryLog([undeclared(0), undeclared(1)])
    log.dies_at = 3
    with suppress(KilledError):
        go(log)
    assert unfinished(log.marks()) is not None
    log.dies_at = None
    with pytest.raises(UnfinishedRunError, match="let `intertidal dlq redrive` end it"):
        discard(log, log.marks(), "fleet.capacity", chosen=lambda _: True, why="junk")
    assert log.notes == []
    assert go(log).num_redriven + len(log.sent) >= 2
    assert discard(log, log.marks(), "fleet.capacity", chosen=lambda _: True, why="junk") == 0


def test_a_command_of_the_past_is_not_given_again() -> None:
    value = encode(command_window(3, "freeze"))
    home = partition_for(b"us-east", CONTROL_WINDOWS.num_partitions)
    found = letter(1, value, RecordError("key_mismatch", "x"), partition=home)
    stays = judged(found, CONTROL_WINDOWS, INTAKE, Terms(run="r1"), now_ms=NOW_MS)
    assert isinstance(stays, Stays)
    assert (stays.why, "give it anew" in stays.detail) == ("command", True)


@pytest.mark.parametrize("value", [None, b"", b"{", b'{"0": 1}', b'{"0": [3, "x"]}'])
def test_a_note_without_marks_is_not_taken_for_one(value: bytes | None) -> None:
    with pytest.raises(MarksError):
        read_back(value)


@given(st.integers(0, 4))
def test_nothing_is_given_up_that_is_not_written_down(dies_at: int) -> None:
    log = MemoryLog([garbage(0), undeclared(1)])
    marks = log.marks()
    log.dies_at = dies_at
    with suppress(KilledError):
        discard(log, marks, "fleet.capacity", chosen=lambda found: found.reason == "bad_framing", why="junk")
    assert log.notes or not log.marks()[0].is_done(0)


def test_groups_count_by_reason_with_the_fields_to_blame() -> None:
    found = [undeclared(0), undeclared(2), garbage(3)]
    shown = [group.to_json() for group in grouped("fleet.capacity", found)]
    assert [(row["reason"], row["count"], row["fields"], row["last_offset"]) for row in shown] == [
        ("unknown_cell", 2, {"cell": 2}, 2),
        ("bad_framing", 1, {}, 3),
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["list", "nothing"], "no topic nothing"),
        (["show", "nothing"], "no topic nothing"),
        (["show", "fleet.capacity", "x"], "x"),
        (["show", "fleet.capacity", "--reason", "nope"], "no reason nope"),
        (["redrive"], "TOPIC"),
        (["redrive", "fleet.capacity", "--rate", "0"], "--rate"),
        (["redrive", "fleet.capacity", "--max-attempts", "0"], "--max-attempts"),
        (["redrive", "fleet.capacity", "--repaired", "/nowhere/at/all"], "--repaired"),
        (["discard", "fleet.capacity", "--why", "x"], "which letters"),
        (["discard", "fleet.capacity", "--all", "--reason", "empty", "--why", "x"], "which letters"),
        (["discard", "fleet.capacity", "--all"], "--why"),
        (["discard", "fleet.capacity", "--all", "--why", " "], "--why is empty"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_code_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["dlq", *arguments]) == 2
    said = capsys.readouterr().err.strip()
    assert words in said
    assert len(said.splitlines()) == 1
