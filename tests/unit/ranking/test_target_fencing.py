"""Two controllers of one cell: the one that took it over is heard, the one that wakes up late is not."""

from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from ranking.client.fence import ShutOutError
from ranking.client.target_table import TargetTable
from schemas.epochs import EPOCH_HEADER, NO_EPOCH, epoch_header, epoch_of
from schemas.errors import RecordError
from schemas.framing import encode
from streams.control.epochs import Epochs, epoch_key, stored_epoch
from streams.control.processor import apply
from streams.control.state import CellState
from tests.unit.ranking.router_driver import target_of
from tests.unit.ranking.test_client_targets import view_of
from tests.unit.streams.control_makers import WINDOW_MS, capacity_window, latency_window

OLD, NEW = 1_000, 2_000


def at(tick: int, candidates: int):
    """Target of a tick of ten seconds, valid for three."""
    return target_of(candidates, end_ms=tick * 10_000, valid_until_ms=(tick + 3) * 10_000)


def test_the_old_controller_wakes_up_and_is_not_heard():
    table = TargetTable()
    table.update(at(1, 300), epoch=OLD)
    table.update(at(2, 200), epoch=NEW)
    for tick in (1, 2, 3, 4):
        with pytest.raises(ShutOutError, match="epoch 1000 speaks for us-east beside one of epoch 2000"):
            table.update(at(tick, 400), epoch=OLD)
        assert table.last("us-east") == at(2, 200)
    assert table.update(at(3, 250), epoch=NEW)


def test_the_fence_stands_as_long_as_the_new_controller_speaks():
    table = TargetTable()
    for tick in range(1, 100):
        assert table.update(at(tick, 200), epoch=NEW)
        with pytest.raises(ShutOutError):
            table.update(at(tick + 1, 400), epoch=OLD)


def test_a_cell_is_never_silenced_by_an_epoch_whose_owner_is_gone():
    """As after a clock that was a century ahead, with table and changelog lost."""
    table = TargetTable()
    table.update(at(1, 200), epoch=10**15)
    with pytest.raises(ShutOutError):
        table.update(at(3, 250), epoch=OLD)
    # Sent after its window has closed: when the last target of the other is over.
    assert table.update(at(4, 300), epoch=OLD)
    assert table.update(at(5, 310), epoch=OLD)
    # And it is the fence again when it comes back.
    assert table.update(at(7, 200), epoch=10**15)
    with pytest.raises(ShutOutError):
        table.update(at(7, 300), epoch=OLD)


def test_an_older_window_moves_the_fence_but_not_the_target():
    table = TargetTable()
    table.update(at(3, 300), epoch=OLD)
    assert not table.update(at(2, 200), epoch=NEW)
    assert table.last("us-east") == at(3, 300)
    with pytest.raises(ShutOutError):
        table.update(at(4, 400), epoch=OLD)


def test_cells_are_fenced_apart_and_a_sender_without_an_epoch_comes_last():
    table = TargetTable()
    table.update(at(1, 300), epoch=NEW)
    assert table.update(replace(at(1, 300), cell="us-west"), epoch=OLD)
    with pytest.raises(ShutOutError):
        table.update(at(2, 400))
    assert TargetTable().update(at(1, 300))


def test_the_header_carries_it_and_is_believed_only_as_a_number():
    assert epoch_of([("traceparent", b"x"), epoch_header(1_700_000_000_123)]) == 1_700_000_000_123
    assert epoch_header(7) == ("intertidal.epoch", b"7")
    assert epoch_of([]) == NO_EPOCH
    for value in (None, b"", b"-1", b"1.5", b"soon", b"9" * 400):
        with pytest.raises(RecordError) as refusal:
            epoch_of([(EPOCH_HEADER, value)])
        assert refusal.value.reason == "invalid_field"


def message_of(target, headers, *, append_ms=None):
    return SimpleNamespace(
        key=target.cell.encode,
        value=lambda: encode(target),
        timestamp=lambda: (2, target.window_end_ms if append_ms is None else append_ms),
        partition=lambda: 0,
        offset=lambda: 0,
        headers=lambda: headers,
    )


def test_the_view_counts_and_names_who_is_shut_out():
    view = view_of()
    view._follower.is_caught_up = True
    cells: list[str] = []
    view._on_shut_out = cells.append
    view._on_message(message_of(at(1, 300), [epoch_header(OLD)]))
    view._on_message(message_of(at(2, 200), [epoch_header(NEW)]))
    for _ in range(3):
        view._on_message(message_of(at(3, 400), [epoch_header(OLD)]))
    assert view.table.last("us-east") == at(2, 200)
    assert (view.num_shut_out, view.num_refused, cells) == (3, 0, ["us-east"] * 3)
    view._on_message(message_of(at(3, 210), [(EPOCH_HEADER, b"soon")]))
    assert (view.num_refused, view.refused[0][1].field) == (1, "headers.intertidal.epoch")


class Agent:
    """What of a control agent matters here: its epochs, and a table that goes with the partition."""

    def __init__(self, start_ms, table):
        self.epochs = Epochs(start_ms=start_ms)
        self.table = table
        self.state = CellState(cell="us-east")

    def epoch(self):
        held = self.epochs.held("us-east", partition=3)
        if held is not None:
            return held
        key = epoch_key("us-east")
        claimed = self.epochs.claim("us-east", partition=3, stored=self.table.get(key))
        self.table[key] = stored_epoch(claimed)
        return claimed


@pytest.mark.parametrize("clock_error_ms", [-(10**12), -1, 0, 10**12])
def test_whoever_takes_a_cell_over_has_a_higher_epoch_whatever_its_clock_says(clock_error_ms):
    table: dict[bytes, bytes] = {}
    old = Agent(1_700_000_000_000, table)
    new = Agent(1_700_000_000_000 + clock_error_ms, table)
    spoken = []
    for owner in (old, new, old, new):
        owner.epochs.take_over(3)
        spoken += [owner.epoch(), owner.epoch()]
    assert spoken == sorted(spoken)
    assert len(set(spoken)) == 4


def test_two_controllers_speak_for_one_cell_and_routers_keep_the_newer_ones_target():
    """Both read the same log, so their targets of a tick are the same bytes; only one of them is heard."""
    table: dict[bytes, bytes] = {}
    old, new, heard = Agent(5_000, table), Agent(3_000, table), TargetTable()

    def speak(agent, tick):
        agent.state, _ = apply(agent.state, capacity_window(tick))
        agent.state, records = apply(agent.state, latency_window(tick))
        target = next(record for record in records if type(record).__name__ == "CandidateTarget")
        return target, agent.epoch()

    targets = [speak(old, tick) for tick in range(1, 4)]
    new.state = old.state
    late = speak(old, 4)
    for target, epoch in targets:
        assert heard.update(target, epoch=epoch)
    ahead = [speak(new, tick) for tick in range(4, 7)]
    assert encode(ahead[0][0]) == encode(late[0])
    for target, epoch in ahead:
        assert heard.update(target, epoch=epoch)
    with pytest.raises(ShutOutError):
        heard.update(late[0], epoch=late[1])
    last = heard.last("us-east")
    assert last is not None
    assert last.window_end_ms == 7 * WINDOW_MS
