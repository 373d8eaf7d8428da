"""A guardrail from a window of results to the router: a lever is at base in that segment, as is said, and returns."""

import msgspec

from ranking.router.assignment import assignment_of
from ranking.router.experiment import Experiment
from schemas.records import CandidateTarget, ControlWindow, SegmentUplift
from streams.control.processor import apply
from streams.control.state import CellState
from streams.control.uplift.guardrails import HOLD_COHORTS
from tests.measured_world import guard_of
from tests.unit.ranking.router_driver import request_of, target_of
from tests.unit.streams.control_makers import capacity_window, latency_window
from tests.unit.streams.uplift_makers import results_window, world

# From this window on nine tenths of the extras of the shop are shed, for six windows; a window is a cohort here.
FIRST_BAD, NUM_BAD = 6, 6


def _results(index: int) -> ControlWindow:
    made = results_window(index, world(index, segments=("shop", "news"), num_buckets=8))
    assert made.results is not None
    shed = 900 if FIRST_BAD <= index < FIRST_BAD + NUM_BAD else 10
    guards = [
        guard_of(each.segment, each.arm, num_requests=1_000, num_items=1_000, num_items_shed=shed)
        if (each.segment, each.arm) == ("shop", "rma")
        else each
        for each in made.results.guards
    ]
    return msgspec.structs.replace(made, results=msgspec.structs.replace(made.results, guards=guards))


def test_extras_are_taken_back_in_one_segment_said_at_once_and_tried_again():
    state = CellState(cell="us-east")
    targets: list[CandidateTarget] = []
    said: dict[int, SegmentUplift] = {}
    for index in range(FIRST_BAD + NUM_BAD + HOLD_COHORTS + 4):
        for window in (_results(index), capacity_window(index), latency_window(index)):
            state, records = apply(state, window)
            targets += [record for record in records if isinstance(record, CandidateTarget)]
            said |= {
                record.window_index: record
                for record in records
                if isinstance(record, SegmentUplift) and record.segment == "shop"
            }
    at_base = [target.window_index for target in targets if "shop" in target.segments_at_base]
    assert all(target.segments_at_base in ([], ["shop"]) for target in targets)
    print(f"at base {at_base[0] - FIRST_BAD} windows after it began, for {len(at_base)} windows")
    # Judged by the whole cohorts of the last seven, as soon as those that were bad outweigh those that were good.
    assert FIRST_BAD < at_base[0] < FIRST_BAD + NUM_BAD
    assert at_base == list(range(at_base[0], at_base[0] + HOLD_COHORTS))
    # No outcome has come, and no effect is known: the guardrail is said all the same, when it takes back and returns.
    crossed = [index for index, record in said.items() if any(each.is_crossed for each in record.guardrails)]
    assert crossed == [at_base[0]]
    assert at_base[-1] + 1 in said
    (guardrail,) = (each for each in said[at_base[0]].guardrails if each.is_crossed)
    assert (guardrail.lever, guardrail.name, guardrail.limit) == ("rma", "shed", 0.5)
    assert guardrail.figure > 0.5


def test_a_router_gives_no_extras_to_requests_of_a_segment_at_base():
    free, held = target_of(300), target_of(300, segments_at_base=["shop"])
    for segment, target, is_given in (("shop", free, True), ("shop", held, False), ("news", held, True)):
        doses = [
            assignment_of(
                request_of(f"r-{number}", user_id=f"user-{number}", advertiser_segment=segment),
                target=target,
                experiment=Experiment(),
                max_upgrade_candidates=1_024,
            ).dose
            for number in range(50)
        ]
        # Not even what is drawn for exploration: nothing is asked for.
        assert any(dose.num_full > 0 for dose in doses) == is_given
        assert any(dose.num_extra > 0 for dose in doses) == is_given
