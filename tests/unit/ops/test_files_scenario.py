"""Scenarios from files: named in TOML or by options, read once, and handed on whole."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ops import cli
from ops.simulator.files.apply import load_traffic, with_files
from ops.simulator.files.dirt import MEANINGS
from ops.simulator.files.errors import TrafficFileError
from ops.simulator.files.frozen import read_frozen, write_frozen
from ops.simulator.files.wanted import WantedArrivals, WantedCapacity, WantedFiles
from ops.simulator.requests import RequestStream
from ops.simulator.scenario import ScenarioError, load_scenario, parse_scenario
from ops.simulator.scenario_model import Scenario
from ops.simulator.timeline import host_timeline
from ops.simulator.world import World, WorldConfig
from schemas.records import RankingRequest

FLEET = "role,gpu_request,cpu_request,scheduled_time,deletion_time\nHN,4,8,,\nHN,4,8,30,60\nCN,0,64,80,\n"
TOML = """
name = "real"
seed = 1
warm_up_s = 4
duration_s = 20

[[cells]]
name = "us-east"
base_candidates = 64
max_candidates = 256
latency_limit_ms = 200

[arrivals]
process = "file"
path = "arrivals.csv"
rate_per_s = 10

[capacity_file]
path = "fleet.csv"
hosts = 2

[requests]
num_candidates = 256
deadline_ms = 500
pairs_file = "pairs.txt"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = "".join(f"2024-05-10 00:{second // 60:02}:{second % 60:02}+00:00,1,1\n" for second in range(600))
    (tmp_path / "arrivals.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    (tmp_path / "fleet.csv").write_text(FLEET)
    (tmp_path / "pairs.txt").write_text("32, 100, 300")
    (tmp_path / "real.toml").write_text(TOML)
    return tmp_path


@pytest.fixture
def files(folder: Path) -> WantedFiles:
    return WantedFiles(
        arrivals=WantedArrivals(path=str(folder / "arrivals.csv")),
        capacity=WantedCapacity(path=str(folder / "fleet.csv")),
        pairs=str(folder / "pairs.txt"),
    )


def generated() -> Scenario:
    """The built-in scenario, over less time."""
    return replace(load_scenario("generated"), warm_up_s=4.0, duration_s=12.0, capacity_changes=())


def requests_of(scenario: Scenario) -> list[RankingRequest]:
    stream = RequestStream(scenario, World(WorldConfig(num_ads=400)), start_ms=0)
    return [due.request for due in stream.due()]


def test_a_toml_names_files_beside_it(folder: Path) -> None:
    scenario = load_traffic(str(folder / "real.toml"))
    assert [report.kind for report in scenario.file_reports] == ["arrivals", "capacity", "pairs"]
    assert [report.name for report in scenario.file_reports] == ["arrivals.csv", "fleet.csv", "pairs.txt"]
    assert scenario.arrivals.process == "file"
    assert scenario.arrivals.rate_per_s == pytest.approx(10.0, rel=0.05)
    assert {host.accelerator for host in scenario.hosts} == {"gpu", "cpu"}
    assert len(scenario.ranker_hosts()) == 2
    assert "reclaim" in {event.action for event in host_timeline(scenario)}


def test_every_kind_of_odd_row_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "real-files.md").read_text(encoding="utf-8")
    assert [kind for kind in MEANINGS if f"`{kind}`" not in page] == []


def test_options_go_before_the_files_of_a_toml(folder: Path) -> None:
    (folder / "other.txt").write_text("5 6")
    scenario = load_traffic(str(folder / "real.toml"), files=WantedFiles(pairs=str(folder / "other.txt")))
    assert [report.name for report in scenario.file_reports] == ["arrivals.csv", "fleet.csv", "other.txt"]


def test_factors_are_chosen_for_the_time_that_is_asked_for(folder: Path) -> None:
    short, long = (load_traffic(str(folder / "real.toml"), duration_s=duration_s) for duration_s in (20.0, 40.0))
    assert short.file_reports[1].factors["speed"] == 4.0
    assert long.file_reports[1].factors["speed"] == 2.0


def test_a_request_has_as_many_candidates_as_the_quantiles_say(files: WantedFiles) -> None:
    scenario = with_files(generated(), files)
    requests = requests_of(scenario)
    sizes = np.array([len(request.ad_ids) // 8 for request in requests])
    assert sizes.min() >= 32
    assert sizes.max() <= 300
    # Half of them between the first two quantiles, evenly.
    assert np.mean(sizes <= 100) == pytest.approx(0.5, abs=0.08)
    assert np.mean(sizes <= 66) == pytest.approx(0.25, abs=0.08)
    base = scenario.cells[0].limits.base_candidates
    assert {request.num_base_candidates for request in requests} >= {base, 40}
    assert all(request.num_base_candidates == min(base, size) for request, size in zip(requests, sizes, strict=True))


def test_limits_let_the_largest_request_be_ranked_whole_and_rise_by_the_same_step(files: WantedFiles) -> None:
    before, after = load_scenario("generated"), with_files(load_scenario("generated"), WantedFiles(pairs=files.pairs))
    old, new = before.cells[0].limits, after.cells[0].limits
    assert new.max_candidates == 300
    assert new.base_candidates == old.base_candidates
    assert new.rise_share * (300 - new.base_candidates) == pytest.approx(old.rise_share * (256 - old.base_candidates))


def test_arrivals_come_at_the_files_times(files: WantedFiles) -> None:
    scenario = replace(load_scenario("quick"), warm_up_s=0.0, duration_s=20.0)
    arrivals = WantedArrivals(path=files.arrivals.path if files.arrivals else "", from_s=100.0, speed=2.0, rate=1.0)
    stream = RequestStream(
        with_files(scenario, WantedFiles(arrivals=arrivals)), World(WorldConfig(num_ads=400)), start_ms=0
    )
    assert [due.at_s for due in stream.due()] == [second / 2.0 for second in range(40)]


def test_no_request_comes_after_the_traffic(files: WantedFiles) -> None:
    scenario = with_files(load_scenario("quick"), WantedFiles(arrivals=files.arrivals))
    times_s = [due.at_s for due in RequestStream(scenario, World(WorldConfig(num_ads=400)), start_ms=0).due()]
    assert scenario.traffic_s - 2.0 < times_s[-1] < scenario.traffic_s


def test_the_same_files_give_the_same_scenario_and_its_frozen_form_is_equal(files: WantedFiles, folder: Path) -> None:
    scenario = with_files(generated(), files)
    assert with_files(generated(), files) == scenario
    frozen = folder / "scenario.json"
    write_frozen(scenario, frozen)
    # The files are not needed again.
    for name in ("arrivals.csv", "fleet.csv", "pairs.txt"):
        (folder / name).unlink()
    handed_on = load_traffic(str(frozen), duration_s=scenario.duration_s)
    assert handed_on == scenario
    assert requests_of(handed_on) == requests_of(scenario)


def test_every_built_in_scenario_has_a_frozen_form(tmp_path: Path) -> None:
    for name in ("generated", "quick"):
        write_frozen(load_scenario(name), tmp_path / "scenario.json")
        assert read_frozen(tmp_path / "scenario.json") == load_scenario(name)


def test_what_is_no_frozen_scenario_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"name": 1}')
    with pytest.raises(TrafficFileError, match="is no frozen scenario"):
        read_frozen(tmp_path / "a.json")
    with pytest.raises(TrafficFileError, match="cannot be read"):
        read_frozen(tmp_path / "absent.json")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('process = "file"', 'process = "poisson"', "arrivals.path: belongs to arrivals of process"),
        ('path = "arrivals.csv"\n', "", "arrivals.path: missing"),
        ("rate_per_s = 10", "rate_per_s = 10\nspeed = 0", "arrivals.speed: must be from"),
        ("hosts = 2", "hosts = 0", "capacity_file.hosts: must be from"),
        ("hosts = 2", "host = 2", "capacity_file.host: unknown key"),
        ("[arrivals]", "[random_reclaims]\n[arrivals]", "random_reclaims: stands beside capacity_file"),
    ],
)
def test_a_mistake_in_a_toml_is_named_by_key(old: str, new: str, words: str) -> None:
    assert old in TOML
    with pytest.raises(ScenarioError, match=words):
        parse_scenario(TOML.replace(old, new), file="real.toml")


def test_a_report_says_what_was_read_what_was_odd_and_what_was_chosen(files: WantedFiles, folder: Path) -> None:
    with (folder / "arrivals.csv").open("a") as file:
        file.write("never,1,1\n")
    report = with_files(load_scenario("quick"), files).file_reports[0]
    said = report.to_dict()
    assert (said["name"], said["rows"], said["used"]) == ("arrivals.csv", 601, 600)
    assert said["dirty"] == {"bad_time": {"rows": 1, "first_lines": [602]}}
    assert said["chosen"] == ["from_s", "speed", "rate"]
    assert all(math.isfinite(value) for value in said["factors"].values())
    assert str(folder) not in report.line()
    assert "600 of 601 used" in report.line()
    assert "1 bad_time (line 602)" in report.line()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--arrivals", "absent.csv"], "absent.csv: cannot be read"),
        (["--arrivals", "fleet.csv"], "fleet.csv: TIMESTAMP: no such column"),
        (["--capacity", "arrivals.csv"], "arrivals.csv: deletion_time: no such column"),
        (["--pairs", "words.txt"], "words.txt: quantiles: no usable number"),
        (["--arrivals-speed", "2"], "--arrivals-speed belongs to --arrivals"),
        (["--capacity-hosts", "2"], "--capacity-hosts belongs to --capacity"),
        (["--arrivals", "arrivals.csv", "--arrivals-speed", "nan"], "speed must be from"),
        (["--arrivals", "arrivals.csv", "--arrivals-from", "9999"], "no arrival in"),
        (["--capacity", "fleet.csv", "--capacity-from", "9999"], "starts at 9999 s, the trace ends at 80 s"),
    ],
)
def test_a_file_or_factor_that_cannot_be_used_is_one_line_and_wrong_use(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    (folder / "words.txt").write_text("few many")
    monkeypatch.chdir(folder)
    assert cli.main(["demo", *arguments]) == cli.EXIT_WRONG_USE
    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1
