"""Logs as they come: what is left out is named, what is kept is counted, and who is whose."""

from datetime import timedelta
from pathlib import Path

import pytest

from ops.bandit_import.document import notes_of
from ops.bandit_import.files import by_time, find_files, lines_of
from ops.bandit_import.names import import_namespace, import_topics
from ops.bandit_import.records import drawn_micro, records_of
from ops.bandit_import.run_log import Progress, difference, manifest_of
from ops.bandit_import.stretches import stretches
from ops.bandit_import.survey import Survey, survey
from ops.replay.names import require_shadow
from ranking.models.training.open_bandit_rows import OpenBanditError
from schemas.attribution import parse_token
from schemas.records import RankingOutcome, RankingResult
from schemas.topics import Namespace
from tests.unit.ops.import_makers import START, imported, row, uplift, write_log


def looked_at(folder: Path, *, floor: float = 1e-3) -> Survey:
    files = find_files([folder])
    return survey(((file, lines_of(file)) for file in files), min_propensity=floor, advance=lambda _num: None)


def test_bad_lines_are_named_and_spoil_nothing_else(tmp_path: Path) -> None:
    good = row(0, START)
    bad = {
        good.replace(",0.3,", ",nan,"): "propensity_score nan",
        good.replace(",0.3,", ",-0.3,"): "propensity_score -0.3",
        good.replace(",0.3,", ",1.01,"): "propensity_score 1.01",
        good.replace(",0.3,", ",,"): "no propensity_score",
        good.replace("+00:00", ""): "has no zone",
        good.replace("2019", "1919"): "before 1970",
        good.replace("2019-11-24", "soon"): "Invalid isoformat",
        good.rsplit(",", 1)[0]: "12 columns of 13",
        good + ",1": "14 columns of 13",
        good.replace(",0,1,0,", ",9,1,0,"): "item 9 of 3",
        good.replace(",a,", f",{'a' * 65},"): "user_feature_0 is no short word",
        good.replace("1.0", "inf"): "affinity",
        '"': "1 columns of 13",
        "\x00": "1 columns of 13",
    }
    path = write_log(tmp_path / "random-men", [good, *bad, row(1, START + timedelta(seconds=1))])
    with path.open("ab") as file:
        file.write(b"\xff\xfe," * 4 + b"\n")
    found = looked_at(tmp_path)
    assert (found.num_rows, found.num_bad) == (2, len(bad) + 1)
    for line, (listed, reason) in enumerate(zip(found.bad_lines, bad.values(), strict=False), start=3):
        assert (listed.file, listed.line) == (str(path), line)
        assert reason in listed.reason


def test_a_row_out_of_order_counts_and_is_said(tmp_path: Path) -> None:
    times = (0, 10_000, 10_000, 20, 30_000)
    write_log(tmp_path / "bts-men", [row(n, START + timedelta(seconds=at)) for n, at in enumerate(times)])
    (file,) = looked_at(tmp_path).files
    assert (file.num_rows, file.num_unordered, file.num_same_time) == (5, 1, 1)
    assert file.zones == {"UTC": 5}
    said, counts = imported(find_files([tmp_path]), min_propensity=1e-3)
    # Of results, in each of five cells: outcomes are windowed by their arrival.
    assert (counts.num_late, counts.num_refused) == (5, 0)
    assert uplift(said)["men", "(all)"].num_requests == 5


def test_what_a_tiny_propensity_would_weigh_is_said_and_clipped(tmp_path: Path) -> None:
    rows = [row(n, START, propensity="1e-6" if n == 5 else "0.3") for n in range(100_000 // 1_000)]
    write_log(tmp_path / "bts-men", rows)
    found = looked_at(tmp_path)
    (policy,) = found.policies
    assert policy.num_clipped == 1
    assert policy.largest_share == pytest.approx(1e6 / (1e6 + 99 / 0.3))
    assert policy.effective_sample_size == pytest.approx(1.0, abs=0.01)
    assert policy.counted_largest_share == pytest.approx(1e3 / (1e3 + 99 / 0.3))
    assert policy.propensity_sums["1"] == pytest.approx(0.3)
    notes = " ".join(notes_of(found, min_propensity=1e-3))
    assert "counted as 0.001: 1 of 100 rows" in notes
    assert "sum to 0.300 at position 1" in notes
    assert "one policy alone" in notes


def test_a_certain_choice_is_counted_as_nearly_one() -> None:
    assert drawn_micro(1.0, min_propensity=1e-3) == 999_999
    assert drawn_micro(1e-9, min_propensity=1e-6) == 1


def test_a_row_becomes_results_and_outcomes_under_what_its_policy_was(tmp_path: Path) -> None:
    write_log(tmp_path / "random" / "men", [row(0, START)])
    write_log(tmp_path / "bts" / "men", [row(0, START, click=1, propensity="0.25")])
    files = find_files([tmp_path])
    assert [(file.name, file.policy) for file in files] == [
        ("bts/men/men.csv", "bts"),
        ("random/men/men.csv", "random"),
    ]
    said = [record for each in by_time(files) for record in records_of(*each, min_propensity=1e-3)]
    results = [each.record for each in said if isinstance(each.record, RankingResult)]
    outcomes = [each.record for each in said if isinstance(each.record, RankingOutcome)]
    assert len({result.request_id for result in results}) == len(results) == 10
    assert [result.segment for result in results[:5]] == ["1", "a", "b", "c", "d"]
    assert [(result.arm, result.upgrade_assigned, result.upgrade_propensity) for result in results[::5]] == [
        ("sbm", True, 0.25),
        ("none", False, 0.7),
    ]
    assert [outcome.kind for outcome in outcomes] == ["view", "click"] * 5 + ["view"] * 5
    told = parse_token(outcomes[0].attribution_token, request_id=outcomes[0].request_id, user_id=outcomes[0].user_id)
    assert (told.cell, told.segment, told.arm, told.upgrade, told.upgrade_micro) == ("men", "1", "sbm", "yes", 250_000)
    assert {each.time_ms for each in said} == {1_574_553_600_000}


@pytest.mark.parametrize(
    ("folder", "says"),
    [("empty", "no campaign file"), ("somebody", "called random or bts"), ("random-both", "men, women")],
)
def test_folders_that_are_none_are_refused(folder: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write_log(tmp_path / "somebody", [row(0, START)])
    write_log(tmp_path / "random-both", [row(0, START)]).with_name("women.csv").write_text("")
    with pytest.raises(OpenBanditError, match=says):
        find_files([tmp_path / folder])


def test_two_files_of_one_name_are_refused_and_one_given_twice_is_one(tmp_path: Path) -> None:
    write_log(tmp_path / "a" / "random-men", [row(0, START)])
    write_log(tmp_path / "b" / "random-men", [row(0, START)])
    with pytest.raises(OpenBanditError, match="two files are called random-men"):
        find_files([tmp_path])
    assert len(find_files([tmp_path / "a", tmp_path / "a" / "random-men"])) == 1


def test_an_import_is_gone_on_with_only_as_it_began(tmp_path: Path) -> None:
    write_log(tmp_path / "random-men", [row(0, START)])
    began = manifest_of("men", looked_at(tmp_path).files, min_propensity=1e-3)
    assert difference(began, began) == ""
    assert "--min-propensity is 0.01, was 0.001" in difference(
        began, manifest_of("men", looked_at(tmp_path).files, min_propensity=1e-2)
    )
    write_log(tmp_path / "random-men", [row(0, START, click=1)])
    assert "not those" in difference(began, manifest_of("men", looked_at(tmp_path).files, min_propensity=1e-3))


def test_an_import_writes_under_its_own_prefix_alone() -> None:
    space = import_namespace(Namespace("eu."), "men")
    assert space.prefix == "eu.import.men."
    for planned in import_topics(space):
        require_shadow(space, planned.name)
        assert planned.config["message.timestamp.type"] == "CreateTime"
        assert planned.config.get("retention.ms", "-1") == "-1"
    for live in ("replay.fix.", "import.men."):
        with pytest.raises(ValueError, match="import beside"):
            import_namespace(Namespace(live), "men")
    with pytest.raises(ValueError, match="no name"):
        import_namespace(Namespace(), "a.b")
    with pytest.raises(AssertionError):
        import_topics(Namespace())


def test_wherever_an_import_is_cut_each_row_is_written_once_and_in_the_same_order(tmp_path: Path) -> None:
    # Many at the same time, in both files.
    for policy, num_rows in (("random", 40), ("bts", 55)):
        rows = [row(n, START + timedelta(seconds=n // 7)) for n in range(num_rows)]
        write_log(tmp_path / f"{policy}-men", rows)
    files = find_files([tmp_path])
    whole = [record for each in by_time(files) for record in records_of(*each, min_propensity=1e-3)]
    progress, written = Progress(), []
    for num_rows in (1, 7, 3, 50, 20, 95):
        # Killed behind the first transaction: what is durable is its records and its progress.
        said, progress = next(stretches(files, progress, min_propensity=1e-3, num_rows=num_rows))
        written += said
    assert written == whole
    assert (progress.num_rows, progress.num_records) == (95, len(whole))
    assert not list(stretches(files, progress, min_propensity=1e-3))
