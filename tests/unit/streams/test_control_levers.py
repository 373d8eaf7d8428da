"""Two levers, pools that come and go, commands: the same log gives the same bytes, whatever crashes in between."""

import random
import re
from functools import cache

import msgspec
import pytest

from schemas.framing import encode
from schemas.records import CandidateTarget, ControllerSnapshot, ControlWindow, PoolSnapshot, RouterFigures
from streams.control.processor import apply
from streams.control.settings import ControlSettings
from streams.control.state import CellState, decode_state, encode_state
from tests.loop.cell_rig import LIMITS, WINDOW_MS, CellRig, Pool
from tests.loop.two_routes import TwoRoutes
from tests.unit.streams.control_makers import command_window, histogram

SETTINGS = ControlSettings(snapshot_ticks=4, allocator_ticks=5)
NUM_TICKS = 50
Steps = list[tuple[msgspec.Struct, ...]]


@cache
def log_of(seed: int) -> tuple[ControlWindow, ...]:
    """A log of one cell as its own targets and splits shaped it, with losses, repetitions and commands."""
    dice = random.Random(seed)
    plant = TwoRoutes(rate_per_s=20.0, noise=0.1, dice=dice, upstream_p99_ms=60.0)
    rig = CellRig(plant=plant, limits=msgspec.structs.replace(LIMITS, upstream_limit_ms=80.0), settings=SETTINGS)
    log: list[ControlWindow] = []
    for _ in range(NUM_TICKS):
        rig.pools = [
            Pool(units=dice.choice([0.0, 0.1, 0.4, 0.4])),
            Pool(accelerator="t4", units=dice.choice([0.0, 1.0])),
        ]
        plant.upstream_p99_ms = dice.choice([40.0, 60.0, 90.0, None])
        pair = [rig.capacity(), rig.latency()]
        dice.shuffle(pair)
        if dice.random() < 0.1:
            pair.pop()
        if dice.random() < 0.1:
            action = dice.choice(["freeze", "override", "resume"])
            command = command_window(
                rig.index, action, coverage=0.2 if action == "override" else None, window_ms=WINDOW_MS
            )
            pair.append(command)
        made = rig.feed(pair)
        rig.index += 0 if made else 1
        log += [*pair, *pair[:1]] if dice.random() < 0.2 else pair
    return tuple(log)


def play(log, state: CellState | None = None) -> tuple[CellState, Steps]:
    state = state or CellState(cell="us-east")
    steps = []
    for window in log:
        state, records = apply(state, window, settings=SETTINGS)
        steps.append(records)
    return state, steps


def framed(steps: Steps) -> list[bytes]:
    return [encode(record) for records in steps for record in records]


@pytest.mark.parametrize("seed", range(3))
def test_a_log_makes_targets_coverage_and_splits_at_all(seed):
    _, steps = play(log_of(seed))
    records = [record for made in steps for record in made]
    targets = [record for record in records if isinstance(record, CandidateTarget)]
    assert len(targets) >= 0.7 * NUM_TICKS
    assert {target.coverage > 0.0 for target in targets} == {True, False}
    assert {"upstream", "no_capacity"} <= {target.reason for target in targets}
    assert any(pool.levers and pool.prices for pool in records if isinstance(pool, PoolSnapshot))
    assert all(len({ref.window_index for ref in target.manifest}) == len(target.manifest) - 1 for target in targets)


@pytest.mark.parametrize("seed", range(3))
def test_the_same_log_gives_the_same_bytes_wherever_the_table_was_restarted(seed):
    log = log_of(seed)
    whole_state, whole = play(log)
    for cut in range(0, len(log), 7):
        state, first = play(log[:cut])
        state, second = play(log[cut:], decode_state(encode_state(state)))
        assert framed(first + second) == framed(whole)
        assert encode_state(state) == encode_state(whole_state)


@pytest.mark.parametrize("seed", range(3))
def test_going_back_in_the_log_after_a_crash_alters_nothing_and_sends_again_what_may_be_missing(seed):
    log = log_of(seed)
    whole_state, whole = play(log)
    dice = random.Random(seed)
    for _ in range(8):
        crash = dice.randrange(1, len(log))
        back = dice.randrange(max(0, crash - 6), crash)
        state, first = play(log[:crash])
        state, second = play(log[back:], decode_state(encode_state(state)))
        assert encode_state(state) == encode_state(whole_state)
        assert set(framed(first + second)) == set(framed(whole))
        assert set(framed(first[-1:])) <= set(framed(second[: crash - back]))


@pytest.mark.parametrize("seed", range(3))
def test_a_replay_from_a_snapshot_gives_the_same_records_from_there_on(seed):
    log = log_of(seed)
    _, whole = play(log)
    places: dict[bytes, int] = {}
    for number, records in enumerate(whole):
        for record in records:
            if isinstance(record, ControllerSnapshot):
                places.setdefault(record.state, number)
    assert len(places) >= 5
    for snapshot, place in sorted(places.items())[::3]:
        _, resumed = play(log[place + 1 :], decode_state(snapshot))
        later = set(framed(whole[place + 1 :])) - set(framed(whole[: place + 1]))
        assert later <= set(framed(resumed)) <= set(framed(whole))


@pytest.mark.parametrize("seed", range(3))
def test_records_do_not_depend_on_how_the_two_kinds_are_interleaved(seed):
    windows = [window for window in log_of(seed) if window.kind != "command"]
    capacity = [window for window in windows if window.kind == "capacity"]
    latency = [window for window in windows if window.kind == "latency"]
    ahead, behind = capacity[:20], capacity[20:]
    others = [[*ahead, *latency[:10], *behind, *latency[10:]], [*latency[:20], *capacity, *latency[20:]]]

    def said(log) -> set[bytes]:
        _, steps = play(log)
        return {encode(record) for made in steps for record in made if not isinstance(record, ControllerSnapshot)}

    for other in others:
        assert said(other) == said(windows)


def test_the_manifest_names_every_window_that_the_coverage_was_made_from_too():
    # 200 requests a window, of which two are upgraded at first: latency takes one window, the powerful route many.
    rig = CellRig(plant=TwoRoutes(rate_per_s=20.0))
    targets = rig.run(30)
    moved = [target for target in targets if "samples of" in target.coverage_detail]
    assert moved
    for target in moved:
        found = re.search(r"samples of (\d+) windows", target.coverage_detail)
        assert found is not None
        latency = [ref.window_index for ref in target.manifest if ref.kind == "latency"]
        assert latency == list(range(target.window_index - int(found[1]) + 1, target.window_index + 1))


def test_a_state_of_many_segments_reporters_and_pools_stays_small():
    rig = CellRig(plant=TwoRoutes(rate_per_s=100.0, mix={f"segment-{number}": 1 / 64 for number in range(64)}))
    rig.pools = [Pool(accelerator=name, units=0.5) for name in ("a100", "h100", "l4", "t4", "v100", "cpu", "x", "y")]
    rig.run(30)
    size_bytes = len(encode_state(rig.state))
    rig.run(30)
    # Two targets with their shares, eight pools with theirs, twice, and three sets of limits.
    assert len(encode_state(rig.state)) <= 1.1 * size_bytes <= 64_000


def test_pools_are_said_at_once_and_again_with_their_split_at_the_tick():
    rig = CellRig()
    capacity, latency = rig.capacity(), rig.latency()
    state, first = apply(CellState(cell="us-east"), capacity)
    state, second = apply(state, latency)
    (bare,) = first
    (split,) = [record for record in second if isinstance(record, PoolSnapshot)]
    assert isinstance(bare, PoolSnapshot)
    assert (bare.levers, bare.allocation) == ([], "")
    assert [grant.lever for grant in split.levers] == ["rma", "sbm"]
    assert split.allocation == "program"
    assert (
        msgspec.structs.replace(split, levers=[], prices=[], allocation="", allocation_detail="", bottleneck="") == bare
    )
    # Seen again after a crash, both are sent again.
    assert apply(state, latency)[1] == second
    assert apply(state, capacity)[1] == first


def test_whom_a_window_does_not_count_is_named_in_the_target():
    rig = CellRig()
    for _ in range(8):
        window = rig.latency()
        assert window.latency is not None
        routers = [
            RouterFigures(source=f"router-{number}", num_requests=200, latency=histogram([latency_ms] * 200))
            for number, latency_ms in enumerate([30.0, 30.0, 30.0, 0.3, 30.0])
        ]
        latency = msgspec.structs.replace(window.latency, routers=routers, num_routers=5)
        rig.feed([rig.capacity(), msgspec.structs.replace(window, latency=latency)])
    assert rig.target.excluded == ["router-3"]
    assert "router-3" in rig.target.detail
