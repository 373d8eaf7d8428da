"""`intertidal read` without a broker: wrong use is one line, and what cannot be read is named and passed over."""

import errno
import io
import json
from dataclasses import dataclass

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME

import ops.read_cli as read_cli
from ops.cli import main
from ops.errors import UserError
from ops.read.copy import JsonLines, copy
from ops.read.log import Extent
from ops.read.topics import readable_topics
from schemas.framing import encode
from schemas.records import ClockRecord
from schemas.topics import Namespace

TOPICS = readable_topics(Namespace("t."))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Missing argument 'TOPIC'"),
        (("ranking.result",), "no topic ranking.result"),
        (("ranking.results", "--since", "2026-03-01T12:00:00"), "has no zone"),
        (("ranking.results", "--until", "yesterday"), "'yesterday' is no time"),
        (("ranking.results", "--since", "-5m", "--until", "-10m"), "--since is after --until"),
        (("ranking.results", "--follow", "--until", "-10m"), "--follow has no end"),
        (("ranking.results", "--format", "csv"), "'csv' is not one of"),
        (("ranking.results", "--format", "parquet"), "need --out DIR"),
        (("ranking.results", "--out", "somewhere"), "json goes to stdout"),
        (("ranking.results", "--every", "often"), "'often' is no duration"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(arguments, said, monkeypatch, capsys):
    monkeypatch.setattr(read_cli, "broker_config", lambda _: pytest.fail("a broker was looked for"))
    assert main(["read", *arguments]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert said in told.err


@dataclass
class FakeMessage:
    """A message as the client hands it over."""

    at: int
    content: bytes | None

    def partition(self):
        return 3

    def offset(self):
        return self.at

    def value(self):
        return self.content

    def key(self):
        return b"us-east"

    def timestamp(self):
        return TIMESTAMP_LOG_APPEND_TIME, 1_000 + self.at


def copied(topic, *messages):
    """Lines, complaints, how many were met and how many could not be read."""
    stream = io.BytesIO()
    complaints: list[str] = []
    met: list[int] = []
    num_unreadable = copy(
        [messages[:1], [], messages[1:]],
        TOPICS[topic],
        JsonLines(stream),
        complain=complaints.append,
        advance=met.append,
    )
    return [json.loads(line) for line in stream.getvalue().splitlines()], complaints, sum(met), num_unreadable


def test_what_cannot_be_read_is_named_by_its_place_and_the_rest_goes_on():
    clock = encode(ClockRecord(writer="w"))
    lines, complaints, num_met, num_unreadable = copied(
        "fleet.capacity", FakeMessage(4, clock), FakeMessage(5, b"what?"), FakeMessage(6, None), FakeMessage(7, clock)
    )
    assert [(line["_partition"], line["_offset"], line["_time_ms"]) for line in lines] == [(3, 4, 1_004), (3, 7, 1_007)]
    assert [complaint.partition(": ")[0] for complaint in complaints] == [
        "t.fleet.capacity/3/5",
        "t.fleet.capacity/3/6",
    ]
    assert "bad_framing" in complaints[0]
    assert (num_met, num_unreadable) == (4, 2)


def test_a_deleted_key_of_a_compacted_topic_is_a_row():
    lines, complaints, _, num_unreadable = copied("control.cells", FakeMessage(4, None))
    assert [(line["_record"], line["_key"]) for line in lines] == [(None, "us-east")]
    assert (complaints, num_unreadable) == ([], 0)


def test_what_was_deleted_unread_is_said_and_a_topic_made_anew_refused(capsys):
    found = Extent(cluster="c", lows={0: 5, 1: 0}, ends={0: 9, 1: 3}, since={}, until={})
    assert read_cli._check(TOPICS["ranking.results"], found, {0: 2, 1: 3}) == 3
    assert "t.ranking.results[0]: 3 records deleted unread" in capsys.readouterr().err
    with pytest.raises(UserError, match="made anew"):
        read_cli._check(TOPICS["ranking.results"], found, {0: 10})


class Full(io.BytesIO):
    """A stream whose disk is full."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_behind_stdout_is_one_line() -> None:
    with pytest.raises(UserError, match="stdout: No space left on device"):
        JsonLines(Full()).write_all()
