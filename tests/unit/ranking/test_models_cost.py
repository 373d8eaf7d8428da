"""Predicted cost: what the manifest measured before what the architecture expects, and how a curve becomes a line."""

import itertools
import json
from pathlib import Path

import pytest
import torch

from ranking.models.baseline import BaselineModel
from ranking.models.bundle import MANIFEST, WEIGHTS, BundleError, read_bundle, write_manifest
from ranking.models.cost import BASELINE_COST, LatencyCurve, ModelCost, fitted_cost
from ranking.models.latency import FULL_CALL, SIZES, measure_latency
from ranking.models.load import BASELINE_WORLD_BUNDLE, load_baseline, load_bundle, load_model, save_model
from ranking.models.scorer import Scorer
from ranking.models.wukong import WukongConfig, WukongModel, expected_cost

_CONFIG = WukongConfig(num_features=3, bucket_bits=4, embedding_dim=4, history_width=4, user_width=8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    save_model(WukongModel(_CONFIG, "w1"), tmp_path / "bundle", accelerators=("cpu",))
    return tmp_path / "bundle"


def test_every_architecture_comes_back_as_it_was_written(folder: Path) -> None:
    loaded = load_model(folder)
    assert isinstance(loaded, WukongModel)
    assert (loaded.version, loaded.config, loaded.training) == ("w1", _CONFIG, False)
    torch.manual_seed(0)
    for name, tensor in WukongModel(_CONFIG, "w1").state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)
    with pytest.raises(BundleError, match="the architecture is not baseline"):
        load_baseline(folder)


def test_manifests_without_measurements_stay_readable_and_are_written_without() -> None:
    manifest = read_bundle(BASELINE_WORLD_BUNDLE).manifest
    assert load_bundle(BASELINE_WORLD_BUNDLE).cost == (manifest.cost or BASELINE_COST)
    assert isinstance(load_model(BASELINE_WORLD_BUNDLE), BaselineModel)


def test_what_was_measured_goes_before_what_is_expected(folder: Path) -> None:
    assert "cost" not in json.loads((folder / MANIFEST).read_bytes())
    assert load_bundle(folder).cost == expected_cost(_CONFIG)
    weights, manifest = (folder / WEIGHTS).read_bytes(), read_bundle(folder).manifest
    curve = LatencyCurve(history_length=200, microseconds={1: 90.0, 512: 1000.0})
    fields = {name: getattr(manifest, name) for name in manifest.__struct_fields__}
    write_manifest(folder, type(manifest)(**{**fields, "latency_curve": {"cpu": curve}, "cost": ModelCost(70.0, 2.5)}))
    loaded = load_bundle(folder)
    assert loaded.cost == ModelCost(70.0, 2.5)
    assert loaded.cost.units(10) == 95.0
    assert loaded.manifest.latency_curve == {"cpu": curve}
    assert loaded.manifest.files == manifest.files
    assert (folder / WEIGHTS).read_bytes() == weights


def test_a_reader_is_not_put_off_by_a_manifest_that_is_being_replaced(folder: Path) -> None:
    (folder / f".{MANIFEST}.new").write_text("{")
    assert load_model(folder).version == "w1"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cost", {"request_units": -1.0, "candidate_units": 1.0}),
        ("cost", {"request_units": 1.0, "candidate_units": 0.0}),
        ("latency_curve", {"abacus": {"history_length": 0, "microseconds": {"1": 1.0}}}),
        ("latency_curve", {"cpu": {"history_length": 0, "microseconds": {"0": 1.0}}}),
        ("latency_curve", {"cpu": {"history_length": 0, "microseconds": {}}}),
        ("memory_bytes", -1),
    ],
)
def test_a_measurement_that_cannot_be_is_refused(folder: Path, field: str, value: object) -> None:
    manifest = json.loads((folder / MANIFEST).read_bytes())
    (folder / MANIFEST).write_text(json.dumps({**manifest, field: value}))
    with pytest.raises(BundleError, match=rf"manifest.json: .*{field}"):
        load_model(folder)


def test_a_line_is_found_again() -> None:
    cost = fitted_cost({size: 300.0 + 2.0 * size for size in SIZES}, unit_us=0.5)
    assert cost.request_units == pytest.approx(600.0)
    assert cost.candidate_units == pytest.approx(4.0)


@pytest.mark.parametrize("curve", [{1: 1.0, 100: 200.0, 1000: 3000.0}, {1: 50.0, 100: 40.0, 1000: 30.0}])
def test_a_fitted_cost_is_never_negative(curve: dict[int, float]) -> None:
    cost = fitted_cost(curve, unit_us=1.0)
    assert cost.request_units >= 0.0
    assert cost.candidate_units > 0.0


def test_one_size_is_no_line() -> None:
    with pytest.raises(ValueError, match="two sizes"):
        fitted_cost({1: 1.0}, unit_us=1.0)


def test_a_model_that_takes_as_long_as_the_baseline_costs_what_it_costs() -> None:
    # A clock whose every reading is a microsecond later: every call takes as long.
    clock = itertools.count(0, 1_000)
    scorer = Scorer(load_baseline())
    curve, cost = measure_latency(
        scorer, scorer, num_features=(15, 15), history_length=3, clock_ns=lambda: next(clock), num_turns=1
    )
    assert curve == LatencyCurve(history_length=3, microseconds=dict.fromkeys(SIZES, 1.0))
    assert cost.request_units == pytest.approx(FULL_CALL)
