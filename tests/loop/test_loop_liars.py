"""One of five reporters lies by a hundred times: of latency, requests, busy time or work done, in closed loop."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import msgspec
import pytest

from schemas.histogram import ExponentialHistogram
from schemas.records import ControlWindow, HistogramFields, LatencyWindow, ReporterFigures, RouterFigures, RouteWindow
from tests.loop.plants import QueuePlant, Seen
from tests.loop.rig import PLENTY_UNITS, SPAN, Rig, seen_window
from tests.unit.streams.control_makers import histogram

NUM_REPORTERS = 5
LIAR = "x-4"
LIE_AT = 1_060
RATE_PER_S = 20.0
# Units that pay for about 200 extras.
SCARCE_UNITS = 200 * RATE_PER_S / (0.7 * 50_000.0)

Lie = Callable[["Reports"], "Reports"]


@dataclass(frozen=True, kw_only=True)
class Reports:
    """What one source says of one window, as router and as replica."""

    num_requests: int
    latencies_ms: list[float]
    busy_us: int
    units_done: int


def honest(reports: Reports) -> Reports:
    return reports


def times(factor: float, figure: str) -> Lie:
    def lie(reports: Reports) -> Reports:
        said = vars(reports)
        if figure == "latency":
            return Reports(**{**said, "latencies_ms": [factor * time_ms for time_ms in reports.latencies_ms]})
        return Reports(**{**said, figure: round(factor * said[figure])})

    return lie


@dataclass(kw_only=True)
class ReportedRig(Rig):
    """A rig whose latency window is put together from five sources, one of which may lie from window LIE_AT on."""

    plant: QueuePlant = field(
        default_factory=lambda: QueuePlant(rate_per_s=RATE_PER_S, capacity_per_s=320.0 * RATE_PER_S)
    )
    lie: Lie = honest

    def latency(self) -> ControlWindow:
        seen = self.plant.respond(self.extras, window_s=self.window_ms / 1_000)
        window = seen_window(self.index, seen, window_ms=self.window_ms)
        assert window.latency is not None
        truth = [of_one(seen) for _ in range(NUM_REPORTERS)]
        said = [*truth[:-1], self.lie(truth[-1]) if self.index >= LIE_AT else truth[-1]]
        return msgspec.structs.replace(window, latency=put_together(window.latency, said))


def of_one(seen: Seen) -> Reports:
    """A fifth of what was seen, with exponential times of the same p99."""
    num_requests = len(seen.latencies_ms) // NUM_REPORTERS
    mean_ms = seen.latencies_ms[0] / math.log(100.0)
    units = seen.admitted // NUM_REPORTERS
    return Reports(
        num_requests=num_requests,
        latencies_ms=[-mean_ms * math.log(1.0 - (rank + 0.5) / num_requests) for rank in range(num_requests)],
        busy_us=round(units / 50_000.0 * 1e6),
        units_done=units,
    )


def put_together(latency: LatencyWindow, said: list[Reports]) -> LatencyWindow:
    """As ingest does: sums and merged histograms, and who said what beside them."""
    names = [f"x-{number}" for number in range(NUM_REPORTERS)]
    routers = [
        RouterFigures(source=name, num_requests=reports.num_requests, latency=histogram(reports.latencies_ms))
        for name, reports in zip(names, said, strict=True)
    ]
    replicas = [
        ReporterFigures(
            source=name,
            num_work=100,
            num_answered=100,
            p99_us=20_000,
            busy_us=reports.busy_us,
            units_done=reports.units_done,
        )
        for name, reports in zip(names, said, strict=True)
    ]
    merged = ExponentialHistogram()
    for router in routers:
        merged.add_fields(**msgspec.structs.asdict(router.latency))
    (wide,) = latency.routes
    return msgspec.structs.replace(
        latency,
        latency=HistogramFields(**merged.to_fields()),
        num_requests=sum(router.num_requests for router in routers),
        num_routers=NUM_REPORTERS,
        routers=routers,
        routes=[of_route(wide, replicas)],
    )


def of_route(route: RouteWindow, replicas: list[ReporterFigures]) -> RouteWindow:
    return msgspec.structs.replace(
        route,
        busy_us=sum(replica.busy_us for replica in replicas),
        units_done=sum(replica.units_done for replica in replicas),
        num_reporters=NUM_REPORTERS,
        reporters=replicas,
    )


RIGS = {"latency binds": PLENTY_UNITS, "capacity binds": SCARCE_UNITS}
RAISING = [(0.01, "latency"), (0.01, "num_requests"), (0.01, "busy_us"), (100.0, "units_done")]
LOWERING = [(100.0, "latency"), (100.0, "num_requests"), (100.0, "busy_us"), (0.01, "units_done")]


def run(lie: Lie, units: float) -> ReportedRig:
    rig = ReportedRig(lie=lie, units=units)
    rig.run(LIE_AT - rig.index + 60)
    return rig


@cache
def true_run(units: float) -> ReportedRig:
    return run(honest, units)


def extras(rig: ReportedRig) -> list[int]:
    base = rig.limits.base_candidates
    return [target.candidate_target - base for target in rig.targets if target.window_index >= LIE_AT]


@pytest.mark.parametrize("units", RIGS.values(), ids=RIGS)
@pytest.mark.parametrize(("factor", "figure"), RAISING)
def test_a_lie_that_would_raise_the_target_moves_it_by_less_than_a_twentieth(factor, figure, units):
    true, lied = true_run(units), run(times(factor, figure), units)
    assert extras(true)[-1] >= 190
    moves = [abs(one - other) for one, other in zip(extras(true), extras(lied), strict=True)]
    assert max(moves) <= 0.05 * SPAN
    first = next(target for target in lied.targets if target.window_index == LIE_AT)
    assert first.excluded == [LIAR]
    assert f"not counted: {LIAR}" in first.detail


@pytest.mark.parametrize("units", RIGS.values(), ids=RIGS)
@pytest.mark.parametrize(("factor", "figure"), LOWERING)
def test_a_lie_that_would_lower_it_never_raises_it_and_does_not_count_for_long(factor, figure, units):
    true, lied = true_run(units), run(times(factor, figure), units)
    # Up again it may step over its rest, but not by more than the loop does without a liar.
    assert max(extras(lied)) <= max(extras(true)) + 0.01 * SPAN
    named = [target.window_index for target in lied.targets if target.excluded == [LIAR]]
    assert named[0] - LIE_AT < 5
    assert named == list(range(named[0], lied.index))
    assert abs(extras(lied)[-1] - extras(true)[-1]) <= 0.02 * SPAN


@pytest.mark.parametrize("units", RIGS.values(), ids=RIGS)
def test_honest_reporters_are_never_named(units):
    assert all(not target.excluded and "not counted" not in target.detail for target in true_run(units).targets)
