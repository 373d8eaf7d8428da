"""Gains of a range whose end no published record tells: what the controller of its cell would have said then."""

from typing import get_args

import pytest
from msgspec.structs import replace

from ops.report.gains import segment_gains
from ops.report.headline import headline
from ops.report.remeasure import Remeasured
from schemas.buckets import NUM_BUCKETS
from schemas.records import ControlWindow, Effect, SegmentUplift, StratumSums
from schemas.records.measurement import OUTCOME_SUMS, REQUEST_SUMS, ArmName
from streams.control.uplift.publish import ticked_measurement
from streams.control.uplift.state import MeasurementState
from streams.control.uplift.taking_in import take_in
from tests.unit.ops.report_makers import WINDOW_MS, capacity, outcomes, results

COHORT_MS = 60_000
ATTRIBUTION_MS = 60_000
ARMS: tuple[ArmName, ...] = get_args(ArmName)
# What a request of each arm is worth, in micro-units.
WORTH = {"holdout": 100_000, "none": 100_000, "rma": 120_000, "sbm": 110_000, "both": 140_000}
BUCKETS = list(range(NUM_BUCKETS))


def stratum(arm: ArmName, index: int, rows: list[dict[str, int]], names: tuple[str, ...]) -> StratumSums:
    return StratumSums(
        segment="retail" if arm == "holdout" else "travel",
        arm=arm,
        depth="",
        upgrade="",
        cohort=index * WINDOW_MS // COHORT_MS,
        is_aa=False,
        buckets=BUCKETS,
        sums=[row.get(name, 0) for row in rows for name in names],
    )


def measured(index: int, cell: str) -> list[ControlWindow]:
    """Two requests of each arm and bucket in a window, and what they were worth."""

    def worth(arm: ArmName, bucket: int) -> int:
        # Users differ, and not from one arm to another.
        return 2 * WORTH[arm] + 3_000 * ((bucket * 7 + index) % 11 - 5)

    asked = [
        stratum(arm, index, [{"num_requests": 2, "arm_weight_micro": 10}] * NUM_BUCKETS, REQUEST_SUMS) for arm in ARMS
    ]
    earned = [
        stratum(arm, index, [{"value_micro": worth(arm, bucket)} for bucket in BUCKETS], OUTCOME_SUMS) for arm in ARMS
    ]
    of_requests, of_outcomes = results(index, cell=cell), outcomes(index, cell=cell)
    assert of_requests.results is not None
    assert of_outcomes.outcomes is not None
    return [
        replace(of_requests, results=replace(of_requests.results, strata=asked)),
        replace(of_outcomes, outcomes=replace(of_outcomes.outcomes, strata=earned, attribution_ms=ATTRIBUTION_MS)),
    ]


def pipeline(num_windows: int = 60, *, cell: str = "us-east", has_ticks: bool = True) -> list[ControlWindow]:
    ticks = [[capacity(index, cell=cell)] if has_ticks else [] for index in range(num_windows)]
    return [window for index, tick in enumerate(ticks) for window in (*tick, *measured(index, cell))]


def remeasured(windows: list[ControlWindow], published: tuple[str, ...] = ()) -> list[SegmentUplift]:
    found = Remeasured(published)
    for window in windows:
        found.add(window)
    return found.records()


def value_of(records: list[SegmentUplift], segment: str = "(all)") -> Effect:
    (record,) = [each for each in records if each.segment == segment]
    return next(each for each in record.effects if (each.contrast, each.measure) == ("both", "value"))


def test_it_says_what_the_controller_says_at_the_same_window() -> None:
    windows = pipeline()
    state = MeasurementState(cell="us-east")
    said: dict[str, SegmentUplift] = {}
    for window in windows:
        if window.capacity is None:
            state = take_in(state, window)
        else:
            state = ticked_measurement(state, window_index=window.window_index, window_end_ms=window.end_ms)
            said |= {name: sums.said for name, sums in state.segments.items() if sums.said is not None}

    records = {record.segment: record for record in remeasured(windows)}
    assert records.keys() == {"(all)", "retail", "travel"}
    for segment, record in records.items():
        # A controller may say it some windows later than the cohort came in: nothing else differs.
        assert record.effects == said[segment].effects
        assert record.num_requests == said[segment].num_requests


def test_the_gain_is_that_of_the_world() -> None:
    effect = value_of(remeasured(pipeline()))

    assert effect.effect == pytest.approx(0.04, abs=1e-6)
    assert effect.mean_control == pytest.approx(0.1, rel=0.01)
    assert effect.lower is not None
    assert effect.lower > 0.0
    gains = segment_gains(remeasured(pipeline()), origin="control.windows")
    found = headline(gains, idle=None, preemptions=None, latency=[], phases=[])
    assert (found.certainty, found.figures[0].value) == ("gain", "+40 %")


def test_nothing_of_after_the_range_counts() -> None:
    windows = pipeline()
    early = [window for window in windows if window.window_index < 30]

    assert value_of(remeasured(early)).num_treated < value_of(remeasured(windows)).num_treated
    assert remeasured([window for window in windows if window.window_index < 12]) == []


def test_a_log_without_ticks_has_those_of_its_own_windows() -> None:
    with_ticks, without = remeasured(pipeline()), remeasured(pipeline(has_ticks=False))

    assert value_of(without) == value_of(with_ticks)


def test_a_cell_that_is_published_is_left_alone() -> None:
    windows = [*pipeline(20), *pipeline(20, cell="us-west")]

    assert {record.cell for record in remeasured(windows, ("us-east",))} == {"us-west"}
