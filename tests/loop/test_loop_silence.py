"""Half a tick, no tick, an empty one, one from the past: candidates and coverage are held or at base, never higher."""

from collections.abc import Callable
from copy import deepcopy
from functools import cache

import msgspec
import pytest

from ranking.client.target_table import TargetTable
from schemas.records import CandidateTarget, ControlWindow, HistogramFields, RouterFigures
from streams.control.settings import DEFAULT_SETTINGS
from tests.loop.cell_rig import CELL, SPAN, WINDOW_MS, CellRig
from tests.loop.rig import assert_refused

RAMP_TICKS = 60
VALIDITY = DEFAULT_SETTINGS.validity_windows
Windows = Callable[[CellRig], list[ControlWindow]]


@cache
def _settled() -> CellRig:
    rig = CellRig()
    rig.run(100)
    assert rig.extras > 0.2 * SPAN
    assert rig.target.coverage > 0.2
    return rig


def running() -> CellRig:
    """A cell at rest, with both levers in use."""
    return deepcopy(_settled())


def capacity_alone(rig: CellRig) -> list[ControlWindow]:
    return [rig.capacity()]


def latency_alone(rig: CellRig) -> list[ControlWindow]:
    return [rig.latency()]


def nothing(rig: CellRig) -> list[ControlWindow]:
    return []


def not_higher(target: CandidateTarget, before: CandidateTarget) -> bool:
    return target.candidate_target <= before.candidate_target and target.coverage <= before.coverage


def is_back(target: CandidateTarget, before: CandidateTarget) -> bool:
    return (
        abs(target.candidate_target - before.candidate_target) <= 0.02 * SPAN
        and abs(target.coverage - before.coverage) <= 0.02 * CellRig().limits.max_coverage
    )


@pytest.mark.parametrize("num_silent", [1, VALIDITY - 1, VALIDITY, 10])
@pytest.mark.parametrize("silence", [capacity_alone, latency_alone, nothing])
def test_half_a_tick_is_none_and_a_cell_that_stays_silent_is_at_base(silence: Windows, num_silent: int):
    rig, routers = running(), TargetTable()
    before = rig.target
    routers.update(before)
    split = dict(rig.snapshots)
    for _ in range(num_silent):
        assert rig.feed(silence(rig)) == []
        rig.index += 1
    # What is said of a pool before a tick has no split: the one of the last tick stands.
    rig.snapshots = split
    # Silence moves nothing, and the last word runs out by itself.
    assert rig.target == before
    assert routers.valid(CELL, before.window_end_ms + VALIDITY * WINDOW_MS + 1) is None
    first = rig.tick()
    assert not_higher(first, before)
    assert f"{num_silent} windows before this one were skipped" in first.detail
    # As if nothing had been while the target was valid; else it has run out, and it rises from base.
    is_held = num_silent < VALIDITY
    assert (first.candidate_target > rig.limits.base_candidates + 0.11 * SPAN) == is_held
    series = rig.run(5 if is_held else RAMP_TICKS)
    assert is_back(series[-1], before)
    if not is_held:
        rises = [
            later.candidate_target - earlier.candidate_target
            for earlier, later in zip([first, *series], series, strict=False)
        ]
        assert max(rises) <= rig.limits.rise_share * SPAN + 1


def no_pool(rig: CellRig) -> list[ControlWindow]:
    window = rig.capacity()
    assert window.capacity is not None
    return [msgspec.structs.replace(window, capacity=msgspec.structs.replace(window.capacity, pools=[])), rig.latency()]


def no_router(rig: CellRig) -> list[ControlWindow]:
    return [rig.capacity(), emptied(rig.latency(), num_routers=0)]


def no_request(rig: CellRig) -> list[ControlWindow]:
    return [rig.capacity(), emptied(rig.latency(), num_routers=1)]


def emptied(window: ControlWindow, *, num_routers: int) -> ControlWindow:
    assert window.latency is not None
    nobody = HistogramFields(scale=20, offset=0, counts=b"", zero_count=0, count=0, sum_micro=0)
    latency = msgspec.structs.replace(
        window.latency,
        latency=nobody,
        upstream=None,
        routes=[],
        accounts=[],
        segments=[],
        routers=[],
        num_routers=num_routers,
        num_requests=0,
        num_results=0,
    )
    return msgspec.structs.replace(window, latency=latency)


@pytest.mark.parametrize(
    ("fault", "reason", "is_at_base"),
    [(no_pool, "no_capacity", True), (no_router, "blind", True), (no_request, "steady", False)],
)
def test_what_is_empty_is_base_or_held_and_the_way_back_is_bounded(fault: Windows, reason: str, is_at_base: bool):
    rig = running()
    before = rig.target
    for _ in range(5):
        last = rig.target
        (target,) = rig.feed(fault(rig))
        assert not_higher(target, last)
        assert target.reason == reason
    if is_at_base:
        assert (rig.extras, rig.target.coverage) == (0, 0.0)
    else:
        assert is_back(rig.target, before)
    assert is_back(rig.run(RAMP_TICKS if is_at_base else 5)[-1], before)


def test_windows_from_the_past_move_nothing_whatever_they_say():
    rig, calm = running(), running()
    for back in (1, 2, 7, 500):
        at, rig.index = rig.index, rig.index - back
        plant = deepcopy(rig.plant)
        old = [*no_pool(rig), *no_router(rig)]
        rig.index, rig.plant = at, plant
        # What an index led to is said again when it is the last one, and nothing else.
        assert [made for made in rig.feed(old) if made != calm.target] == []
        rig.index = at
        del rig.targets[len(calm.targets) :]
        assert rig.tick() == calm.tick()


def test_what_is_no_number_or_no_histogram_is_refused_and_costs_one_window():
    rig = running()
    before = rig.target
    window = running().latency()
    assert window.latency is not None
    broken = HistogramFields(scale=3, offset=0, counts=b"\x01" * 8, zero_count=0, count=5, sum_micro=5)
    route = window.latency.routes[0]
    for changes in (
        {"latency": broken},
        {"upstream": broken},
        {"routes": [msgspec.structs.replace(route, latency=broken)]},
        {"routers": [RouterFigures(source="r-0", num_requests=5, latency=broken)]},
    ):
        poisoned = msgspec.structs.replace(window, latency=msgspec.structs.replace(window.latency, **changes))
        assert_refused(poisoned)
    split = dict(rig.snapshots)
    assert rig.feed([rig.capacity()]) == []
    rig.index, rig.snapshots = rig.index + 1, split
    assert not_higher(rig.tick(), before) or is_back(rig.target, before)
    assert is_back(rig.run(5)[-1], before)
