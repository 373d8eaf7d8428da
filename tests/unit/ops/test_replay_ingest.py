"""Replay of raw records: whatever is read first, however it is cut, wherever it dies, the windows are the live ones."""

import random
from collections.abc import Sequence
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ops.replay.commands import Heard, HeardAt, as_they_counted, heard
from ops.replay.ingest_part import KINDS, IngestReplay
from ops.replay.plan import raw_span
from ops.replay.said import Said
from ops.replay.work import first_progress
from schemas.dead_letters import RawRecord as WholeRecord
from schemas.framing import encode
from schemas.kafka.admin import BrokerError
from schemas.records import ControlWindow, DeadLetter
from streams.ingest.partition import RawRecord, recompute
from streams.ingest.progress import Progress, from_metadata, to_metadata
from tests.unit.streams.control_makers import capacity_window, command_window, latency_window
from tests.unit.streams.ingest_logs import DECLARED, FIRST_WINDOW, HOME, capacity_record, latency_record, logs
from tests.unit.streams.ingest_makers import NUM_PARTITIONS, TIME, cells_of

Logs = dict[str, list[RawRecord]]
FROM_THE_START: dict[str, Progress] = {kind.name: Progress(offset=0) for kind in KINDS}
COMMANDS = [
    Heard(0, command_window(3, "freeze")),
    Heard(FIRST_WINDOW + 4, command_window(4, "freeze")),
    Heard(FIRST_WINDOW + 4, command_window(5, "freeze")),
    Heard(FIRST_WINDOW + 9_999, command_window(6, "freeze")),
]


def both(capacity: list[RawRecord], latency: list[RawRecord]) -> Logs:
    return {"capacity": capacity, "latency": latency}


raw_logs = st.builds(both, logs(capacity_record, max_size=40), logs(latency_record, max_size=40))


class Crashing:
    """Drives the replay as its edge does, and kills it at random moments."""

    def __init__(self, raw: Logs, starts: dict[str, Progress], rng: random.Random, *, crash_share: float) -> None:
        self._raw = raw
        self._starts = starts
        self._rng = rng
        self._crash_share = crash_share
        self.durable: list[Said] = []

    def run(self) -> list[Said]:
        while not self._until_crash():
            pass
        return self.durable

    def _until_crash(self) -> bool:
        replay = IngestReplay(
            HOME,
            num_partitions=NUM_PARTITIONS,
            time=TIME,
            cells=cells_of(*DECLARED),
            starts=self._starts,
            others=COMMANDS,
        )
        positions = {name: start.offset for name, start in self._starts.items()}
        said: list[Said] = []
        while (name := replay.wanted()) is not None:
            batch = self._raw[name][positions[name] : positions[name] + self._rng.randrange(1, 9)]
            positions[name] += len(batch)
            if batch:
                said += replay.take(name, batch, partial(_whole_of, batch))
            else:
                said += replay.end(name)
            if self._rng.random() < self._crash_share:
                return False
            if self._rng.random() < 0.5:
                self._write(replay, said)
                said = []
        self._write(replay, said)
        # A run that is done and is gone on with all the same says nothing more.
        return self._rng.random() < 0.5

    def _write(self, replay: IngestReplay, said: list[Said]) -> None:
        self.durable += said
        self._starts = {
            name: from_metadata(at.offset, to_metadata(at, window_ms=TIME.window_ms), window_ms=TIME.window_ms)
            for name, at in replay.progress().items()
        }


def whole(raw: RawRecord) -> WholeRecord:
    return WholeRecord(
        topic="t",
        partition=HOME,
        offset=raw.offset,
        timestamp_ms=raw.append_ms,
        timestamp_kind="append",
        key=raw.key,
        value=raw.value,
    )


def _whole_of(batch: Sequence[RawRecord], index: int) -> WholeRecord:
    return whole(batch[index])


def windows_of(said: Sequence[Said]) -> list[ControlWindow]:
    return [each.record for each in said if isinstance(each.record, ControlWindow) and each.record.kind != "command"]


def letters_of(said: Sequence[Said]) -> list[tuple[str, int, str]]:
    return sorted(
        (each.topic, each.record.offset, each.record.reason) for each in said if isinstance(each.record, DeadLetter)
    )


def live(raw: Logs) -> tuple[list[ControlWindow], list[tuple[str, int, str]]]:
    windows: list[ControlWindow] = []
    letters = []
    for kind in KINDS:
        out = recompute(raw[kind.name], kind, HOME, num_partitions=NUM_PARTITIONS, time=TIME, cells=cells_of(*DECLARED))
        windows += out.windows
        letters += [(kind.topic.dead_letters, each.offset, each.error.reason) for each in out.refusals]
    return sorted(windows, key=order), sorted(letters)


def order(window: ControlWindow) -> tuple[int, str, str]:
    return window.window_index, window.kind, window.cell


@settings(max_examples=40)
@given(raw_logs, st.integers(0, 2**32))
@example(both([], []), 0)
def test_killed_anywhere_it_says_the_live_windows_once_each_in_one_order(raw: Logs, seed: int) -> None:
    said = Crashing(raw, FROM_THE_START, random.Random(seed), crash_share=0.2).run()
    windows, letters = live(raw)
    assert [encode(window) for window in windows_of(said)] == [encode(window) for window in windows]
    assert letters_of(said) == letters
    told = [each.record for each in said if isinstance(each.record, ControlWindow) and each.record.kind == "command"]
    assert told == [each.window for each in COMMANDS]


@settings(max_examples=40)
@given(raw_logs, st.integers(1, 60))
def test_every_way_of_reading_gives_the_same_log(raw: Logs, seed: int) -> None:
    one, other = (
        Crashing(raw, FROM_THE_START, random.Random(number), crash_share=0.0).run() for number in (seed, -seed)
    )
    assert [each for each in one if isinstance(each.record, ControlWindow)] == [
        each for each in other if isinstance(each.record, ControlWindow)
    ]


@settings(max_examples=40)
@given(raw_logs, st.integers(0, 2_500), st.integers(0, 2**32))
def test_a_range_begins_with_the_first_window_of_which_all_is_known(raw: Logs, after_ms: int, seed: int) -> None:
    """From the middle of the logs: the live windows from some window on, and no other."""
    since_ms = FIRST_WINDOW * TIME.window_ms + after_ms
    spans = {}
    for name, records in raw.items():
        since = next((raw.offset for raw in records if raw.append_ms >= since_ms), len(records))
        horizon = next((raw.offset for raw in records if raw.append_ms >= since_ms - 400), len(records))
        low = (0, records[0].append_ms)
        spans[name], note = raw_span(
            HOME, low=low, since=(since, since_ms), horizon=horizon, end=len(records), time=TIME
        )
        assert not note
    starts = {name: first_progress(span, TIME) for name, span in spans.items()}
    said = Crashing(raw, starts, random.Random(seed), crash_share=0.2).run()
    windows, letters = live(raw)
    first = -(-since_ms // TIME.window_ms)
    assert [encode(window) for window in windows_of(said)] == [
        encode(window) for window in windows if window.window_index >= first
    ]
    topics = {kind.topic.dead_letters: spans[kind.name].said_from for kind in KINDS}
    assert letters_of(said) == [letter for letter in letters if letter[1] >= topics[letter[0]]]


def test_what_retention_has_removed_is_not_made_up() -> None:
    low_ms = FIRST_WINDOW * TIME.window_ms + 5
    span, note = raw_span(HOME, low=(7, low_ms), since=None, horizon=0, end=90, time=TIME)
    assert (span.start, span.said_from) == (7, 7)
    # The horizon of 400 ms after the first record that is left, and the window that begins next.
    assert span.first_window == FIRST_WINDOW + 5
    assert "retention has removed" in note


def test_a_command_is_heard_by_the_tick_that_heard_it_live() -> None:
    log = [
        capacity_window(4),
        latency_window(4),
        capacity_window(5),
        command_window(5, "freeze"),
        latency_window(5),
        latency_window(6),
        capacity_window(6),
        command_window(6, "freeze"),
    ]
    assert [each.from_window for each in heard(enumerate(log))] == [5, 7]


def test_what_is_taken_as_it_stands_comes_in_the_order_in_which_it_counted() -> None:
    behind, results = "us-west", replace(capacity_window(9), kind="results", capacity=None)
    log = list(
        enumerate(
            [
                capacity_window(4),
                latency_window(4),
                replace(capacity_window(4), cell=behind),
                replace(results, window_index=1),
                replace(results, window_index=2, cell=behind),
                replace(latency_window(4), cell=behind),
                replace(results, window_index=3, cell=behind),
            ],
            start=70,
        )
    )
    places = heard(log)
    assert places == [HeardAt(0, 74), HeardAt(5, 73), HeardAt(5, 76)]
    taken = list(as_they_counted(places, log))
    assert [(each.from_window, each.window.window_index) for each in taken] == [(0, 2), (5, 1), (5, 3)]
    with pytest.raises(BrokerError, match="has lost the record at offset 76"):
        list(as_they_counted(places, log[:-1]))


@pytest.mark.parametrize("name", ["capacity", "latency"])
def test_the_kind_whose_clock_is_behind_is_read_next(name: str) -> None:
    replay = IngestReplay(
        HOME, num_partitions=NUM_PARTITIONS, time=TIME, cells=cells_of(*DECLARED), starts=FROM_THE_START
    )
    other = "latency" if name == "capacity" else "capacity"
    replay.end(other)
    assert replay.wanted() == name
    replay.end(name)
    assert replay.wanted() is None
