"""Measurement within the controller: what a tick says and decides, after crashes and from snapshots as well."""

import msgspec
import pytest

from schemas.avro import encode_body
from schemas.dead_letters import RawRecord
from schemas.errors import RecordError
from schemas.framing import frame
from schemas.partition import partition_for
from schemas.records import (
    CandidateTarget,
    CellLimits,
    ControllerSnapshot,
    ControlWindow,
    Guardrail,
    SegmentTraffic,
    SegmentUplift,
)
from streams.control.believe import believed
from streams.control.coverage.decide_coverage import decide_coverage
from streams.control.coverage.inputs import CoverageInputs
from streams.control.coverage.loop import CoverageLoop
from streams.control.outputs import destination
from streams.control.processor import apply
from streams.control.settings import ControlSettings
from streams.control.state import CellState, decode_state, encode_state, with_segments
from streams.control.uplift import entries
from streams.control.uplift.state import ALL, decode_sums
from streams.control.uplift.summary import summary
from tests.unit.streams.control_makers import capacity_window, latency_window
from tests.unit.streams.uplift_makers import outcomes_window, results_window, world

CELL = "us-east"
NUM_WINDOWS = 16
LIMITS = CellLimits(
    base_candidates=100,
    max_candidates=600,
    latency_limit_ms=150.0,
    max_coverage=0.5,
    units_per_upgrade=100.0,
    exploration_share=0.1,
)


def full_log() -> list[ControlWindow]:
    """Windows of all kinds as they come: results with the window, their outcomes two windows later."""
    log = []
    for index in range(NUM_WINDOWS):
        said = world(index, segments=("shop", "news") if index < 5 else ("shop", "news", "late"), num_buckets=32)
        log.append(results_window(index, said, partition=index % 2))
        if index >= 2:
            log.append(outcomes_window(index, world(index - 2, num_buckets=32), cohort=index - 2))
        log += [capacity_window(index), latency_window(index)]
    return log


LOG = full_log()


def play(log, state=None, *, settings=ControlSettings()):  # noqa: B008  # frozen
    state = state or CellState(cell=CELL)
    steps = []
    for window in log:
        state, records = apply(state, window, settings=settings)
        steps.append(records)
    return state, steps


WHOLE_STATE, WHOLE_STEPS = play(LOG)


def of_kind(steps, kind):
    return [record for records in steps for record in records if isinstance(record, kind)]


def body(records):
    return [(destination(record), encode_body(record)) for record in records]


class Table(dict[bytes, bytes]):
    """The controllers' table, as the agent reads and writes it; it fails after so many more writes."""

    writes_left: int | None = None

    def store(self, before: CellState, state: CellState) -> None:
        """As ``ControlAgent._store``."""
        for key, data in (*entries.changed(before, state), (CELL.encode(), encode_state(state))):
            if self.writes_left == 0:
                raise InterruptedError
            if self.writes_left is not None:
                self.writes_left -= 1
            self[key] = data

    def state(self, window: ControlWindow) -> CellState:
        data = self.get(CELL.encode())
        state = decode_state(data) if data is not None else CellState(cell=CELL)
        return with_segments(state, entries.read(self.get, state, window))

    def take(self, window: ControlWindow):
        before = self.state(window)
        state, records = apply(before, window)
        self.store(before, state)
        return records


def test_uplift_is_said_before_the_target_and_its_windows_are_in_the_manifest():
    uplift = of_kind(WHOLE_STEPS, SegmentUplift)
    assert {record.segment for record in uplift} == {ALL, "shop", "news", "late"}
    for records in WHOLE_STEPS:
        kinds = [type(record) for record in records]
        if SegmentUplift in kinds:
            assert kinds.index(CandidateTarget) > len(kinds) - 1 - kinds[::-1].index(SegmentUplift)
    named = [
        (ref.kind, ref.source_partition, ref.window_index)
        for target in of_kind(WHOLE_STEPS, CandidateTarget)
        for ref in target.manifest
        if ref.kind in ("results", "outcomes")
    ]
    given = [(each.kind, each.source_partition, each.window_index) for each in LOG if each.results or each.outcomes]
    assert named == given
    assert destination(uplift[0]) == (destination(uplift[1])[0], f"{CELL}/{uplift[0].segment}".encode())


def test_measured_values_reach_the_target():
    last = of_kind(WHOLE_STEPS, CandidateTarget)[-1]
    assert {value.segment for value in last.upgrade_values} >= {"shop", "news"}
    assert last.upgrade_values == list(summary(WHOLE_STATE.measured, limits=LIMITS).upgrade_values)


def test_without_measurement_windows_nothing_is_said_of_them():
    log = [window for window in LOG if window.kind in ("capacity", "latency")]
    state, steps = play(log)
    assert of_kind(steps, SegmentUplift) == []
    assert all(not target.upgrade_values and not target.depth_values for target in of_kind(steps, CandidateTarget))
    assert state.measured == CellState(cell=CELL).measured


def test_a_table_of_entries_says_what_one_state_says():
    table = Table()
    assert [body(table.take(window)) for window in LOG] == [body(records) for records in WHOLE_STEPS]


@pytest.mark.parametrize("at", [0, 18, 19, 49, 50, 53])
def test_a_crash_between_any_two_writes_changes_nothing(at):
    table = Table()
    for window in LOG[:at]:
        table.take(window)
    window = LOG[at]
    before = dict(table)
    state = table.state(window)
    num_writes = len(list(entries.changed(state, apply(state, window)[0]))) + 1
    for num_done in range(num_writes):
        broken = Table(before)
        broken.writes_left = num_done
        with pytest.raises(InterruptedError):
            broken.take(window)
        broken.writes_left = None
        # The window is read again, with the entries that were written before the crash.
        assert body(broken.take(window)) == body(WHOLE_STEPS[at])
        following = [body(broken.take(later)) for later in LOG[at + 1 : at + 12]]
        assert following == [body(records) for records in WHOLE_STEPS[at + 1 : at + 12]]


def test_the_cell_is_written_after_its_segments():
    place = next(at for at, window in enumerate(LOG) if at > 40 and window.kind == "outcomes")
    state, _ = play(LOG[:place])
    after, _ = apply(state, LOG[place])
    keys = [key for key, _ in entries.changed(state, after)]
    assert keys == sorted(keys)
    assert entries.entry_key(CELL, ALL) in keys
    assert CELL.encode() not in keys
    assert decode_state(encode_state(after)).measured.segments == {}


@pytest.mark.parametrize("back", [1, 2, 3, 9])
def test_windows_seen_again_say_the_same_again(back):
    state, again = play(LOG[-back:], WHOLE_STATE)
    assert state == WHOLE_STATE
    known = {each for records in WHOLE_STEPS for each in body(records)}
    assert {each for records in again for each in body(records)} <= known
    if LOG[-1].kind == "latency":
        assert body(again[-1]) == body(WHOLE_STEPS[-1])


def test_a_replay_from_a_snapshot_says_the_same_as_one_from_the_start():
    settings = ControlSettings(snapshot_ticks=1)
    _, steps = play(LOG, settings=settings)
    snapshots = [
        (place, [record for record in records if isinstance(record, ControllerSnapshot)])
        for place, records in enumerate(steps)
    ]
    whole = [(place, found) for place, found in snapshots if len(found) > 1]
    # Every twelfth snapshot holds the sums of segments, which stand before the state of the cell.
    assert [found[-1].window_index for _, found in whole] == [0, 12]
    for place, found in whole:
        known = ["late"] if found[-1].window_index else []
        assert [snapshot.segment for snapshot in found] == [ALL, *known, "news", "shop", ""]
        sums = {snapshot.segment: decode_sums(snapshot.state) for snapshot in found[:-1]}
        state = with_segments(decode_state(found[-1].state), sums)
        _, resumed = play(LOG[place + 1 :], state, settings=settings)
        assert [body(records) for records in resumed] == [body(records) for records in steps[place + 1 :]]


def test_an_entry_that_cannot_be_read_begins_anew():
    table = Table()
    for window in LOG[:40]:
        table.take(window)
    table[entries.entry_key(CELL, "shop")] = b"\xff"
    for window in LOG[40:]:
        table.take(window)
    assert decode_sums(table[entries.entry_key(CELL, "shop")]).applied


def inputs(at_base: frozenset[str]) -> CoverageInputs:
    return CoverageInputs(
        limits=LIMITS,
        usable_units=4.0,
        units_per_unit_s=50_000.0,
        units_per_upgrade=100.0,
        planned_rate_per_s=100.0,
        num_routers=1,
        num_requests=2_000,
        segments=tuple(
            SegmentTraffic(segment=name, num_requests=1_000, num_allowed=900, num_routed=0, probability_micro=0)
            for name in ("news", "shop")
        ),
        powerful_p99_ms=20.0,
        num_samples=1_000,
        shed_share=0.0,
        at_base=at_base,
    )


def settled(at_base: frozenset[str]):
    decision = decide_coverage(inputs(at_base), loop=CoverageLoop())
    for _ in range(29):
        decision = decide_coverage(inputs(at_base), loop=decision.loop)
    return decision


def test_a_crossed_guardrail_takes_the_lever_back_in_its_segment_alone():
    free, held = settled(frozenset()), settled(frozenset({"shop"}))
    assert {each.segment: each.share > 0.0 for each in free.segment_shares} == {"news": True, "shop": True}
    assert {each.segment: each.share > 0.0 for each in held.segment_shares} == {"news": True, "shop": False}
    # Half of the requests are out of reach.
    assert held.coverage <= 0.45 + 1e-9
    whole = settled(frozenset({ALL}))
    assert (whole.coverage, whole.reason) == (0.0, "guardrail")


def test_a_guardrail_of_the_whole_cell_takes_candidates_back_to_base():
    sums = WHOLE_STATE.measured.segments[ALL]
    crossed = Guardrail(name="latency_p99", lever="rma", figure=2.0, limit=1.2, is_crossed=True)
    # Nothing of the whole is judged at the next tick: what was found before stands.
    held_back = msgspec.structs.replace(sums, guardrails=(crossed,))
    segments = {**WHOLE_STATE.measured.segments, ALL: held_back}
    measured = msgspec.structs.replace(WHOLE_STATE.measured, segments=segments)
    state = msgspec.structs.replace(WHOLE_STATE, measured=measured)
    log = [capacity_window(NUM_WINDOWS), latency_window(NUM_WINDOWS)]
    free, held = (of_kind(play(log, start)[1], CandidateTarget)[0] for start in (WHOLE_STATE, state))
    assert free.candidate_target > 100
    assert (held.candidate_target, held.reason) == (100, "guardrail")


def refused_as(window: ControlWindow) -> str:
    raw = RawRecord(
        topic="control.windows",
        partition=partition_for(CELL.encode(), 8),
        offset=0,
        timestamp_ms=window.end_ms,
        timestamp_kind="append",
        key=CELL.encode(),
        value=frame(window),
        headers=(),
    )
    try:
        believed(raw, num_partitions=8, skew_ms=0)
    except RecordError as error:
        return str(error.field)
    return ""


def test_what_cannot_be_added_up_is_refused_as_a_whole():
    results, outcomes = (next(window for window in LOG if window.kind == kind) for kind in ("results", "outcomes"))
    assert (refused_as(results), refused_as(outcomes)) == ("", "")
    said, replace = results.results, msgspec.structs.replace
    assert said is not None
    stratum, *rest = said.strata
    ahead = results.end_ms // said.cohort_ms
    for broken in (
        replace(stratum, sums=stratum.sums[1:]),
        replace(stratum, buckets=[64, *stratum.buckets[1:]]),
        replace(stratum, buckets=stratum.buckets[::-1]),
        replace(stratum, cohort=ahead),
    ):
        assert refused_as(replace(results, results=replace(said, strata=[broken, *rest]))) == "results.strata"
    assert refused_as(replace(results, results=replace(said, cohort_ms=0))) == "cohort_ms"
    assert refused_as(replace(results, results=None)) == "results"
    guard = replace(said.guards[0], latency=replace(said.guards[0].latency, count=1))
    assert refused_as(replace(results, results=replace(said, guards=[guard]))) == "results.guards.latency"


def test_nothing_is_said_of_segments_without_news():
    log = [each for at in range(NUM_WINDOWS, NUM_WINDOWS + 6) for each in (capacity_window(at), latency_window(at))]
    _, steps = play(log, WHOLE_STATE)
    # Outcomes have stopped: the last cohort that they reach to matures at window 18, the others stay pending.
    assert [record for records in steps[6:] for record in records if isinstance(record, SegmentUplift)] == []


def test_sums_of_another_time_are_never_said_with_a_snapshot():
    settings = ControlSettings(snapshot_ticks=1)
    tick = next(at for at, window in enumerate(LOG) if (window.kind, window.window_index) == ("latency", 12))
    state, steps = play(LOG[: tick + 2], settings=settings)
    assert len([each for each in steps[tick] if isinstance(each, ControllerSnapshot)]) == 5
    assert LOG[tick + 1].kind == "results"
    # A window was taken in since: the broker had all that the tick had led to.
    _, (again,) = play([LOG[tick]], state, settings=settings)
    known = body(steps[tick])
    assert all(each in known for each in body(again))
