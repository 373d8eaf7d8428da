"""Both levers on, and bad, missing, repeated windows: held or base, never higher, and nothing stays; a shifted mix."""

import math
import random
from collections.abc import Callable

import msgspec
import pytest

from schemas.records import ControlWindow, LatencyWindow, SegmentTraffic
from streams.control.state import encode_state
from tests.loop.cell_rig import LIMITS, SPAN, CellRig, Pool
from tests.loop.two_routes import Queue, TwoRoutes
from tests.unit.streams.control_makers import histogram

TOP = LIMITS.max_coverage
HUGE = 2**62

Windows = Callable[[CellRig], list[ControlWindow]]


def with_latency(rig: CellRig, change: Callable[[LatencyWindow], LatencyWindow]) -> list[ControlWindow]:
    window = rig.latency()
    assert window.latency is not None
    return [rig.capacity(), msgspec.structs.replace(window, latency=change(window.latency))]


def no_reporter(rig: CellRig) -> list[ControlWindow]:
    def silent(latency: LatencyWindow) -> LatencyWindow:
        return msgspec.structs.replace(
            latency, num_routers=0, num_requests=0, routes=[], accounts=[], segments=[], latency=histogram([])
        )

    return with_latency(rig, silent)


def garbage_counts(rig: CellRig) -> list[ControlWindow]:
    """Counts as large as a record can carry, whose sums are larger."""

    def garbage(latency: LatencyWindow) -> LatencyWindow:
        accounts = [msgspec.structs.replace(account, offered=HUGE, admitted=0) for account in latency.accounts]
        routes = [
            msgspec.structs.replace(route, busy_us=HUGE, units_done=HUGE, num_answered=HUGE) for route in latency.routes
        ]
        segments = [
            SegmentTraffic(segment=name, num_requests=HUGE, num_allowed=HUGE, probability_micro=HUGE, num_routed=HUGE)
            for name in ("a", "b", "c")
        ]
        return msgspec.structs.replace(latency, accounts=accounts * 2, routes=routes, segments=segments)

    return with_latency(rig, garbage)


def endless_pool(rig: CellRig) -> list[ControlWindow]:
    """A pool beyond all bounds."""
    capacity = rig.capacity()
    assert capacity.capacity is not None
    pools = [msgspec.structs.replace(pool, units_micro=HUGE) for pool in capacity.capacity.pools]
    return [
        msgspec.structs.replace(capacity, capacity=msgspec.structs.replace(capacity.capacity, pools=pools)),
        rig.latency(),
    ]


def no_pool(rig: CellRig) -> list[ControlWindow]:
    capacity = rig.capacity()
    assert capacity.capacity is not None
    return [
        msgspec.structs.replace(capacity, capacity=msgspec.structs.replace(capacity.capacity, pools=[])),
        rig.latency(),
    ]


@pytest.mark.parametrize("fault", [no_reporter, garbage_counts, endless_pool, no_pool])
@pytest.mark.parametrize(("rate_per_s", "powerful_ms"), [(100.0, 60.0), (5.0, 60.0), (20.0, 15.0)])
def test_a_fault_raises_no_target_and_nothing_of_it_stays(fault: Windows, rate_per_s: float, powerful_ms: float):
    powerful = Queue(lever="sbm", speeds={"a100": 40_000.0}, idle_p99_ms=powerful_ms)
    plant = TwoRoutes(powerful=powerful, rate_per_s=rate_per_s)
    rig = CellRig(plant=plant, pools=[Pool(units=0.02 * rate_per_s)])
    rest = rig.run(200)[-1]
    for _ in range(5):
        before = rig.target
        rig.feed(fault(rig))
        assert rig.target.candidate_target <= before.candidate_target
        # From nothing a handful of requests may try the powerful route.
        assert rig.target.coverage <= max(before.coverage, LIMITS.rise_share * TOP)
    rig.run(60)
    assert rig.target.candidate_target == pytest.approx(rest.candidate_target, abs=0.02 * SPAN)
    assert rig.target.coverage == pytest.approx(rest.coverage, abs=0.02 * TOP)
    assert rig.target.extra_budget_units_s == pytest.approx(rest.extra_budget_units_s, rel=0.02)


@pytest.mark.parametrize(("num_missing", "is_at_base"), [(2, False), (3, True)])
def test_after_windows_that_never_came_both_go_on_or_begin_anew_as_routers_do(num_missing, is_at_base):
    rig = CellRig()
    before = rig.run(150)[-1]
    # Routers hold to a target for three windows.
    rig.index += num_missing
    after = rig.tick()
    assert f"{num_missing} windows before this one were skipped" in after.detail
    if is_at_base:
        assert after.candidate_target - 100 <= LIMITS.rise_share * SPAN
        assert after.coverage <= LIMITS.rise_share * TOP
    else:
        assert after.candidate_target == pytest.approx(before.candidate_target, abs=0.02 * SPAN)
        assert after.coverage == pytest.approx(before.coverage, abs=0.02 * TOP)


def test_windows_heard_again_move_neither_target_nor_split():
    rig, once = CellRig(), CellRig()
    log: list[ControlWindow] = []
    for _ in range(40):
        capacity, latency = rig.capacity(), rig.latency()
        log += [capacity, latency]
        made = rig.feed([capacity, latency, capacity, latency, *log[:2]])
        assert len({msgspec.json.encode(target) for target in made}) == 1
        del rig.targets[-len(made) + 1 :]
    assert rig.targets == once.run(40)
    assert encode_state(rig.state) == encode_state(once.state)


@pytest.mark.parametrize("rate_per_s", [5.0, 40.0])
@pytest.mark.parametrize("seed", range(3))
def test_ten_ticks_after_a_shift_of_the_mix_coverage_is_what_the_target_says(rate_per_s, seed):
    allowed = {"sports": 0.9, "travel": 0.6, "(none)": 0.3}
    plant = TwoRoutes(
        powerful=Queue(lever="sbm", speeds={"a100": 40_000.0}, idle_p99_ms=40.0),
        rate_per_s=rate_per_s,
        mix={"sports": 0.7, "travel": 0.2, "(none)": 0.1},
        allowed_share=allowed,
        noise=0.05,
        dice=random.Random(seed),
    )
    rig = CellRig(plant=plant, limits=msgspec.structs.replace(LIMITS, max_coverage=0.25))
    rig.run(400 if rate_per_s < 10.0 else 200)
    assert rig.target.coverage > 0.15
    plant.mix = {"sports": 0.1, "travel": 0.3, "(none)": 0.6}
    rig.run(10)
    routed = requests = asked = assigned = 0.0
    for _ in range(40):
        applied = rig.target
        shares = {listed.segment: listed.share for listed in applied.segment_shares}
        latency = rig.latency()
        assert latency.latency is not None
        num_requests = latency.latency.num_requests
        requests += num_requests
        asked += num_requests * applied.coverage
        # What is assigned to a request on average, over everybody who may come.
        expected = sum(weight * allowed[segment] * shares[segment] for segment, weight in plant.mix.items())
        assigned += num_requests * expected
        routed += sum(traffic.num_routed for traffic in latency.latency.segments)
        rig.feed([rig.capacity(), latency])
    assert abs(assigned - asked) / requests <= 0.02
    deviation = math.sqrt(0.25 * 0.75 / requests)
    assert abs(routed - asked) / requests <= 0.02 + 3.0 * deviation
