"""What a replay is compared by, what a run may be called and write, how fast it may read, what a resume refuses."""

import dataclasses
from collections.abc import Sequence

import msgspec
import pytest
from msgspec import Struct

from ops import cli
from ops.replay.compare import About, Digests, about, difference, is_within, note, sort_out
from ops.replay.names import require_shadow, run_log, run_namespace, run_of, shadow_topics
from ops.replay.pace import Pace
from ops.replay.plan import totals
from ops.replay.run_log import Manifest, RunLogError, differences, read_run_log
from schemas.records import CandidateTarget, PoolSnapshot, WindowRef
from schemas.settings import TimeSettings
from schemas.topics import TOPICS, Namespace
from streams.control.processor import apply
from streams.control.state import CellState
from tests.unit.streams.control_makers import capacity_window, command_window, latency_window

LIVE = Namespace("")


def said(first: int, last: int, *, latency_ms: float = 40.0) -> list[Struct]:
    state = CellState(cell="us-east")
    records: list[Struct] = []
    for index in range(first, last + 1):
        for window in (capacity_window(index), latency_window(index, latency_ms=latency_ms)):
            state, made = apply(state, window)
            records += made
    return records


def digests(records: Sequence[Struct]) -> Digests:
    found: Digests = {}
    for record in records:
        place = about(record)
        if place is not None:
            note(found, place, record)
    return found


def targets(records: Sequence[Struct]) -> dict[int, CandidateTarget]:
    return {record.window_index: record for record in records if isinstance(record, CandidateTarget)}


def test_the_same_said_twice_is_the_same() -> None:
    once = said(10, 20)
    found = sort_out(digests(once), digests([*once, *once[-4:]]), live_is_whole=True)
    assert (found.equal, found.differing, found.only_replay, found.only_live) == (22, [], [], [])


def test_a_difference_names_the_cell_the_window_and_what_it_is_of() -> None:
    ours = said(10, 20)
    changed = [
        msgspec.structs.replace(record, candidate_target=1)
        if isinstance(record, CandidateTarget) and record.window_index == 14
        else record
        for record in ours
    ]
    found = sort_out(digests(ours), digests(changed), live_is_whole=True)
    assert found.differing == [About("us-east", 14, "")]


def test_what_compaction_took_is_no_difference_and_what_was_never_said_is_one() -> None:
    ours = digests(said(10, 20))
    kept = {place: bodies for place, bodies in ours.items() if 14 < place.window_index < 20}
    found = sort_out(ours, kept, live_is_whole=False)
    assert (found.equal, found.removed, len(found.only_replay)) == (10, 10, 2)
    assert {place.window_index for place in found.only_replay} == {20}
    assert len(sort_out(ours, kept, live_is_whole=True).only_replay) == 12


def test_a_gap_in_the_replay_is_a_difference_and_what_lies_outside_it_is_none() -> None:
    live = digests(said(10, 20))
    ours = {place: bodies for place, bodies in live.items() if place.window_index in (12, 13, 15)}
    found = sort_out(ours, live, live_is_whole=True)
    assert {place.window_index for place in found.only_live} == {14}


def test_figures_may_differ_by_the_tolerance_and_words_by_anything() -> None:
    target = targets(said(10, 12))[12]
    near = msgspec.structs.replace(target, extra_budget_units_s=target.extra_budget_units_s * 1.009, detail="other")
    assert is_within([target], [near], tolerance=0.01)
    assert not is_within([target], [near], tolerance=0.001)
    assert not is_within([target], [target], tolerance=0.0)
    assert not is_within([target], [msgspec.structs.replace(target, reason="other")], tolerance=0.5)
    assert not is_within([target], [target, target], tolerance=0.5)


def test_of_a_target_it_is_said_which_windows_it_was_made_from_otherwise() -> None:
    target = targets(said(10, 12))[12]
    other = msgspec.structs.replace(target, manifest=[ref for ref in target.manifest if ref.kind == "capacity"])
    place = About("us-east", 12, "")
    found = difference("targets", place, [target], [other], frozenset())
    assert found.windows == [WindowRef(kind="latency", source_partition=3, window_index=12)]
    # In both manifests, and not the same window.
    changed = frozenset({About("us-east", 12, "capacity of 3")})
    assert difference("targets", place, [target], [target], changed).windows == [
        WindowRef(kind="capacity", source_partition=3, window_index=12)
    ]


def test_commands_are_not_compared_and_pools_are_by_accelerator() -> None:
    assert about(command_window(4, "freeze")) is None
    pool = next(record for record in said(10, 10) if isinstance(record, PoolSnapshot))
    assert about(pool) == About("us-east", 10, "a100")


@pytest.mark.parametrize("run", ["", "A", "a.b", "-a", "a" * 41, "a/b", "ä"])
def test_a_name_that_is_none_is_refused(run: str) -> None:
    with pytest.raises(ValueError, match="no name of a run"):
        run_namespace(LIVE, run)


@pytest.mark.parametrize("run", ["list", "diff", "delete"])
def test_a_verb_is_no_name_of_a_run(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["replay", "delete", run]) == 2
    assert "is a verb" in capsys.readouterr().err


def test_a_replay_of_a_replay_is_refused() -> None:
    with pytest.raises(ValueError, match="live pipeline only"):
        run_namespace(run_namespace(LIVE, "a"), "b")


def test_a_run_has_no_topic_in_common_with_the_live_pipeline_or_another_run() -> None:
    live = {topic.name for topic in TOPICS} | {topic.dead_letters for topic in TOPICS}
    ours = {planned.name for planned in shadow_topics(run_namespace(LIVE, "a"), num_partitions=8)}
    others = {planned.name for planned in shadow_topics(run_namespace(LIVE, "a-b"), num_partitions=8)}
    assert not ours & (live | others)
    assert all(name.startswith("replay.a.") for name in ours)
    for name in live:
        with pytest.raises(AssertionError):
            require_shadow(run_namespace(LIVE, "a"), name)


def test_a_run_is_found_by_the_topic_of_its_log() -> None:
    space = Namespace("t-1.")
    assert run_of(space, run_log(run_namespace(space, "fix-42"))) == "fix-42"
    assert run_of(LIVE, run_log(run_namespace(space, "fix-42"))) is None
    assert run_of(space, "t-1.control.windows") is None


@pytest.mark.parametrize(
    "arguments",
    [
        ["A"],
        ["a", "--part", "ranker"],
        ["a", "--rate", "-1"],
        ["a", "--since", "yesterday"],
        ["a", "--offsets", "fleet.capacity=3"],
        ["a", "--from-snapshot"],
        ["diff"],
        ["diff", "a", "--tolerance", "-1"],
        ["list", "extra"],
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["replay", *arguments]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_pace_never_exceeds_the_rate_and_saves_nothing_up() -> None:
    now_s, slept = [100.0], []

    def sleep(for_s: float) -> None:
        slept.append(for_s)
        now_s[0] += for_s

    pace = Pace(1_000.0, clock_s=lambda: now_s[0], sleep=sleep)
    assert pace.batch(4_096) == 100
    for _ in range(50):
        pace.took(100)
    assert now_s[0] == pytest.approx(105.0)
    now_s[0] += 60.0
    pace.took(100)
    assert slept[-1] == pytest.approx(0.1)
    assert Pace(0.0, clock_s=lambda: 0.0, sleep=sleep).batch(4_096) == 4_096


def test_other_code_or_settings_are_named() -> None:
    time = TimeSettings()
    manifest = Manifest(
        run="a",
        created_ms=0,
        parts=["control"],
        code="c0",
        time=dataclasses.asdict(time),
        num_partitions=8,
        spans={},
    )
    assert differences(manifest, parts=["control"], time=dataclasses.asdict(time), code="c0") == []
    slower = dataclasses.asdict(TimeSettings(lateness_ms=9))
    assert differences(manifest, parts=["control"], time=slower, code="c1") == [
        "lateness_ms is 9, was 2000",
        "code is c1, was c0",
    ]


def test_a_log_of_another_release_is_refused() -> None:
    with pytest.raises(RunLogError, match="cannot be read"):
        read_run_log({b"manifest": b"{}"})


def test_the_expected_time_is_that_of_the_rate() -> None:
    assert totals([], rate=5_000.0, num_workers=2).expected_s == 0
