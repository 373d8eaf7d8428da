"""A fleet's trace and real arrivals in the twin."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ops.simulator.files.errors import TrafficFileError
from ops.twin.baselines import CONTROLLERS
from ops.twin.play import cell_play
from ops.twin.run import simulate
from ops.twin.supply import Supply
from ops.twin.trace import Stretch, with_arrivals, with_fleet
from tests.unit.ops.twin_makers import scenario

HEADER = "role,gpu_request,cpu_request,creation_time,scheduled_time,deletion_time\n"


def fleet_file(folder: Path, rows: Sequence[tuple[float, float, float]]) -> Path:
    """GPUs, from when, until when."""
    path = folder / "fleet.csv"
    path.write_text(HEADER + "".join(f"HN,{gpus:g},{8 * gpus:g},,{start},{end}\n" for gpus, start, end in rows))
    return path


def idle_over_time(made, at_s: list[float]) -> list[float]:
    play = cell_play(made, 0)
    supply = Supply(play.hosts, play.events)
    seen = []
    for moment in at_s:
        supply.play(made.warm_up_s + moment)
        seen.append(sum(usable.units for usable in supply.usable()))
    return seen


def test_as_many_units_are_idle_as_the_fleet_is_below_its_peak(tmp_path):
    # In use: 4, then 7 from 100 s (the peak), 2 from 200 s, 5 from 300 s to the end at 400 s.
    path = fleet_file(tmp_path, [(2, 0, 400), (2, 0, 200), (3, 100, 200), (3, 300, 400)])
    made = with_fleet(scenario("fleet-trace"), path, Stretch())
    assert made.duration_s == 400.0
    assert idle_over_time(made, [0.0, 99.0, 101.0, 201.0, 299.0, 301.0]) == [3.0, 3.0, 0.0, 5.0, 5.0, 2.0]
    assert {host.accelerator for host in made.hosts} == {"gpu"}
    assert {host.cpu_cores for host in made.hosts} == {8.0}
    (report,) = made.file_reports
    assert "up to 5 of 7 GPUs idle" in report.story


def test_a_stretch_starts_in_the_middle_and_ends_early(tmp_path):
    path = fleet_file(tmp_path, [(2, 0, 400), (2, 0, 200), (3, 100, 200), (3, 300, 400)])
    made = with_fleet(scenario("fleet-trace"), path, Stretch(from_s=150.0, seconds=100.0))
    assert made.duration_s == 100.0
    assert idle_over_time(made, [0.0, 49.0, 51.0, 99.0]) == [0.0, 0.0, 5.0, 5.0]


def test_which_gpu_goes_is_drawn_by_the_seed_and_the_same_again(tmp_path):
    rows = [(8, 0, 100), (1, 0, 1_000)] + [(1, 150 + 50 * number, 1_000) for number in range(8)]
    path = fleet_file(tmp_path, rows)
    changes = [with_fleet(scenario("fleet-trace", seed=seed), path, Stretch()).capacity_changes for seed in (1, 1, 2)]
    assert changes[0] == changes[1]
    assert changes[0] != changes[2]


@pytest.mark.parametrize(
    ("rows", "stretch", "said"),
    [
        ([(0, 0, 100)], Stretch(), "no instance asks for a GPU|no usable|nothing changes"),
        ([(1, 0, 100), (1, 50, 100)], Stretch(from_s=500.0), "the trace ends at"),
        ([(1, 0, 100), (1, 50, 100)], Stretch(from_s=60.0, seconds=10.0), "no GPU is ever idle"),
    ],
)
def test_a_fleet_that_gives_nothing_is_refused(tmp_path, rows, stretch, said):
    with pytest.raises(TrafficFileError, match=said):
        with_fleet(scenario("fleet-trace"), fleet_file(tmp_path, rows), stretch)


def test_arrivals_are_the_files_shape_at_the_scenarios_rate(tmp_path):
    path = tmp_path / "arrivals.csv"
    times = [0.0, 0.1, 0.2, 5.0, 20.0, 20.5, 30.0]
    path.write_text("TIMESTAMP\n" + "".join(f"{at_s}\n" for at_s in times))
    made = with_arrivals(scenario("cpu-starved"), path)
    shape = np.frombuffer(made.twin.shape, "<f8")
    assert shape.mean() == pytest.approx(1.0)
    assert shape[0] == pytest.approx(3.0 * 30 / 7)
    assert np.count_nonzero(shape) == 4
    # Windows of ten seconds: 4, 0 and 3 of the seven arrivals, again and again.
    rates = cell_play(made, 0).schedule.rates_K[12:18]
    assert rates == pytest.approx(120.0 * np.tile([4 * 3 / 7, 0.0, 3 * 3 / 7], 2), rel=1e-6)


def test_many_sources_are_as_even_as_many_are(tmp_path):
    path = tmp_path / "arrivals.csv"
    path.write_text("TIMESTAMP\n" + "".join(f"{at_s}\n" for at_s in [0.0, *np.linspace(500.0, 501.0, 50), 1_000.0]))
    one, many = (with_arrivals(scenario("cpu-starved"), path, num_sources=num) for num in (1, 400))
    deviation = [float(np.frombuffer(made.twin.shape, "<f8").std()) for made in (one, many)]
    # The sum of n independent sources varies by 1 / sqrt(n) of one.
    assert deviation[1] == pytest.approx(deviation[0] / 20.0, rel=0.3)


DATA = Path(os.environ.get("INTERTIDAL_SHARED_DATA", Path(__file__).parents[4] / "shared" / "data"))
FLEET = DATA / "alibaba" / "disaggregated_DLRM_trace.csv"
ARRIVALS = DATA / "azure" / "AzureLLMInferenceTrace_code.csv"


@pytest.mark.skipif(
    not (FLEET.is_file() and ARRIVALS.is_file()), reason="no traces at ../shared/data or INTERTIDAL_SHARED_DATA"
)
def test_the_public_fleet_and_arrivals_are_played_beside_rule_and_oracle():
    made = with_fleet(scenario("fleet-trace"), FLEET, Stretch(from_s=2_000_000.0, seconds=4 * 3_600.0))
    made = with_arrivals(made, ARRIVALS, num_sources=64)
    assert "of 3412 GPUs idle" in made.file_reports[0].story
    totals = {name: simulate(made, name).totals for name in CONTROLLERS}
    assert len({each.num_reclaims for each in totals.values()}) == 1
    assert len({round(each.usable_unit_h, 3) for each in totals.values()}) == 1
    earned = {name: sum(each.earned.values()) for name, each in totals.items()}
    assert 0.5 * earned["oracle"] < earned["intertidal"] <= 1.005 * earned["oracle"]
    assert totals["intertidal"].num_base_late == 0
    assert 0.3 < totals["intertidal"].used_share <= 1.0
