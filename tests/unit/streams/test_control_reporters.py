"""Reporters that say what cannot be: set aside at once where they would raise a target, and soon where not."""

import math
import random

import msgspec
import pytest

from schemas.histogram import ExponentialHistogram
from schemas.records import HistogramFields, LatencyWindow, ReporterFigures, RouterFigures, RouteWindow
from streams.control.outliers import outliers
from streams.control.reporters import Judged, judged
from streams.control.suspects import MAX_SCORE, MAX_SUSPECTS, Suspects, updated
from streams.control.trim import without_highest, without_lowest
from tests.unit.streams.control_makers import histogram, latency_window

NAMES = ("r-0", "r-1", "r-2", "r-3", "r-4")
EMPTY = histogram([])


def router(source, *, num_requests=100, scale=1.0, dice=None, said=None) -> RouterFigures:
    dice = dice or random.Random(source)
    times_ms = [scale * (20.0 + dice.expovariate(1 / 10.0)) for _ in range(num_requests)]
    return RouterFigures(
        source=source, num_requests=num_requests if said is None else said, latency=histogram(times_ms)
    )


def replica(source, *, busy_us=100_000, units_done=5_000, num_work=100, p99_us=30_000) -> ReporterFigures:
    return ReporterFigures(
        source=source, num_work=num_work, num_answered=num_work, p99_us=p99_us, busy_us=busy_us, units_done=units_done
    )


def route_of(reporters, *, part="ranker", route="wide", latency=EMPTY) -> RouteWindow:
    return RouteWindow(
        part=part,
        route=route,
        latency=latency,
        queue_wait=EMPTY,
        num_reporters=len(reporters),
        num_work=sum(reporter.num_work for reporter in reporters),
        num_answered=sum(reporter.num_answered for reporter in reporters),
        num_late=0,
        num_lost=0,
        num_retried=0,
        busy_us=sum(reporter.busy_us for reporter in reporters),
        units_done=sum(reporter.units_done for reporter in reporters),
        max_pressure_micro=0,
        reporters=sorted(reporters, key=lambda reporter: reporter.source),
    )


def merged(routers) -> HistogramFields:
    whole = ExponentialHistogram()
    for one in routers:
        whole.add(of(one.latency))
    return HistogramFields(**whole.to_fields())


def of(fields) -> ExponentialHistogram:
    return ExponentialHistogram.from_fields(**msgspec.structs.asdict(fields))


def window_of(routers=(), routes=()) -> LatencyWindow:
    made = latency_window(1).latency
    assert made is not None
    return msgspec.structs.replace(
        made,
        latency=merged(routers),
        routers=list(routers),
        num_routers=len(routers),
        num_requests=sum(one.num_requests for one in routers),
        routes=list(routes),
    )


def p99_ms(window: LatencyWindow) -> float:
    value = of(window.latency).quantile(0.99)
    assert value is not None
    return value


def route(window: LatencyWindow, name: str, part: str = "ranker") -> RouteWindow:
    return next(found for found in window.routes if (found.route, found.part) == (name, part))


def run(windows) -> list[Judged]:
    """Judgements of windows in a row; the memory goes through its bytes between them, as in a state."""
    suspects, made = Suspects(), []
    for window in windows:
        judgement = judged(window, suspects)
        suspects = msgspec.msgpack.decode(msgspec.msgpack.encode(judgement.suspects), type=Suspects)
        made.append(judgement)
    return made


HONEST = [router(name) for name in NAMES]


def with_router(liar: RouterFigures) -> LatencyWindow:
    return window_of([*HONEST[:4], liar])


def test_nothing_is_changed_among_honest_reporters():
    window = window_of(HONEST, [route_of([replica(name) for name in NAMES])])
    judgement = judged(window, Suspects())
    assert judgement == Judged(latency=window, excluded=(), detail="", suspects=Suspects())


def test_a_router_that_lies_low_does_not_count_for_a_single_tick():
    truth = p99_ms(window_of(HONEST[:4]))
    judgements = run([with_router(router("r-4", scale=0.01, num_requests=5_000))] * 6)
    assert [p99_ms(judgement.latency) for judgement in judgements] == [truth] * 6
    assert {judgement.excluded for judgement in judgements} == {("r-4",)}
    assert judgements[0].detail == "not counted: r-4 (p99 0.01 times what it should be)"


def test_a_router_that_lies_high_is_believed_for_two_ticks_and_then_no_more():
    truth = p99_ms(window_of(HONEST[:4]))
    judgements = run([with_router(router("r-4", scale=100.0))] * 6)
    assert [p99_ms(judgement.latency) > 10 * truth for judgement in judgements] == [True] * 2 + [False] * 4
    assert [judgement.excluded for judgement in judgements] == [()] * 2 + [("r-4",)] * 4
    assert p99_ms(judgements[-1].latency) == truth
    assert "r-4 (p99 82 times" in judgements[-1].detail


def test_who_comes_back_to_sense_is_counted_again_after_a_while():
    sane = window_of(HONEST)
    judgements = run([with_router(router("r-4", scale=100.0))] * 3 + [sane] * 7)
    assert [judgement.excluded for judgement in judgements[3:]] == [("r-4",)] * 5 + [()] * 2
    assert "in sense too short a time" in judgements[4].detail
    assert judgements[-1].suspects == Suspects()


def test_a_liar_that_keeps_changing_its_mind_is_found_out_too():
    high, sane = with_router(router("r-4", scale=100.0)), window_of(HONEST)
    judgements = run([high, high, sane] * 4)
    assert ("r-4",) in {judgement.excluded for judgement in judgements}
    assert all(judgement.excluded for judgement in judgements[-4:])


@pytest.mark.parametrize("factor", [0.01, 100.0])
@pytest.mark.parametrize("figure", ["busy_us", "units_done"])
def test_a_replica_that_lies_of_its_speed_is_taken_out_of_the_sums(figure, factor):
    honest = [replica(name) for name in NAMES[:4]]
    sound = replica("r-4")
    liar = msgspec.structs.replace(sound, **{figure: round(getattr(sound, figure) * factor)})
    looks_faster = (factor > 1.0) == (figure == "units_done")
    judgements = run([window_of(routes=[route_of([*honest, liar])])] * 5)
    found = [route(judgement.latency, "wide") for judgement in judgements]
    speeds = [each.units_done / each.busy_us for each in found]
    assert max(speeds) <= 0.05 + 1e-12
    counted = [looks_faster or tick >= 2 for tick in range(5)]
    assert [speed == pytest.approx(0.05) for speed in speeds] == counted
    assert [judgement.excluded == ("r-4",) for judgement in judgements] == counted
    assert (found[-1].num_answered, found[-1].num_work) == (400, 400)


def test_a_liar_cannot_hide_behind_a_share_of_the_work_that_looks_too_small():
    honest = [replica(name) for name in NAMES[:4]]
    idle = replica("r-4", busy_us=10, units_done=5_000, num_work=0)
    judgement = judged(window_of(routes=[route_of([*honest, idle])]), Suspects())
    assert route(judgement.latency, "wide").units_done == 20_000


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_a_router_that_lies_of_its_requests_is_held_against_its_own_figures(factor):
    liar = router("r-4", said=round(100 * factor))
    sent = [replica(name) for name in NAMES]
    base = route_of(sent, part="router", route="baseline")
    for routes in ([], [base]):
        judgements = run([window_of([*HONEST[:4], liar], routes)] * 5)
        counted = [judgement.latency.num_requests for judgement in judgements]
        assert min(counted) >= 500
        assert counted[2:] == [500] * 3
        assert judgements[-1].excluded == ("r-4",)
        # Its latency is as good as ever.
        assert p99_ms(judgements[-1].latency) == p99_ms(window_of(HONEST))


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_the_powerful_route_is_judged_alike(factor):
    said = [replica(name, p99_us=30_000) for name in NAMES]
    truth = histogram([30.0] * 400)
    lie = histogram([30.0] * 400 + [30.0 * factor] * 100)
    seen = [*said[:4], replica("r-4", p99_us=round(30_000 * factor))]
    window = window_of(routes=[route_of(seen, part="router", route="powerful", latency=lie)])
    last = run([window] * 3)[-1]
    left = route(last.latency, "powerful", "router").latency
    assert of(left).quantile(0.99) == pytest.approx(of(truth).quantile(0.99), rel=0.05)
    assert left.count == 400

    work = [*said[:4], msgspec.structs.replace(said[4], num_answered=round(100 * factor))]
    found = [
        route(judgement.latency, "powerful")
        for judgement in run([window_of(routes=[route_of(work, route="powerful")])] * 3)
    ]
    per_answer = [each.units_done / each.num_answered for each in found]
    assert min(per_answer) >= 50.0
    assert per_answer[-1] == 50.0


def test_fleets_of_two_kinds_and_routers_with_different_traffic_are_honest():
    dice = random.Random(3)
    windows = []
    for _ in range(60):
        replicas = []
        for number in range(dice.choice([5, 6, 9, 16])):
            units = dice.randrange(2_000, 20_000)
            speed = (0.05 if number % 3 else 0.2) * dice.uniform(0.7, 1.4)
            replicas.append(replica(f"w-{number}", units_done=units, busy_us=round(units / speed)))
        routers = [
            router(f"r-{number}", num_requests=dice.choice([0, 3, 12, 100, 1_000]), dice=dice) for number in range(7)
        ]
        windows.append(window_of(routers, [route_of(replicas)]))
    assert {judgement.excluded for judgement in run(windows)} == {()}


@pytest.mark.parametrize("apart", [2.0, 4.0, 6.0])
def test_a_liar_among_two_kinds_is_found_whichever_kind_it_is(apart):
    slow, fast = 0.05, 0.05 * apart
    for own in (slow, fast):
        for factor in (0.01, 100.0):
            speeds = {"w-0": slow, "w-1": slow, "w-2": fast, "w-3": fast, "w-4": own * factor}
            window = window_of(
                routes=[route_of([replica(name, busy_us=round(5_000 / speed)) for name, speed in speeds.items()])]
            )
            assert run([window] * 3)[-1].excluded == ("w-4",)


def test_among_fewer_than_five_nothing_is_excluded():
    liar = router("r-4", scale=0.01)
    window = window_of([*HONEST[:3], liar], [route_of([replica("a", busy_us=1), replica("b"), replica("c")])])
    assert [judgement.latency for judgement in run([window] * 5)] == [window] * 5


def test_scarce_samples_are_not_judged():
    window = window_of([router(name, num_requests=1, scale=100.0 if name == "r-4" else 1.0) for name in NAMES])
    assert run([window] * 5)[-1].excluded == ()


def test_half_of_the_reporters_or_more_are_never_excluded():
    for num_low in range(7):
        names = [f"r-{number}" for number in range(7)]
        routers = [router(name, scale=0.01 if number < num_low else 1.0) for number, name in enumerate(names)]
        judgement = run([window_of(routers)] * 5)[-1]
        assert len(judgement.excluded) <= 3
        # Whoever is in the majority is the ruler, in the right or not.
        fewer = names[:num_low] if num_low <= 3 else names[num_low:]
        assert set(judgement.excluded) == set(fewer)
    even = [router(f"r-{number}", scale=0.01 if number < 3 else 1.0) for number in range(6)]
    assert run([window_of(even)] * 5)[-1].excluded == ()


def test_a_histogram_too_much_for_the_rest_is_no_end():
    """Sums of what is listed can be more than one histogram holds: the merged one stands then."""
    huge = HistogramFields(
        scale=0, offset=4, counts=(2**52).to_bytes(8, "little"), zero_count=0, count=2**52, sum_micro=0
    )
    routers = [RouterFigures(source=name, num_requests=2**52, latency=huge) for name in NAMES]
    window = msgspec.structs.replace(
        window_of([*HONEST[:4]]), routers=[*routers[:4], router("r-4", scale=0.01, num_requests=50)]
    )
    assert judged(window, Suspects()).latency.latency == window.latency


def test_the_memory_is_bounded_ordered_and_fades():
    suspects = updated(Suspects(), {("p99", "worst")})
    for tick in range(5):
        invented = {("p99", f"r-{tick}-{number}") for number in range(2 * MAX_SUSPECTS)}
        suspects = updated(suspects, {*invented, ("p99", "worst")})
        assert len(suspects.known) == MAX_SUSPECTS
        assert [known.case for known in suspects.known] == sorted(known.case for known in suspects.known)
    assert suspects.excluded("p99") == {"worst"}
    for _ in range(MAX_SCORE):
        suspects = updated(suspects, ())
    assert suspects == Suspects()


def test_the_order_of_reports_does_not_matter():
    logs = {f"r-{number}": math.log(1.0 + number % 4) for number in range(8)} | {"x": math.log(400.0)}
    assert outliers(logs) == outliers(dict(reversed(logs.items())))
    assert list(outliers(logs)) == ["x"]


def test_what_is_taken_out_of_a_merged_histogram():
    whole = histogram([0.0] * 3 + [1.0] * 5 + [40.0] * 10 + [4_000.0] * 5)
    assert of(without_lowest(whole, 8)) == of(histogram([40.0] * 10 + [4_000.0] * 5)) or (
        of(without_lowest(whole, 8)).count == 15
    )
    assert without_lowest(whole, 100).count == 0
    left = without_highest(whole, 100, above=320.0)
    assert (left.count, left.zero_count) == (18, 3)
    assert of(left).quantile(1.0) == pytest.approx(40.0, rel=0.03)
    assert without_highest(whole, 2, above=320.0).count == 21
    assert without_highest(histogram([]), 5, above=1.0) == histogram([])
