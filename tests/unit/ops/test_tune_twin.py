"""`intertidal tune` on built-in scenarios: figures, margins of the defaults, and the verb."""

import json
from functools import cache

import pytest

from ops.cli import main
from ops.simulator.scenario import load_scenario
from ops.tune.choose import MIN_GAIN_MARGIN, MIN_PHASE_DEG
from ops.tune.report import POSITIONS, Report, place_of, tuned, verdict
from streams.control.gains import DEFAULT_GAINS, Gains

# Of each kind one: slow units and short windows with a quick rise, and many units behind a budget of nine tenths.
SCENARIOS = ["two-levers", "quick", "fleet-trace"]


@cache
def report_of(name: str) -> Report:
    return tuned([load_scenario(name)])


@pytest.fixture
def one_position(monkeypatch):
    """What the verb prints needs no more."""
    monkeypatch.setattr("ops.tune.report.POSITIONS", (0.5,))


@pytest.mark.parametrize("name", ["two-levers", "quick"])
def test_the_defaults_keep_their_margins_at_every_operating_point(name):
    report = report_of(name)
    assert [point.position for point in report.points] == list(POSITIONS)
    for point in report.points:
        assert point.default.is_stable
        assert point.default.gain is None or point.default.gain >= MIN_GAIN_MARGIN
        assert point.default.phase_deg >= MIN_PHASE_DEG


def test_sixty_four_units_behind_a_budget_of_nine_tenths_are_stable_with_less_margin():
    """The one built-in cell where the defaults fall short; docs/controller.md says so, and what would not."""
    report = report_of("fleet-trace")
    assert report.default.worst.is_stable
    assert not report.default.worst.holds
    assert 1.3 < (report.default.worst.gain or 0.0) < MIN_GAIN_MARGIN
    assert report.default.worst.phase_deg > MIN_PHASE_DEG
    assert report.recommended.worst.holds


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_is_identified_is_what_the_twin_does(name):
    play = load_scenario(name)
    acts_share = (play.time.lateness_ms + play.time.interval_ms) / play.time.window_ms
    for point in report_of(name).points:
        assert point.gain < 0.0
        assert point.misfit < 0.05
        # A word acts late in the next window, and the one after it shows the rest.
        assert point.response[0] / point.gain == pytest.approx(1.0 - acts_share, abs=0.2)
        assert point.response[1] / point.gain == pytest.approx(1.0, abs=0.05)
        assert point.load <= play.cells[0].limits.utilisation + 0.01


@pytest.mark.parametrize("name", SCENARIOS)
def test_ten_times_the_gains_are_flagged(name):
    places = [place_of(point) for point in report_of(name).points]
    wild = Gains(integral=1.0, rise_integral=1.0, proportional=1.0, derivative=1.0)
    assert not verdict(places, wild).worst.is_stable
    assert not verdict(places, wild).worst.holds
    assert verdict(places, DEFAULT_GAINS).worst.is_stable


def test_without_a_budget_steep_queues_would_rock():
    beyond = report_of("two-levers").points[0].unbudgeted
    assert beyond is not None
    assert beyond.load > 0.9
    assert not beyond.default.is_stable


def test_a_gentler_queue_bears_bolder_gains():
    gentle, steep = report_of("two-levers").recommended, report_of("fleet-trace").recommended
    assert gentle.gains["integral"] > 2.0 * steep.gains["integral"]


def test_json_has_the_documented_shape_and_is_the_same_for_the_same_seed(one_position, capfd):
    outputs = []
    for _ in range(2):
        assert main(["tune", "quick", "--json", "--seed", "5"]) == 0
        out, err = capfd.readouterr()
        assert err == ""
        outputs.append(out)
    assert outputs[0] == outputs[1]
    report = json.loads(outputs[0])
    assert list(report) == ["points", "skipped", "default", "recommended", "difference"]
    assert set(report["default"]) == set(report["recommended"]) == {"gains", "worst"}
    assert set(report["default"]["worst"]) == {"gain", "phase_deg", "sensitivity", "is_stable", "holds"}
    assert set(report["difference"]) == set(report["default"]["gains"])
    point = report["points"][0]
    assert {"scenario", "cell", "position", "load", "bound", "gain", "dead_ticks", "lag_ticks", "misfit"} < set(point)


def test_the_table_says_what_was_found_and_how_the_defaults_compare(one_position, capfd):
    assert main(["tune", "quick"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[1].split()[:4] == ["quick", "0.5", "0.70", "budget"]
    assert lines[-3].startswith("defaults")
    assert lines[-2].startswith("recommended")
    assert lines[-1].startswith("recommended less defaults")


def test_where_extras_have_no_unit_there_is_nothing_to_identify(one_position, capfd):
    assert main(["tune", "cpu-starved"]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("intertidal: nothing to identify")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["no-such-scenario"], "no such scenario"), (["missing.toml"], "missing.toml"), (["quick", "--seed", "x"], "x")],
)
def test_wrong_use_is_one_line_and_exit_code_2(arguments, said, capfd):
    assert main(["tune", *arguments]) == 2
    err = capfd.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1


def test_out_holds_the_figures_and_the_plot(one_position, tmp_path, capfd):
    pytest.importorskip("matplotlib", reason="the plot is drawn with matplotlib (extra: twin)")
    folder = tmp_path / "tuned"
    assert main(["tune", "quick", "--out", str(folder)]) == 0
    capfd.readouterr()
    assert sorted(path.name for path in folder.iterdir()) == ["tune.json", "tune.png"]
    assert (folder / "tune.png").read_bytes()[:4] == b"\x89PNG"
    assert json.loads((folder / "tune.json").read_text())["points"]


def test_help_has_an_example(capfd):
    assert main(["tune", "--help"]) == 0
    assert "intertidal tune two-levers" in capfd.readouterr().out
