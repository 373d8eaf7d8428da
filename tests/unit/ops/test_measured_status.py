"""What status and doctor say of measurement, and how a run keeps it."""

import msgspec
import pytest

from ops.doctor_split import refused_cells
from ops.replay.compare import about, end_ms
from ops.replay.run_log import Manifest, read_run_log, start_records, state_records
from ops.replay.snapshots import WholeStates
from ops.status.measured import measured_of
from schemas.records import CellDeclaration, ControllerSnapshot, Guardrail, SampleRatio, SegmentUplift
from streams.control.processor import apply
from streams.control.settings import ControlSettings
from streams.control.state import CellState
from streams.control.uplift.state import ALL, SumsError
from tests.unit.ops.status_makers import NOW_MS, WELL, declaration, status_of
from tests.unit.streams.control_makers import capacity_window, latency_window
from tests.unit.streams.uplift_makers import CELL, outcomes_window, results_window, world

replace = msgspec.structs.replace


def uplift(segment: str = ALL, *, is_mismatch: bool = False, is_crossed: bool = False) -> SegmentUplift:
    return SegmentUplift(
        cell=CELL,
        segment=segment,
        window_index=99,
        window_end_ms=200_000,
        baseline_version="b1",
        powerful_version="p1",
        since_ms=0,
        effects=[],
        recent=[],
        sample_ratio=SampleRatio(
            arms=["none", "both"],
            expected=[0.5, 0.5],
            observed=[0.6, 0.4],
            p_value=0.001 if is_mismatch else 0.9,
            is_mismatch=is_mismatch,
        ),
        guardrails=[Guardrail(name="shed", lever="sbm", figure=0.75, limit=0.5, is_crossed=is_crossed)],
        num_requests=1_000,
        pending_requests=50,
        num_late_outcomes=3,
        request_share=1.0,
        optional_share=1.0,
    )


def troubles(*records: SegmentUplift) -> dict[str, str]:
    status = status_of([*WELL, *records])
    return {trouble.kind: trouble.detail for trouble in status.troubles}


def test_what_is_measured_is_shown_of_the_whole_and_its_segments():
    status = status_of([*WELL, uplift("shop"), uplift()])
    measured = status.cells[0].measured
    assert measured is not None
    assert (measured.segments, measured.num_requests, measured.pending_requests) == (["shop"], 1_000, 50)
    assert (measured.split_p_value, measured.mismatched, measured.guardrails) == (0.9, [], [])
    assert measured_of({}) is None
    assert troubles(uplift()) == troubles()


def test_a_split_that_is_off_and_a_crossed_guardrail_are_troubles():
    found = troubles(uplift(), uplift("shop", is_mismatch=True), uplift("news", is_crossed=True))
    assert "shop" in found["split_mismatch"]
    assert found["guardrail_crossed"] == "1 guardrail crossed: news: shed of sbm 0.75, limit 0.5"


def with_coverage(max_coverage: float) -> CellDeclaration:
    made = declaration(CELL)
    (revision,) = made.revisions
    return replace(made, revisions=[replace(revision, limits=replace(revision.limits, max_coverage=max_coverage))])


@pytest.mark.parametrize(
    ("max_coverage", "is_mismatch", "refused"),
    [(0.3, True, {CELL: [ALL]}), (0.3, False, {}), (0.0, True, {})],
)
def test_upgrades_are_refused_only_where_the_split_is_off_and_there_are_any(max_coverage, is_mismatch, refused):
    found = refused_cells([with_coverage(max_coverage)], [uplift(is_mismatch=is_mismatch)], now_ms=NOW_MS)
    assert found == refused


def measured_state() -> tuple[CellState, list[ControllerSnapshot]]:
    state = CellState(cell=CELL)
    snapshots = []
    for index in range(14):
        said = world(index, num_buckets=4)
        for window in (
            results_window(index, said),
            outcomes_window(index, said, cohort=max(0, index - 1)),
            capacity_window(index),
            latency_window(index),
        ):
            state, records = apply(state, window, settings=ControlSettings(snapshot_ticks=1))
            snapshots += [record for record in records if isinstance(record, ControllerSnapshot)]
    return state, snapshots


STATE, SNAPSHOTS = measured_state()


def test_a_run_keeps_the_sums_of_segments_beside_the_state():
    manifest = Manifest(run="r", created_ms=0, parts=["control"], code="", time={}, num_partitions=8, spans={})
    log = {b"manifest": msgspec.json.encode(manifest), **state_records(STATE)}
    assert read_run_log(log).states == {CELL: STATE}
    assert read_run_log({b"manifest": msgspec.json.encode(manifest), **start_records(STATE)}).states == {CELL: STATE}


def test_a_snapshot_is_a_place_to_begin_only_with_the_sums_that_it_knows_of():
    whole = WholeStates()
    found = [(snapshot, whole.see(snapshot)) for snapshot in SNAPSHOTS]
    places = [snapshot.window_index for snapshot, state in found if state is not None]
    assert places == [0, 12]
    state = next(state for snapshot, state in found if state is not None and snapshot.window_index == 12)
    assert sorted(state.measured.segments) == [ALL, "news", "shop"]
    # Without one of its segments it is none.
    again = WholeStates()
    part = [each for each in SNAPSHOTS if each.window_index == 12 and each.segment != "shop"]
    assert [again.see(each) for each in part] == [None] * len(part)
    with pytest.raises(SumsError):
        again.see(replace(SNAPSHOTS[0], segment="shop", state=b"\x00"))


def test_uplift_is_compared_by_segment():
    record = uplift("shop")
    place = about(record)
    assert place is not None
    assert (place.cell, place.window_index, place.what) == (CELL, 99, "shop")
    assert end_ms(record) == 200_000
