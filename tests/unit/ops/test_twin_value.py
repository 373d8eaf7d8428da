"""What ranking earns by the world's truth, and the curves that are made of it."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.simulator.world import World, WorldConfig
from ops.twin.curves import with_curves
from ops.twin.value import ValueQuestion, WindowValue, concave_points, value_table
from schemas.records import AcceleratorFit, CellLimits, CurvePoint, LeverTerms, ValueCurve
from tests.unit.ops.twin_makers import table

QUESTION = ValueQuestion(base_candidates=64, max_candidates=256, num_results=4, powerful_noise_share=0.3, seed=3)


def test_gains_are_those_of_the_world_and_not_of_a_segments_worth():
    made = value_table(QUESTION)
    worth = dict(zip(made.segments, made.baseline_SW[:, 0].tolist(), strict=True))
    wider = made.baseline_SW[:, -1] / made.baseline_SW[:, 0] - 1.0
    gain = dict(zip(made.segments, wider.tolist(), strict=True))
    # The world's most valuable segment has the best retrieval, and so the least to gain from a wider search.
    assert max(worth, key=worth.__getitem__) == "finance"
    assert min(gain, key=gain.__getitem__) == "finance"
    assert gain["gaming"] > 0.1
    assert np.all(np.diff(made.baseline_SW, axis=1) >= 0.0)
    assert np.all(made.upgraded_SW >= made.baseline_SW)
    assert np.all(made.upgraded_SW[:, 0] > 1.02 * made.baseline_SW[:, 0])


def test_a_model_that_knows_no_more_earns_no_more():
    made = value_table(
        ValueQuestion(base_candidates=64, max_candidates=128, num_results=4, powerful_noise_share=1.0, seed=3)
    )
    assert made.upgraded_SW == pytest.approx(made.baseline_SW)


def test_belief_is_the_truth_without_noise_and_further_from_it_with_more():
    world = World(WorldConfig())
    ids = np.arange(200)
    errors = []
    for share in (0.0, 0.5, 1.0):
        gaps = [
            np.abs(world.believed_probability(user, ids, noise_share=share) - world.click_probability(user, ids)).mean()
            for user in range(50)
        ]
        errors.append(float(np.mean(gaps)))
    assert errors[0] == 0.0
    assert errors[0] < errors[1] < errors[2]


def test_between_widths_values_are_linear_and_beyond_them_constant():
    made = table()
    assert made.at(64.0, upgraded=False).tolist() == [8.0, 2.0]
    assert made.at(176.0, upgraded=False)[1] == pytest.approx(2.5)
    assert made.at(1e9, upgraded=False)[1] == 3.5
    assert made.at(1.0, upgraded=True)[0] == 9.0


def test_a_windows_value_is_base_and_what_each_lever_adds():
    value = WindowValue(table(), base_candidates=64, nums_S=np.array([100, 100]), upgraded_S=np.array([50.0, 0.0]))
    assert value.base == pytest.approx(1_000.0)
    assert value.of_upgrades == pytest.approx(50.0)
    assert value.of_extras(0.0) == pytest.approx(0.0)
    assert value.of_extras(448.0) == pytest.approx(150.0)


@given(st.lists(st.tuples(st.floats(0.1, 100.0), st.floats(-10.0, 50.0)), min_size=1, max_size=12))
def test_the_hull_is_concave_and_above_every_point(steps):
    work = np.cumsum([step for step, _ in steps]).tolist()
    values = [value for _, value in steps]
    hull = [(0.0, 0.0), *concave_points(work, values)]
    slopes = [(y1 - y0) / (x1 - x0) for (x0, y0), (x1, y1) in pairwise(hull)]
    assert all(later < earlier + 1e-9 for earlier, later in pairwise(slopes))
    xs, ys = zip(*hull, strict=True)
    assert all(np.interp(x, xs, ys) >= y - 1e-6 for x, y in zip(work, values, strict=True))
    assert hull[-1][0] == work[-1]


def test_levers_get_the_worlds_curves_unless_they_have_their_own():
    own = [ValueCurve(segment="poor", points=[CurvePoint(work_units_s=1.0, value_s=2.0)])]
    fits = [AcceleratorFit(accelerator="a100", units_per_unit_s=1_000.0)]
    limits = CellLimits(
        base_candidates=64,
        max_candidates=512,
        latency_limit_ms=100.0,
        units_per_upgrade=512.0,
        levers=[LeverTerms(lever="rma", fits=fits, curves=own), LeverTerms(lever="sbm", fits=fits)],
    )
    made = with_curves(limits, table(), rates_S=np.array([10.0, 0.0]), factor=0.5)
    rma, sbm = made.levers
    assert rma.curves == own
    # Half the truth, of the one segment that has requests: ten a second gain 1.0 each for 512 work units.
    (curve,) = sbm.curves
    assert curve.segment == "rich"
    (point,) = curve.points
    assert point.work_units_s == 5_120.0
    assert point.value_s == pytest.approx(5.0)
