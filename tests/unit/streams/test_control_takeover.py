"""States of earlier releases: what is taken over, and that the next target says so."""

from pathlib import Path

import msgspec
import pytest

from schemas.records import CandidateTarget
from streams.control.loop import Loop
from streams.control.processor import apply
from streams.control.state import CellState, StateError, decode_state, encode_state
from tests.unit.streams.control_makers import capacity_window, command_window, latency_window

# What the release of version 2 wrote after windows 1 and 2 of both kinds, an override and capacity windows 3 and 4.
VERSION_2 = bytes.fromhex(Path(__file__).with_name("control_state_2.hex").read_text())


def version_1(state: CellState) -> bytes:
    """State as version 1 wrote it: extras in place of the loop, a p99 in place of histograms, one pool's speed."""
    fields = msgspec.to_builtins(state, builtin_types=(bytes,))
    fields["extras"] = 50
    del fields["loop"]
    estimates = fields["estimates"]
    fields["estimates"] = {
        "units_done": estimates["wide"]["units_done"],
        "busy_s": estimates["wide"]["busy_s"],
        "request_rate_per_s": estimates["request_rate_per_s"],
    }
    for waiting in fields["pending_latency"]:
        del waiting["latency"]
        waiting |= {"num_samples": 200, "p99_ms": 40.0}
    return b"\x01" + msgspec.msgpack.encode(fields)


def play(log, state):
    made = []
    for window in log:
        state, records = apply(state, window)
        made += [record for record in records if isinstance(record, CandidateTarget)]
    return state, made


def test_a_state_of_version_2_goes_on_where_it_stood_and_says_so():
    state = decode_state(VERSION_2)
    assert (state.last_tick, state.last_capacity, state.last_latency, state.num_ticks) == (2, 4, 2, 2)
    assert [facts.window_index for facts in state.pending_capacity] == [3, 4]
    assert state.hold is not None
    assert (state.hold.candidate_target, state.hold.coverage) == (300, None)
    assert state.loop.target > 100.0
    # What a fresh controller of this release makes of the same log.
    log = [capacity_window(1), latency_window(1), capacity_window(2), latency_window(2)]
    log += [command_window(3, "override", candidate_target=300, expires_ms=900_000)]
    log += [capacity_window(3), capacity_window(4, units=2.5)]
    fresh, _ = play(log, CellState(cell="us-east"))
    assert state.estimates == fresh.estimates
    rest = [latency_window(3), latency_window(4), command_window(5, "resume"), capacity_window(5), latency_window(5)]
    _, made = play(rest, state)
    _, expected = play(rest, fresh)
    assert [target.candidate_target for target in made] == [target.candidate_target for target in expected]
    assert [target.extra_budget_units_s for target in made] == [target.extra_budget_units_s for target in expected]
    assert "replaced by a newer one" in made[0].detail
    assert "replaced" not in made[1].detail


def test_a_state_of_version_1_goes_on_from_its_target_and_says_so():
    log = [capacity_window(1), latency_window(1), command_window(2, "freeze"), capacity_window(2), capacity_window(3)]
    old, (target,) = play(log, CellState(cell="us-east"))
    state = decode_state(version_1(old))
    assert (state.last_tick, state.last_capacity, state.last_latency) == (1, 3, 1)
    assert (state.estimates, state.hold, state.num_ticks) == (old.estimates, old.hold, 1)
    assert state.loop == Loop(target=float(target.candidate_target))
    _, (following,) = play([latency_window(2)], state)
    assert (following.window_index, following.candidate_target) == (2, target.candidate_target)
    assert "replaced by a newer one" in following.detail


def test_a_state_of_version_1_without_its_target_begins_at_base():
    old, _ = play([capacity_window(1), latency_window(1), latency_window(2)], CellState(cell="us-east"))
    bare = msgspec.structs.replace(old, sent_capacity=None, sent_latency=None)
    state = decode_state(version_1(bare))
    assert state.loop == Loop()
    assert state.pending_latency == ()
    _, made = play([capacity_window(2), capacity_window(3), latency_window(3)], state)
    assert [target.window_index for target in made] == [3]


def test_states_of_later_releases_are_refused():
    with pytest.raises(StateError, match="04"):
        decode_state(b"\x04" + encode_state(CellState(cell="a"))[1:])
