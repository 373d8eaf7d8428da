"""Replay of control: the same log gives the same records, from the start, after any crash, and from any snapshot."""

import random
from collections.abc import Sequence

import pytest

import streams.control.step as step
from ops.replay.control_part import ControlReplay
from ops.replay.said import Said
from ops.replay.snapshots import Pivots
from schemas.dead_letters import RawRecord
from schemas.framing import decode_as, encode
from schemas.partition import partition_for
from schemas.records import CandidateTarget, ControllerSnapshot, ControlWindow, DeadLetter
from schemas.settings import TimeSettings
from streams.control.processor import apply
from streams.control.settings import ControlSettings
from streams.control.state import CellState, decode_state, encode_state
from tests.unit.streams.control_makers import WINDOW_MS, capacity_window, command_window, latency_window

NUM_PARTITIONS = 1
CELLS = ("us-east", "eu-west")
SETTINGS = ControlSettings(snapshot_ticks=4)
TIME = TimeSettings(window_ms=WINDOW_MS)
FIRST, NUM_WINDOWS = 1_000, 14
CANNOT = FIRST + 9


@pytest.fixture
def a_window_that_cannot_be_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(state: CellState, window: ControlWindow, *, settings: ControlSettings) -> object:
        if window.window_index == CANNOT and window.kind == "latency":
            raise ZeroDivisionError("a defect of ours")
        return apply(state, window, settings=settings)

    monkeypatch.setattr(step, "apply", broken)


def log(seed: int) -> list[RawRecord]:
    """Two cells: kinds that overtake each other, windows sent again after a crash, commands, and what is refused."""
    rng = random.Random(seed)
    windows: list[ControlWindow] = []
    for cell in CELLS:
        kinds = {"capacity": FIRST, "latency": FIRST}
        while min(kinds.values()) < FIRST + NUM_WINDOWS:
            kind = rng.choice([name for name, index in kinds.items() if index < FIRST + NUM_WINDOWS])
            back = rng.choice((0, 0, 0, 0, 0, 2))
            kinds[kind] = max(FIRST, kinds[kind] - back)
            index = kinds[kind]
            kinds[kind] += 1
            # By its index alone: a window that is sent again is the same again.
            draw = random.Random(index)
            if kind == "capacity":
                windows.append(capacity_window(index, cell=cell, units=draw.uniform(0.5, 8.0)))
            else:
                latency_ms = draw.uniform(20.0, 260.0)
                windows.append(latency_window(index, cell=cell, latency_ms=latency_ms, shed=draw.randrange(900)))
            if rng.random() < 0.1:
                action = rng.choice(("freeze", "resume"))
                expires_ms = (index + rng.randrange(1, 6)) * WINDOW_MS
                windows.append(command_window(index, action, cell=cell, expires_ms=expires_ms))
    values = [(window.cell.encode(), encode(window)) for window in _mixed(windows, rng)]
    values[7:7] = [(b"us-east", b"junk"), (b"other", values[3][1])]
    end_ms = (FIRST + NUM_WINDOWS) * WINDOW_MS
    return [
        RawRecord(
            topic="control.windows",
            partition=partition_for(key, NUM_PARTITIONS),
            offset=offset,
            timestamp_ms=end_ms,
            timestamp_kind="append",
            key=key,
            value=value,
        )
        for offset, (key, value) in enumerate(values)
    ]


def _mixed(windows: Sequence[ControlWindow], rng: random.Random) -> list[ControlWindow]:
    """The cells' windows among each other, each cell's in its order."""
    left = {cell: [window for window in windows if window.cell == cell] for cell in CELLS}
    mixed = []
    while any(left.values()):
        mixed.append(left[rng.choice([cell for cell in CELLS if left[cell]])].pop(0))
    return mixed


def replay(states: dict[str, CellState] | None = None, passed: dict[str, int] | None = None) -> ControlReplay:
    return ControlReplay(num_partitions=NUM_PARTITIONS, time=TIME, settings=SETTINGS, states=states, passed=passed)


def live(records: Sequence[RawRecord]) -> list[tuple[str, bytes]]:
    """What the live agent says of a log: its state goes through bytes after every record, as the table holds it."""
    states: dict[str, bytes] = {}
    said = []
    for record in records:
        replayed = replay({cell: decode_state(data) for cell, data in states.items()})
        said += bodies(replayed.take([record]))
        states |= {cell: encode_state(state) for cell, state in replayed.changed().items()}
    return said


def bodies(said: Sequence[Said]) -> list[tuple[str, bytes]]:
    return [(each.topic, encode(each.record)) for each in said]


def only(said: Sequence[tuple[str, bytes]], cell: str, *, after: int) -> list[tuple[str, bytes]]:
    """Targets of a cell, of windows behind one."""
    found = []
    for topic, body in said:
        if topic == "control.targets":
            target = decode_as(body, CandidateTarget)
            if target.cell == cell and target.window_index > after:
                found.append((topic, body))
    return found


@pytest.mark.usefixtures("a_window_that_cannot_be_applied")
@pytest.mark.parametrize("seed", range(2))
def test_killed_at_every_record_it_says_what_the_live_agent_said(seed: int) -> None:
    records = log(seed)
    expected = live(records)
    assert {topic for topic, _ in expected} == {
        "control.targets",
        "capacity.pools",
        "control.state",
        "control.windows.dlq",
    }
    assert bodies(replay().take(records)) == expected
    states: dict[str, bytes] = {}
    said: list[tuple[str, bytes]] = []
    first = replay()
    for crash, record in enumerate(records):
        again = replay({cell: decode_state(data) for cell, data in states.items()})
        # What was read and not yet written goes with the process that is killed.
        assert said + bodies(again.take(records[crash:])) == expected
        said += bodies(first.take([record]))
        states |= {cell: encode_state(state) for cell, state in first.changed().items()}


@pytest.mark.usefixtures("a_window_that_cannot_be_applied")
def test_a_window_that_cannot_be_applied_is_refused_and_the_cell_goes_on() -> None:
    said = replay().take(log(0))
    letters = [each.record for each in said if isinstance(each.record, DeadLetter)]
    assert {letter.reason for letter in letters} == {"bad_framing", "key_mismatch", "cannot_be_applied"}
    assert all((letter.part, letter.stage) == ("control", "window") for letter in letters)
    targets = {each.record.window_index for each in said if isinstance(each.record, CandidateTarget)}
    assert CANNOT not in targets
    assert CANNOT + 1 in targets


@pytest.mark.parametrize("seed", range(4))
def test_from_every_snapshot_in_the_middle_the_targets_are_the_same(seed: int) -> None:
    records = log(seed)
    expected = bodies(replay().take(records))
    snapshots = [decode_as(body, ControllerSnapshot) for topic, body in expected if topic == "control.state"]
    assert len(snapshots) >= 4
    for snapshot in snapshots:
        state = decode_state(snapshot.state)
        pivots = Pivots({snapshot.cell: state})
        for record in records:
            if record.value is not None and record.value != b"junk" and record.key != b"other":
                pivots.see(decode_as(record.value, ControlWindow), record.offset)
        (begin,) = pivots.found().values()
        assert pivots.is_complete
        # From the start of the log: everything up to the snapshot is passed over, commands too.
        begun = replay({snapshot.cell: begin.state}, {snapshot.cell: begin.passed_offset})
        said = bodies(begun.take(records))
        assert only(said, snapshot.cell, after=0) == only(expected, snapshot.cell, after=snapshot.window_index)
        # And from behind it.
        begun = replay({snapshot.cell: begin.state})
        said = bodies(begun.take(records[begin.passed_offset + 1 :]))
        assert only(said, snapshot.cell, after=0) == only(expected, snapshot.cell, after=snapshot.window_index)


def test_a_snapshot_whose_windows_are_gone_is_no_place_to_begin() -> None:
    records = log(1)
    said = replay().take(records)
    state = next(decode_state(each.record.state) for each in said if isinstance(each.record, ControllerSnapshot))
    pivots = Pivots({state.cell: state})
    for record in records[len(records) // 2 :]:
        pivots.see(decode_as(record.value, ControlWindow), record.offset)
    assert not pivots.is_complete
    assert pivots.found() == {}
