"""Windows of results and outcomes: sums by what was assigned, the same however the log is read."""

import random
from collections import Counter
from itertools import count, pairwise
from typing import Any

import msgspec
import numpy as np
import pytest

from schemas.attribution import MICRO
from schemas.attribution_keys import UNSIGNED, AttributionKeys
from schemas.buckets import NUM_BUCKETS, bucket_of
from schemas.drawn import in_millionths
from schemas.framing import encode
from schemas.partition import partition_for
from schemas.records import OutcomesWindow, ResultsWindow, StratumSums
from schemas.records.measurement import OUTCOME_SUMS, REQUEST_SUMS
from schemas.segments import OTHER_SEGMENT
from schemas.settings import MeasurementSettings
from streams.ingest import seen_before, strata
from streams.ingest.aggregate import Kind
from streams.ingest.outcomes import OutcomesKind
from streams.ingest.partition import PartitionProcessor, Processed, RawRecord
from streams.ingest.progress import Progress, ProgressError, from_metadata, to_metadata
from streams.ingest.results import ResultsKind
from streams.ingest.seen_before import ByName
from streams.ingest.strata import MERGED_SEGMENTS
from tests.unit.streams.ingest_makers import NUM_PARTITIONS, TIME, RawLog, cells_of, declaration
from tests.unit.streams.measured_makers import CELLS, HOME, USERS, item, outcome, result

SETTINGS = MeasurementSettings(attribution_ms=1_000, cohort_ms=200, value_cap_micro=2 * MICRO, repeat_ms=300)
KEYS = AttributionKeys([(4, b"0123456789abcdef")])
RESULTS, OUTCOMES = ResultsKind(SETTINGS), OutcomesKind(SETTINGS, UNSIGNED)


def log_of(*records: tuple[Any, int]) -> list[RawRecord]:
    log = RawLog()
    for record, append_ms in records:
        log.add(record, append_ms, key=record.user_id.encode())
    return log.records


def processor(kind: Kind, start: Progress | None = None) -> PartitionProcessor:
    cells = cells_of(*(declaration(cell) for cell in CELLS))
    return PartitionProcessor(kind, HOME, num_partitions=NUM_PARTITIONS, time=TIME, cells=cells, start=start)


def results_of(out: Processed) -> list[ResultsWindow]:
    return [window.results for window in out.windows if window.results is not None]


def outcomes_of(out: Processed) -> list[OutcomesWindow]:
    return [window.outcomes for window in out.windows if window.outcomes is not None]


def rows(sums: StratumSums, names: tuple[str, ...]) -> dict[int, dict[str, int]]:
    columns = len(names)
    return {
        bucket: dict(zip(names, sums.sums[place * columns : (place + 1) * columns], strict=True))
        for place, bucket in enumerate(sums.buckets)
    }


def reasons(out: Processed) -> list[tuple[str, str]]:
    return [(refusal.error.reason, refusal.error.field) for refusal in out.refusals]


def test_a_result_counts_in_its_stratum_with_the_weights_of_what_was_drawn() -> None:
    items = [item("rma", units=64, state="admitted"), item("rma", units=36, state="shed", value_micro=7)]
    items.append(item("sbm", units=1, state="admitted", value_micro=11))
    made = result(at_ms=1_050, optional=items, flipped=True, late=True)
    out = processor(RESULTS).process(log_of((made, 1_060), (result(1, at_ms=1_300), 1_310)))
    (window,) = results_of(out)
    (sums,) = window.strata
    assert (sums.segment, sums.arm, sums.depth, sums.upgrade, sums.is_aa) == ("games", "both", "half", "yes", False)
    assert sums.cohort == 1_050 // 200
    assert rows(sums, REQUEST_SUMS) == {
        bucket_of(USERS[0]): {
            "num_requests": 1,
            "arm_weight_micro": 1_250_000,
            "depth_weight_micro": 20_000_000,
            "upgrade_weight_micro": 4_000_000,
            "num_extras_assigned": 100,
            "num_extras_ranked": 64,
            "num_upgrades_assigned": 1,
            "num_upgrades_ranked": 1,
        }
    }
    (guard,) = window.guards
    assert (guard.num_requests, guard.num_late, guard.num_compared, guard.num_flipped) == (1, 1, 1, 1)
    assert (guard.num_items, guard.num_items_admitted, guard.num_items_shed) == (3, 2, 1)
    assert (guard.value_admitted_micro, guard.value_shed_micro) == (16, 7)
    assert guard.latency.sum_micro == 10 * MICRO
    assert [(tally.route, tally.model_version) for tally in window.versions] == [
        ("baseline", "b-1"),
        ("powerful", "p-1"),
    ]


@pytest.mark.parametrize(
    ("changes", "depth", "upgrade"),
    [
        ({"dose": 0}, "none", "yes"),
        ({"dose": 200}, "full", "yes"),
        ({"dose": 200, "dose_propensity": 1.0}, "", "yes"),
        ({"dose": 0, "full_dose": 0, "dose_propensity": 1.0}, "", "yes"),
        ({"upgrade_assigned": False}, "half", "no"),
        ({"upgrade_propensity": 1.0}, "half", ""),
        ({"upgrade_assigned": False, "upgrade_propensity": 0.0}, "half", ""),
    ],
)
def test_what_was_certain_was_not_drawn(changes, depth: str, upgrade: str) -> None:
    records = ((result(at_ms=1_050, **changes), 1_060), (result(1, at_ms=1_300), 1_310))
    ((sums,),) = [window.strata for window in results_of(processor(RESULTS).process(log_of(*records)))]
    assert (sums.depth, sums.upgrade) == (depth, upgrade)
    (row,) = rows(sums, REQUEST_SUMS).values()
    assert (row["depth_weight_micro"] > 0, row["upgrade_weight_micro"] > 0) == (depth != "", upgrade != "")
    if upgrade == "no":
        assert row["upgrade_weight_micro"] == round(MICRO / 0.75)


def test_an_outcome_counts_plain_and_weighted_and_only_within_its_window_of_attribution() -> None:
    records = (
        (outcome(at_ms=1_050), 1_060),
        (outcome(1, at_ms=1_060, kind="view", value=0.0), 1_061),
        (outcome(2, at_ms=1_070, kind="conversion", value=1.5), 1_071),
        # The same happening told twice.
        (outcome(2, at_ms=1_070, kind="conversion", value=1.5), 1_072),
        (outcome(3, at_ms=1_070, said={"intake_ms": 69}), 1_073),
        (outcome(4, at_ms=1_070, said={"intake_ms": 70}), 1_074),
        (outcome(9, at_ms=1_300), 1_310),
    )
    out = processor(OUTCOMES).process(log_of(*records))
    (window,) = outcomes_of(out)
    assert (window.num_outcomes, window.num_duplicates, window.num_expired, out.num_duplicates) == (5, 1, 1, 1)
    assert [sums.cohort for sums in window.strata] == [0, 5]
    (row,) = rows(window.strata[1], OUTCOME_SUMS).values()
    assert [row[name] for name in OUTCOME_SUMS[:5]] == [1, 1, 1, 4_500_000, 3_500_000]
    assert [row[f"depth_weighted_{name}"] for name in OUTCOME_SUMS[:5]] == [
        20_000_000,
        20_000_000,
        20_000_000,
        90_000_000,
        70_000_000,
    ]
    assert row["upgrade_weighted_clicks"] == round(MICRO / 0.75)
    assert (window.attribution_ms, window.value_cap_micro, window.cohort_ms) == (1_000, 2 * MICRO, 200)


def test_tokens_are_believed_by_the_keys_alone() -> None:
    kind = OutcomesKind(SETTINGS, KEYS)
    signed = outcome(at_ms=1_050, keys=KEYS)
    records = (
        (signed, 1_060),
        (outcome(1, at_ms=1_050), 1_061),
        (msgspec.structs.replace(signed, request_id="r-1", outcome_id="o-2"), 1_062),
        (msgspec.structs.replace(signed, attribution_token="", outcome_id="o-3"), 1_063),
        (msgspec.structs.replace(signed, cell=CELLS[1], outcome_id="o-4"), 1_064),
        (outcome(5, at_ms=1_300, keys=KEYS), 1_310),
    )
    out = processor(kind).process(log_of(*records))
    assert reasons(out) == [("invalid_field", "attribution_token")] * 3 + [("invalid_field", "cell")]
    assert [window.num_outcomes for window in outcomes_of(out)] == [1]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"arm": "all"}, "arm"),
        ({"dose": 201}, "dose"),
        ({"dose_propensity": 0.0}, "dose_propensity"),
        ({"dose_propensity": 9e-7}, "dose_propensity"),
        ({"upgrade_propensity": 0.0}, "upgrade_propensity"),
        ({"upgrade_assigned": False, "upgrade_propensity": 1.0 - 1e-9}, "upgrade_propensity"),
        # Its weight is beyond any float.
        ({"arm_propensity": 5e-324}, "arm_propensity"),
        ({"intake_ms": 1_111}, "intake_ms"),
        ({"completed_ms": 1_111}, "completed_ms"),
        ({"cell": "nowhere"}, "cell"),
    ],
)
def test_a_result_that_cannot_be_believed_is_refused_by_field(changes, field: str) -> None:
    out = processor(RESULTS).process(log_of((result(at_ms=1_050, **changes), 1_060)))
    assert [found for _, found in reasons(out)] == [field]


def test_nobody_is_shown_anything_before_the_request_but_by_a_wrong_clock() -> None:
    records = [
        (outcome(n, at_ms=1_050, said={"intake_ms": 1_040}, exposure_time_ms=1_040 - early_ms), 1_060)
        for n, early_ms in enumerate([TIME.skew_ms, TIME.skew_ms + 1])
    ]
    assert reasons(processor(OUTCOMES).process(log_of(*records))) == [("invalid_field", "exposure_time_ms")]


def test_a_request_and_its_outcomes_have_the_same_weight() -> None:
    """However the probability is written, the token has millionths of it."""
    propensity = 1 / 7_000
    made = result(at_ms=1_050, dose_propensity=propensity)
    (requests,) = results_of(processor(RESULTS).process(log_of((made, 1_060), (result(1, at_ms=1_300), 1_310))))
    click = outcome(at_ms=1_050, said={"depth_micro": in_millionths(propensity)})
    (outcomes,) = outcomes_of(processor(OUTCOMES).process(log_of((click, 1_060), (outcome(9, at_ms=1_300), 1_310))))
    (asked,) = rows(requests.strata[0], REQUEST_SUMS).values()
    (clicked,) = rows(outcomes.strata[0], OUTCOME_SUMS).values()
    assert asked["depth_weight_micro"] == clicked["depth_weighted_clicks"] == round(MICRO * MICRO / 143)


def test_a_user_belongs_to_one_partition_and_may_be_of_any_cell() -> None:
    stranger = next(name for name in (f"x{n}" for n in count()) if partition_for(name.encode(), 4) != HOME)
    log = RawLog()
    log.add(result(at_ms=1_050, user=stranger), 1_060, key=stranger.encode())
    log.add(result(at_ms=1_050), 1_061, key=b"another")
    log.add(result(1, at_ms=1_050), 1_062, key=USERS[0].encode())
    log.add(result(2, at_ms=1_050, cell=CELLS[1]), 1_063, key=USERS[0].encode())
    log.add(result(3, at_ms=9_000), 9_010, key=USERS[0].encode())
    out = processor(RESULTS).process(log.records)
    assert reasons(out) == [("wrong_partition", "user_id"), ("key_mismatch", "user_id")]
    # Nobody misses the windows in between: there were no results.
    assert [(window.cell, window.window_index) for window in out.windows] == [("us-east", 10), ("us-west", 10)]


def test_a_result_is_a_duplicate_for_as_long_as_it_is_remembered() -> None:
    records = [(result(at_ms=1_050), 1_060), (result(at_ms=1_050), 1_360), (result(at_ms=1_050), 1_661)]
    out = processor(RESULTS).process(log_of(*records, (result(1, at_ms=1_900), 1_910)))
    assert out.num_duplicates == 1
    # The third came long after its window: it counts, late, where it came in.
    assert [window.window_index for window in out.windows] == [10, 13, 16]
    assert [(window.num_results, window.num_late) for window in results_of(out)] == [(1, 0), (0, 0), (1, 1)]


def test_as_many_names_are_remembered_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_before, "MAX_NAMES", 3)
    names = ByName(300, str)
    assert [names.seen(name, 1_000) for name in ("a", "b", "c", "a", "d", "b", "a")] == [
        *(False, False, False),
        True,
        # For d the one heard of longest ago went, which was b.
        *(False, False),
        True,
    ]
    assert len(names) == 3
    assert not names.seen("a", 1_301)
    assert len(names) == 1


def test_a_callers_mistake_is_counted_and_belongs_to_nobody() -> None:
    mistaken = result(at_ms=1_050, status="error", error="no candidates", arm="", dose=0, full_dose=0)
    (window,) = results_of(processor(RESULTS).process(log_of((mistaken, 1_060), (result(1, at_ms=1_300), 1_310))))
    assert (window.num_results, window.strata, window.guards) == (1, [], [])


def test_made_up_segments_cost_a_bounded_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strata, "MAX_NUMBERS", 40 * len(REQUEST_SUMS))
    made = [(result(n, at_ms=1_050, segment=f"s{n % 100}", user=USERS[n % 5]), 1_060) for n in range(200)]
    out = processor(RESULTS).process(log_of(*made, (result(999, at_ms=1_300), 1_310)))
    (window,) = out.windows
    assert window.note == MERGED_SEGMENTS
    assert window.results is not None
    segments = {sums.segment for sums in window.results.strata}
    assert OTHER_SEGMENT in segments
    assert {guard.segment for guard in window.results.guards} == segments
    assert sum(sum(sums.sums[:: len(REQUEST_SUMS)]) for sums in window.results.strata) == 200
    assert sum(len(sums.buckets) for sums in window.results.strata) <= 40


def random_log(kind: Kind, rng: random.Random) -> list[RawRecord]:
    """Any order and size: repeats near and far, late ones, strangers, junk."""
    log, now_ms = RawLog(), 1_000
    for number in range(rng.randrange(5, 60)):
        now_ms += rng.choice([0, 1, 7, 40, 130])
        user = rng.choice(USERS[:6])
        at_ms = now_ms - rng.choice([0, 5, 90, 400])
        name = rng.choice([number, rng.randrange(number + 1)])
        where: dict[str, Any] = {"cell": rng.choice([*CELLS, "nowhere"])}
        if rng.random() < 0.1:
            log.add(rng.randbytes(8), now_ms, key=user.encode())
        elif kind is RESULTS:
            changes: dict[str, Any] = {
                "arm": rng.choice(["both", "none", "rma", ""]),
                "dose": rng.choice([0, 100, 200, 201]),
            }
            log.add(result(name, at_ms=at_ms, user=user, **where, **changes), now_ms, key=user.encode())
        else:
            attributed: dict[str, Any] = {"said": {**where, "intake_ms": max(0, at_ms - rng.choice([10, 500, 1_500]))}}
            log.add(outcome(name, at_ms=at_ms, user=user, value=rng.random(), **attributed), now_ms, key=user.encode())
    return log.records


def cut(records: list[RawRecord], rng: random.Random) -> list[list[RawRecord]]:
    places = sorted({0, len(records), *(rng.randrange(len(records)) for _ in range(rng.randrange(6)))})
    return [records[begin:end] for begin, end in pairwise(places)]


def said(out: Processed) -> tuple[list[bytes], list[tuple[int, str]]]:
    return [encode(window) for window in out.windows], [(each.offset, str(each.error)) for each in out.refusals]


@pytest.mark.parametrize("kind", [RESULTS, OUTCOMES], ids=lambda kind: kind.name)
def test_neither_batches_nor_restarts_change_a_byte(kind: Kind) -> None:
    num_windows = 0
    for seed in range(80):
        rng = random.Random(f"{kind.name} {seed}")
        records = random_log(kind, rng)
        windows, refusals = said(processor(kind).process(records))
        num_windows += len(windows)
        running, progress = processor(kind), []
        found: tuple[list[bytes], list[tuple[int, str]]] = ([], [])
        for batch in cut(records, rng):
            new_windows, new_refusals = said(running.process(batch))
            found[0].extend(new_windows)
            found[1].extend(new_refusals)
            progress.append((running.progress(), len(found[0]), len(found[1])))
        assert found == (windows, refusals), seed
        # Whoever takes over reads from the commit on, and says what was not said yet and nothing else.
        begun, num_said, num_refused = rng.choice(progress)
        heir = processor(kind, start=begun)
        rest = said(heir.process(records[begun.offset :]))
        assert rest == (windows[num_said:], refusals[num_refused:]), seed
    assert num_windows > 250


@pytest.mark.parametrize("kind", [RESULTS, OUTCOMES], ids=lambda kind: kind.name)
def test_killed_between_output_and_commit_it_says_the_same_bytes_again(kind: Kind) -> None:
    num_again = 0
    for seed in range(50):
        rng = random.Random(f"killed {kind.name} {seed}")
        records = random_log(kind, rng)
        windows, refusals = said(processor(kind).process(records))
        found_windows: list[bytes] = []
        found_refusals: list[tuple[int, str]] = []
        committed, num_kills = Progress(offset=0), 0
        while True:
            running = processor(kind, start=committed)
            survives = num_kills == 4
            for batch in cut(records[committed.offset :], rng):
                new_windows, new_refusals = said(running.process(batch))
                found_windows += new_windows
                found_refusals += new_refusals
                if not survives and rng.random() < 0.3:
                    break
                committed = running.progress()
            else:
                break
            num_kills += 1
        assert list(dict.fromkeys(found_windows)) == windows, seed
        assert list(dict.fromkeys(found_refusals)) == refusals, seed
        num_again += len(found_windows) - len(windows)
    assert num_again > 10


def test_a_commit_of_other_settings_is_refused() -> None:
    metadata = to_metadata(Progress(offset=3), window_ms=100, settings=SETTINGS.tag)
    assert from_metadata(3, metadata, window_ms=100, settings=SETTINGS.tag) == Progress(offset=3)
    with pytest.raises(ProgressError, match=r"settings 1000\.200\.2000000\.300"):
        from_metadata(3, metadata, window_ms=100, settings=MeasurementSettings().tag)
    # Of kinds without settings nothing has changed.
    assert '"s"' not in to_metadata(Progress(offset=3), window_ms=100)


def test_users_are_spread_over_all_buckets_whatever_their_arm() -> None:
    counts = Counter(bucket_of(f"user-{number}") for number in range(64_000))
    assert len(counts) == NUM_BUCKETS
    assert np.std(list(counts.values())) < 1.5 * 1_000**0.5
