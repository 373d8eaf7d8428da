"""What a tick takes from a window: which part says what, and what is not believed."""

import msgspec
import pytest

from schemas.records import Account, ControlWindow, LatencyWindow, SegmentTraffic
from streams.control.facts import MAX_COUNT, LatencyFacts, PowerfulFacts, latency_facts
from streams.control.reporters import judged
from streams.control.suspects import Suspects
from tests.loop.cell_rig import CellRig
from tests.loop.two_routes import TwoRoutes
from tests.unit.streams.control_makers import histogram, latency_window


def facts_of(window: ControlWindow, **changes) -> LatencyFacts:
    assert window.latency is not None
    latency: LatencyWindow = msgspec.structs.replace(window.latency, **changes)
    return latency_facts(window, judged(latency, Suspects()))


def traffic(**changes: int) -> SegmentTraffic:
    sound = {"num_requests": 100, "num_allowed": 90, "probability_micro": 45_000_000, "num_routed": 45}
    return SegmentTraffic(segment="sports", **{**sound, **changes})


def test_who_asks_is_taken_as_it_is_said():
    assert facts_of(latency_window(1), segments=[traffic()]).segments == (traffic(),)


@pytest.mark.parametrize(
    "segments",
    [
        [traffic(num_requests=2**62)],
        [traffic()] * 5,
        [traffic(num_allowed=101)],
        [traffic(num_routed=91)],
        [traffic(probability_micro=90_000_001)],
    ],
)
def test_who_asks_is_not_believed_where_the_counts_cannot_be(segments):
    # A window of 200 requests.
    assert facts_of(latency_window(1), segments=segments).segments == ()


def test_the_powerful_routes_latency_is_the_routers_and_its_work_the_replicas():
    rig = CellRig(plant=TwoRoutes(rate_per_s=20.0))
    rig.run(3)
    window = rig.latency()
    assert window.latency is not None
    told, seen = [route for route in window.latency.routes if route.route == "powerful"]
    powerful = facts_of(window).powerful
    assert powerful.latency == seen.latency
    assert (powerful.busy_us, powerful.units_done, powerful.num_answered) == (
        told.busy_us,
        told.units_done,
        told.num_answered,
    )
    assert powerful.offered > 0
    assert facts_of(latency_window(1)).powerful == PowerfulFacts()


def test_sums_beyond_what_a_record_can_carry_are_bounded():
    huge = Account(lever="rma", offered=2**62, admitted=0, late=0, lost=0, sheds=[])
    facts = facts_of(latency_window(1), accounts=[huge] * 3, upstream=histogram([5.0]))
    assert (facts.offered, facts.dropped) == (MAX_COUNT, MAX_COUNT)
    assert facts.upstream == histogram([5.0])
