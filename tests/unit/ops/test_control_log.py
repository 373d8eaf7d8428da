"""What the logs say of holds, read without a broker: which snapshot counts, and since when commands are read."""

from types import SimpleNamespace

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME
from msgspec.structs import replace

from ops import control_log
from ops.commands import command_window
from ops.control_log import ControlLog
from ops.holds import CellFacts
from ops.status.positions import Extent
from schemas.dead_letters import Headers
from schemas.epochs import epoch_header
from schemas.framing import encode
from schemas.records import CellDeclaration, CellRevision, ControllerSnapshot, OperatorCommand
from schemas.settings import TimeSettings
from schemas.topics import CONTROL_STATE, CONTROL_TARGETS, CONTROL_WINDOWS, Namespace
from streams.control.hold import Hold, commanded
from streams.control.state import CellState, encode_state
from tests.unit.streams.control_makers import LIMITS, WINDOW_MS

CELL = "us-east"
END_MS = 1_000 * WINDOW_MS
LATE_MS = END_MS + 3_600_000


class Log:
    """Topics of one partition each, in place of a broker: values with their append times and headers."""

    def __init__(self, monkeypatch):
        topics = (CONTROL_STATE, CONTROL_WINDOWS, CONTROL_TARGETS)
        self._records: dict[str, list[tuple[int, bytes, Headers]]] = {topic.name: [] for topic in topics}
        monkeypatch.setattr(control_log, "Positions", lambda config: self)
        monkeypatch.setattr(control_log, "Tails", lambda config: self)

    def append(self, topic, record, *, at_ms, headers=()):
        self._records[topic.name].append((at_ms, encode(record), list(headers)))

    def facts(self) -> CellFacts:
        settings = TimeSettings(window_ms=WINDOW_MS, lateness_ms=500)
        with ControlLog({}, Namespace(""), time=settings) as log:
            return log.read([CELL])[CELL]

    def partitions(self):
        return dict.fromkeys(self._records, 1)

    def extents(self, places):
        return {
            (name, number): Extent(
                low=0,
                end=len(self._records[name]),
                newest_ms=max((at_ms for at_ms, *_ in self._records[name]), default=None),
            )
            for name, number in places
        }

    def offsets_at(self, places, time_ms):
        return {
            (name, number): next(
                (offset for offset, (at_ms, *_) in enumerate(self._records[name]) if at_ms >= time_ms), None
            )
            for name, number in places
        }

    def read(self, spans):
        for (name, number), span in spans.items():
            for offset in range(span.start, span.end):
                yield self._message(name, number, offset)

    def _message(self, name, number, offset):
        at_ms, value, headers = self._records[name][offset]
        return SimpleNamespace(
            topic=lambda: name,
            partition=lambda: number,
            offset=lambda: offset,
            timestamp=lambda: (TIMESTAMP_LOG_APPEND_TIME, at_ms),
            key=CELL.encode,
            value=lambda: value,
            headers=lambda: headers,
        )

    def close(self):
        pass


@pytest.fixture
def log(monkeypatch) -> Log:
    return Log(monkeypatch)


def word(operator: str) -> OperatorCommand:
    return OperatorCommand(action="freeze", operator=operator, reason="a drill", expires_ms=2 * LATE_MS)


def snapshot(hold: Hold | None) -> ControllerSnapshot:
    """Of the window that ends at END_MS."""
    index = END_MS // WINDOW_MS - 1
    state = CellState(cell=CELL, window_ms=WINDOW_MS, last_tick=index, hold=hold)
    return ControllerSnapshot(cell=CELL, window_index=index, controller_version="v", state=encode_state(state))


def say(log: Log, operator: str, *, at_ms: int) -> None:
    declared = CellDeclaration(
        cell=CELL, window_ms=WINDOW_MS, revisions=[CellRevision(from_window=0, limits=LIMITS)], providers=["own"]
    )
    log.append(CONTROL_WINDOWS, command_window(declared, word(operator), now_ms=at_ms), at_ms=at_ms)


def test_a_hold_given_while_the_controller_was_down_is_seen(log):
    say(log, "before", at_ms=END_MS - 10 * WINDOW_MS)
    say(log, "meanwhile", at_ms=END_MS + 600_000)
    # The first thing that it appends when it is back is of the windows from before.
    log.append(CONTROL_STATE, snapshot(None), at_ms=LATE_MS)
    facts = log.facts()
    assert facts.command == word("meanwhile")


def test_words_that_a_snapshot_knows_of_are_not_read_again(log):
    say(log, "before", at_ms=END_MS - 10 * WINDOW_MS)
    held = commanded(word("held"))
    log.append(CONTROL_STATE, snapshot(held), at_ms=END_MS + 1)
    assert log.facts() == CellFacts(snapshot_hold=held)


def test_the_snapshot_of_the_highest_epoch_counts_wherever_it_stands(log):
    taken_over, left = commanded(word("taken over")), commanded(word("left"))
    log.append(CONTROL_STATE, snapshot(left), at_ms=END_MS + 1, headers=[epoch_header(2)])
    log.append(CONTROL_STATE, snapshot(taken_over), at_ms=END_MS + 2, headers=[epoch_header(3)])
    log.append(CONTROL_STATE, snapshot(left), at_ms=END_MS + 3, headers=[epoch_header(2)])
    assert log.facts().snapshot_hold == taken_over
    newer = commanded(replace(word("taken over"), reason="newer"))
    log.append(CONTROL_STATE, snapshot(newer), at_ms=END_MS + 4, headers=[epoch_header(3)])
    assert log.facts().snapshot_hold == newer
