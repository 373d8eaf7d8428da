"""The controller as a pure function: alignment, repetition, restarts; the same log gives the same bytes."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.framing import encode
from schemas.records import CandidateTarget, ControllerSnapshot, PoolSnapshot
from streams.control.processor import MAX_PENDING, apply
from streams.control.settings import ControlSettings
from streams.control.state import CellState, decode_state, encode_state
from tests.unit.streams.control_makers import (
    LIMITS,
    WINDOW_MS,
    capacity_window,
    command_window,
    latency_window,
)

SETTINGS = ControlSettings(validity_windows=3, snapshot_ticks=4)


def play(log, state=None, control=SETTINGS):
    """State and records after a log, and the records of each step."""
    state = state or CellState(cell="us-east")
    steps = []
    for window in log:
        state, records = apply(state, window, settings=control)
        steps.append(records)
    return state, steps


def flat(steps):
    return [record for records in steps for record in records]


def targets(steps):
    return {record.window_index: record for record in flat(steps) if isinstance(record, CandidateTarget)}


def pair(index, **changes):
    return [capacity_window(index), latency_window(index, **changes)]


def test_a_tick_needs_both_windows_whichever_comes_first():
    for log in (pair(7), pair(7)[::-1]):
        _, steps = play(log)
        assert not any(isinstance(record, CandidateTarget) for record in steps[0])
        assert list(targets(steps)) == [7]


def test_pools_are_published_with_the_capacity_window_at_once():
    _, steps = play([capacity_window(7)])
    (pool,) = steps[0]
    assert isinstance(pool, PoolSnapshot)
    assert (pool.cell, pool.accelerator, pool.units_micro) == ("us-east", "a100", 4_000_000)
    assert pool.valid_until_ms == 8 * WINDOW_MS + 3 * WINDOW_MS


def test_the_target_names_its_windows_and_how_long_it_holds():
    _, steps = play(pair(7))
    target = targets(steps)[7]
    assert [(ref.kind, ref.source_partition, ref.window_index) for ref in target.manifest] == [
        ("capacity", 3, 7),
        ("latency", 3, 7),
    ]
    assert target.window_end_ms == 8 * WINDOW_MS
    assert target.valid_until_ms == 11 * WINDOW_MS
    assert target.request_rate_per_s == 100.0
    assert target.coverage == 0.0
    assert target.reason == "rising"
    assert target.latency_p99_ms == pytest.approx(40.0, rel=0.001)
    assert LIMITS.base_candidates < target.candidate_target <= LIMITS.base_candidates + 50
    assert target.controller_version == "pid-2"


def test_a_window_seen_again_changes_nothing_and_sends_what_it_sent():
    log = [*pair(7), *pair(8)]
    state, steps = play(log)
    again, repeated = play(log[2:], state)
    assert encode_state(again) == encode_state(state)
    assert repeated == steps[2:]


def test_an_older_window_seen_again_sends_nothing_older_than_what_was_sent():
    state, _ = play([*pair(7), *pair(8)])
    _, repeated = play(pair(7), state)
    assert repeated == [(), ()]


def test_a_window_that_never_came_is_skipped_and_the_next_target_says_so():
    log = [*pair(7), capacity_window(8), capacity_window(9), latency_window(9)]
    _, steps = play(log)
    assert list(targets(steps)) == [7, 9]
    assert "1 windows before this one were skipped" in targets(steps)[9].detail
    assert "skipped" not in targets(steps)[7].detail


def test_after_a_gap_longer_than_a_targets_validity_it_rises_from_base():
    near = targets(play([*pair(7), *pair(10)])[1])
    far = targets(play([*pair(7), *pair(11)])[1])
    assert near[10].candidate_target > near[7].candidate_target
    assert far[11].candidate_target == far[7].candidate_target


def test_pending_windows_are_bounded_and_the_tick_resumes_with_the_newest():
    num_windows = MAX_PENDING + 20
    state, _ = play([capacity_window(index) for index in range(num_windows)])
    assert len(state.pending_capacity) == MAX_PENDING
    state, steps = play([latency_window(index) for index in range(num_windows)], state)
    assert list(targets(steps)) == list(range(20, num_windows))
    assert not state.pending_capacity
    assert not state.pending_latency


def test_snapshots_come_at_the_first_tick_and_every_so_many():
    _, steps = play([window for index in range(10) for window in pair(index)])
    snapshots = [record.window_index for record in flat(steps) if isinstance(record, ControllerSnapshot)]
    assert snapshots == [0, 4, 8]


def test_when_capacity_goes_the_target_is_base_in_one_tick():
    log = [window for index in range(5) for window in pair(index)]
    log += [capacity_window(5, units=0.0), latency_window(5)]
    log += [capacity_window(6, units=2.0, noticed=2.0), latency_window(6)]
    _, steps = play(log)
    assert targets(steps)[4].candidate_target > 100
    assert (targets(steps)[5].candidate_target, targets(steps)[5].reason) == (100, "no_capacity")
    assert (targets(steps)[6].candidate_target, targets(steps)[6].reason) == (100, "no_capacity")


def test_units_of_no_use_now_pay_for_nothing():
    log = [capacity_window(0, units=4.0, unusable=3.0, noticed=0.5), latency_window(0)]
    target = targets(play(log)[1])[0]
    assert target.extra_budget_units_s == pytest.approx(0.5 * 50_000.0 * 0.7)


def test_an_empty_latency_window_is_blindness_not_calm():
    log = [*pair(0), capacity_window(1), latency_window(1, num_routers=0, num_requests=0)]
    _, steps = play(log)
    assert (targets(steps)[1].candidate_target, targets(steps)[1].reason) == (100, "blind")


def test_capacity_is_measured_per_busy_second_not_by_throughput():
    # A pool that did a hundred candidates in two busy milliseconds is as fast as its curve, not a slow one.
    limits = msgspec.structs.replace(LIMITS, rise_share=1.0)
    log = [capacity_window(0, units=1.0, limits=limits), latency_window(0, busy_us=2_000, units_done=100)]
    target = targets(play(log)[1])[0]
    assert target.extra_budget_units_s == pytest.approx(0.7 * 50_000.0, rel=0.01)


def test_a_busy_pool_is_planned_by_its_measured_speed():
    log = []
    for index in range(8):
        log += [capacity_window(index, units=1.0), latency_window(index, busy_us=2_000_000, units_done=20_000)]
    # 10,000 per busy second where the curve says 50,000; the curve's weight is a twentieth of a second of nine.
    assert targets(play(log)[1])[7].extra_budget_units_s == pytest.approx(0.7 * 10_000.0, rel=0.03)


def test_a_surge_of_requests_lowers_the_target_in_the_same_tick():
    log = [window for index in range(40) for window in pair(index)]
    log += [capacity_window(40), latency_window(40, num_requests=20_000)]
    made = targets(play(log)[1])
    assert made[39].candidate_target == 600
    assert made[40].request_rate_per_s == 10_000.0
    assert (made[40].candidate_target, made[40].reason) == (100 + 14, "capacity")


def test_a_quiet_window_keeps_the_rate_and_the_target():
    log = [*pair(0), *pair(1), capacity_window(2), latency_window(2, num_requests=0, offered=0)]
    made = targets(play(log)[1])
    assert made[2].candidate_target == made[1].candidate_target
    assert made[2].request_rate_per_s == 100.0


def test_sheds_in_the_accounts_pull_the_target_down():
    log = [*pair(0), *pair(1), capacity_window(2), latency_window(2, offered=10_000, shed=5_050)]
    made = targets(play(log)[1])
    # Twice what may be offered is: an error of -1, by the integral gain of 0.18 and, near base, the floor of 0.1.
    assert (made[2].reason, made[1].candidate_target - made[2].candidate_target) == ("shedding", 9)


def test_operators_freeze_override_and_resume_in_the_order_of_the_log():
    log = [
        *pair(0),
        command_window(1, "freeze"),
        *pair(1),
        command_window(2, "override", candidate_target=400),
        *pair(2),
        command_window(3, "resume"),
        *pair(3),
    ]
    made = targets(play(log)[1])
    assert made[0].candidate_target > 100
    assert made[1].candidate_target == made[0].candidate_target
    assert made[2].candidate_target == 400
    # Half a hundredth of the span at the change of who rules.
    assert made[3].candidate_target == 402
    assert [made[index].reason for index in range(4)] == ["rising", "operator", "operator", "rising"]


def test_a_command_ends_by_event_time():
    log = [*pair(0), command_window(1, "freeze", expires_ms=3 * WINDOW_MS), *pair(1), *pair(2), *pair(3)]
    made = targets(play(log)[1])
    assert [made[index].reason for index in range(4)] == ["rising", "operator", "steady", "rising"]


def test_commands_heard_again_after_a_crash_leave_the_same_state():
    log = [*pair(0), command_window(1, "freeze"), *pair(1), command_window(2, "resume"), *pair(2)]
    state, _ = play(log)
    again, _ = play(log[2:], state)
    assert encode_state(again) == encode_state(state)


def test_windows_of_another_length_start_afresh_instead_of_being_taken_for_old_ones():
    log = [*pair(1_000), *pair(1_001)]
    # Windows of five times the length: their indices are a fifth.
    log += [capacity_window(300, window_ms=10_000), latency_window(300, window_ms=10_000)]
    state, steps = play(log)
    assert targets(steps)[300].candidate_target == targets(steps)[1_000].candidate_target
    assert "windows are now 10000 ms" in targets(steps)[300].detail
    _, stale = play(pair(1_001), state)
    assert stale == [(), ()]


@st.composite
def logs(draw):
    """A log as the broker may hold it: two kinds, each in order, with gaps, repetitions and commands, interleaved."""
    indices = sorted(draw(st.sets(st.integers(0, 25), min_size=1)))
    kinds = []
    for make in (_random_capacity, _random_latency):
        windows = [draw(make(index)) for index in indices if draw(st.integers(0, 9)) > 0]
        kinds.append([window for window in windows for _ in range(draw(st.integers(1, 2)))])
    capacity, latency = kinds
    log = []
    while capacity or latency:
        source = capacity if not latency or (capacity and draw(st.booleans())) else latency
        log.append(source.pop(0))
        if draw(st.integers(0, 9)) == 0:
            action = draw(st.sampled_from(["freeze", "override", "resume"]))
            log.append(command_window(log[-1].window_index, action, candidate_target=draw(st.integers(0, 900))))
    return log


def _random_capacity(index):
    return st.builds(
        lambda units, noticed: capacity_window(index, units=units, noticed=noticed),
        units=st.floats(0.0, 8.0),
        noticed=st.floats(0.0, 2.0),
    )


def _random_latency(index):
    return st.builds(
        lambda latency_ms, num_requests, num_routers, shed, busy_us, units_done: latency_window(
            index,
            latency_ms=latency_ms,
            num_requests=num_requests,
            num_routers=num_routers,
            shed=shed,
            busy_us=busy_us,
            units_done=units_done,
        ),
        latency_ms=st.floats(1.0, 400.0),
        num_requests=st.integers(0, 500),
        num_routers=st.integers(0, 2),
        shed=st.integers(0, 400),
        busy_us=st.integers(0, 4_000_000),
        units_done=st.integers(0, 200_000),
    )


def framed(steps):
    return [[encode(record) for record in records] for records in steps]


@given(log=logs(), data=st.data())
@settings(deadline=None, max_examples=40)
def test_the_same_log_gives_the_same_bytes_across_restarts_of_the_table(log, data):
    whole_state, whole = play(log)
    cut = data.draw(st.integers(0, len(log)))
    state, first = play(log[:cut])
    state, second = play(log[cut:], decode_state(encode_state(state)))
    assert framed(first + second) == framed(whole)
    assert encode_state(state) == encode_state(whole_state)


@given(log=logs(), data=st.data())
@settings(deadline=None, max_examples=40)
def test_going_back_in_the_log_after_a_crash_repeats_and_alters_nothing(log, data):
    whole_state, whole = play(log)
    crash = data.draw(st.integers(0, len(log)))
    back = data.draw(st.integers(0, crash))
    state, first = play(log[:crash])
    state, second = play(log[back:], decode_state(encode_state(state)))
    assert encode_state(state) == encode_state(whole_state)
    values: dict[tuple[type, int, str], bytes] = {}
    for record in flat(first) + flat(second):
        place = (type(record), record.window_index, getattr(record, "accelerator", ""))
        assert values.setdefault(place, encode(record)) == encode(record)
    assert set(values.values()) == {encode(record) for record in flat(whole)}
    if crash and first[-1]:
        # Whatever the last window before the crash led to may not have reached the topics: it is sent again.
        resent = [encode(record) for record in flat(second[: crash - back])]
        assert back == crash or all(encode(record) in resent for record in first[-1])


@given(log=logs(), data=st.data())
@settings(deadline=None, max_examples=40)
def test_a_replay_from_a_snapshot_gives_the_same_targets_from_there_on(log, data):
    _, whole = play(log)
    # Where each was sent first: one sent again stands behind windows that it does not know yet.
    places: dict[bytes, int] = {}
    for number, records in enumerate(whole):
        for record in records:
            if isinstance(record, ControllerSnapshot):
                places.setdefault(record.state, number)
    if not places:
        return
    snapshot, place = data.draw(st.sampled_from(sorted(places.items())))
    _, resumed = play(log[place + 1 :], decode_state(snapshot))
    later = set(map(encode, flat(whole[place + 1 :]))) - set(map(encode, flat(whole[: place + 1])))
    assert later <= set(map(encode, flat(resumed)))
    assert set(map(encode, flat(resumed))) <= set(map(encode, flat(whole)))


@given(log=logs(), data=st.data())
@settings(deadline=None, max_examples=40)
def test_targets_and_pools_do_not_depend_on_how_the_two_kinds_are_interleaved(log, data):
    windows = [window for window in log if window.kind != "command"]
    capacity = [window for window in windows if window.kind == "capacity"]
    latency = [window for window in windows if window.kind == "latency"]
    other = []
    while capacity or latency:
        source = capacity if not latency or (capacity and data.draw(st.booleans())) else latency
        other.append(source.pop(0))

    def said(log):
        return {encode(record) for record in flat(play(log)[1]) if not isinstance(record, ControllerSnapshot)}

    assert said(other) == said(windows)


@given(log=logs())
@settings(deadline=None, max_examples=40)
def test_every_target_stays_within_the_limits_and_rises_by_one_step(log):
    _, steps = play([window for window in log if window.kind != "command"])
    previous = LIMITS.base_candidates
    for _, target in sorted(targets(steps).items()):
        assert LIMITS.base_candidates <= target.candidate_target <= LIMITS.max_candidates
        assert target.candidate_target <= previous + 50
        previous = target.candidate_target
