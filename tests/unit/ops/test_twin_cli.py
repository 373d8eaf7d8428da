"""`intertidal simulate` at the command line."""

import json
import re

import pytest
from click.testing import CliRunner

from ops.cli import main
from ops.twin import cli as twin_cli
from ops.twin.cli import simulate_command

TWENTY_MINUTES = ["--seconds", "1200"]


def test_json_is_the_same_bytes_for_the_same_seed_and_others_for_another(capfd):
    outputs = []
    for arguments in ([], [], ["--seed", "99"]):
        assert main(["simulate", "cpu-starved", *TWENTY_MINUTES, "--json", *arguments]) == 0
        outputs.append(capfd.readouterr().out)
    assert outputs[0] == outputs[1]
    assert outputs[0] != outputs[2]
    report = json.loads(outputs[0])
    assert report["run"]["totals"]["num_requests"] > 100_000
    assert report["run"]["controller"] == "intertidal"
    assert list(report["compared"]) == ["intertidal"]


def test_in_a_pipe_it_prints_the_table_alone(capfd):
    assert main(["simulate", "cpu-starved", "--seconds", "300", "--compare"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["intertidal", "threshold-rule", "oracle"]
    assert not re.search("\x1b", out)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such-scenario"], "no such scenario"),
        (["cpu-starved", "--seconds", "0"], "--seconds"),
        (["fleet-trace", "--capacity", "missing.csv"], "missing.csv"),
        (["cpu-starved", "--arrivals", "missing.csv"], "missing.csv"),
        (["cpu-starved", "--detail", "atom"], "--detail"),
        (["cpu-starved", "--detail", "request", "--compare"], "--compare"),
        (["cpu-starved", "--detail", "request", "--processes", "2"], "--processes"),
        (["cpu-starved", "--seconds", "nan"], "--seconds: not a number"),
        (["cpu-starved", "--capacity", "missing.csv", "--capacity-from", "nan"], "--capacity-from: not a number"),
        (["cpu-starved", "--capacity-from", "10"], "--capacity-from belongs to --capacity"),
        (["cpu-starved", "--arrivals-sources", "2"], "--arrivals-sources belongs to --arrivals"),
        (["cpu-starved", "--out", ""], "--out names no folder"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(arguments, said, capfd):
    assert main(["simulate", *arguments]) == 2
    err = capfd.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1


def test_out_holds_metrics_table_and_a_plot_of_each_kind(tmp_path, capfd):
    pytest.importorskip("matplotlib", reason="plots are drawn with matplotlib (extra: twin)")
    folder = tmp_path / "run"
    assert main(["simulate", "reclaim-storm", "--seconds", "300", "--out", str(folder)]) == 0
    capfd.readouterr()
    assert sorted(path.name for path in folder.iterdir()) == [
        "capacity.png",
        "coverage.png",
        "latency.png",
        "metrics.json",
        "shed.png",
        "table.md",
        "targets.png",
        "value.png",
    ]
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in folder.glob("*.png"))
    assert json.loads((folder / "metrics.json").read_text())["run"]["scenario"] == "reclaim-storm"


@pytest.fixture
def no_run(monkeypatch):
    """Fails where a simulation is begun."""

    def begun(*_, **__):
        raise AssertionError("a simulation was begun")

    monkeypatch.setattr(twin_cli, "simulate_all", begun)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (('process = "poisson"', 'process = "file"\npath = "requests.csv"'), ["requests.csv"]),
        (("num_candidates", 'pairs_file = "pairs.csv"\nnum_candidates'), ["pairs.csv"]),
        (("[arrivals]", '[capacity_file]\npath = "fleet.csv"\n[arrivals]'), ["fleet.csv"]),
    ],
)
def test_a_scenario_whose_traffic_comes_from_files_is_refused_by_name(change, named, tmp_path, capfd, no_run):
    text = (
        "name = 'filed'\nseed = 1\nwarm_up_s = 10.0\nduration_s = 100.0\n"
        "[[cells]]\nname = 'a'\nbase_candidates = 64\nmax_candidates = 256\nlatency_limit_ms = 150.0\n"
        '[arrivals]\nprocess = "poisson"\nrate_per_s = 50.0\n[requests]\nnum_candidates = 256\ndeadline_ms = 500\n'
    )
    hosts = (
        "[[hosts]]\nname = 'h'\ncell = 'a'\naccelerator = 'cpu'\nunits = 1.0\ncpu_cores = 1.0\n"
        "memory_bytes = 1\nidle_cause = 'off_peak'\n"
    )
    toml = tmp_path / "filed.toml"
    toml.write_text(text.replace(*change) + ("" if "[capacity_file]" in change[1] else hosts))
    assert main(["simulate", str(toml)]) == 2
    err = capfd.readouterr().err
    assert "filed names traffic files" in err
    assert "simulate takes --capacity and --arrivals" in err
    assert all(str(tmp_path / name) in err for name in named)
    assert len(err.splitlines()) == 1


def test_a_folder_that_cannot_be_is_told_before_the_run(tmp_path, capfd, no_run):
    pytest.importorskip("matplotlib", reason="plots are drawn with matplotlib (extra: twin)")
    (tmp_path / "file").write_text("")
    assert main(["simulate", "cpu-starved", "--seconds", "60", "--out", str(tmp_path / "file" / "run")]) == 1
    err = capfd.readouterr().err
    assert f"--out {tmp_path / 'file' / 'run'}" in err
    assert len(err.splitlines()) == 1


def test_what_cannot_be_written_is_one_line(tmp_path, capfd):
    pytest.importorskip("matplotlib", reason="plots are drawn with matplotlib (extra: twin)")
    (tmp_path / "table.md").mkdir()
    assert main(["simulate", "cpu-starved", "--seconds", "60", "--out", str(tmp_path)]) == 1
    err = capfd.readouterr().err
    assert f"--out {tmp_path}" in err
    assert len(err.splitlines()) == 1


def test_help_has_an_example():
    said = CliRunner().invoke(simulate_command, ["--help"]).output
    assert "intertidal simulate reclaim-storm" in said


def test_processes_do_not_change_the_result(tmp_path, capfd):
    toml = tmp_path / "few.toml"
    text = (
        "[[cells]]\nname = 'a'\nbase_candidates = 64\nmax_candidates = 256\nlatency_limit_ms = 150.0\n"
        "[[hosts]]\nname = 'h'\ncell = 'a'\naccelerator = 'cpu'\ncopies = 3\nunits = 1.0\ncpu_cores = 1.0\n"
        "memory_bytes = 1\nidle_cause = 'off_peak'\n"
        "[random_reclaims]\nper_host_per_minute = 0.5\nmean_duration_s = 60.0\n"
        "[arrivals]\nrate_per_s = 50.0\n[requests]\nnum_candidates = 256\ndeadline_ms = 500\n"
        "[twin]\ncopies = 4\n"
    )
    toml.write_text("name = 'few'\nseed = 1\nwarm_up_s = 10.0\nduration_s = 200.0\n" + text)
    outputs = []
    for processes in ("1", "2"):
        assert main(["simulate", str(toml), "--json", "--processes", processes]) == 0
        outputs.append(capfd.readouterr().out)
    assert outputs[0] == outputs[1]
    assert len(json.loads(outputs[0])["run"]["cells"]) == 4
