"""A model that an installed package brings: found by its entry point alone, loaded, checked and scored with."""

import importlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from ranking.models.architectures import BUILT_IN
from ranking.models.bundle import BundleError
from ranking.models.conformance import NonconformingModelError, check_conformance
from ranking.models.inputs import CandidateChunk, Users
from ranking.models.load import load_bundle, load_model, open_bundle, save_model
from ranking.models.protocol import CandidateTensors, EncodedUsers
from ranking.models.scorer import Scorer

_EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "own_model.py"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path where the example can be installed."""
    folder = tmp_path / "site"
    folder.mkdir()
    shutil.copy(_EXAMPLE, folder)
    monkeypatch.syspath_prepend(folder)
    yield folder
    sys.modules.pop("own_model", None)


def _install(site: Path, value: str = "own_model:ARCHITECTURE", *, package: str = "own_model") -> None:
    info = site / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[intertidal.models]\ntaste = {value}\n")
    importlib.invalidate_caches()


@pytest.fixture
def folder(site: Path, tmp_path: Path) -> Path:
    own_model = importlib.import_module("own_model")
    torch.manual_seed(0)
    model = own_model.TasteModel(own_model.TasteConfig(num_features=3, num_ads=50, taste_dim=4), "taste-1")
    save_model(model, tmp_path / "bundle", accelerators=("cpu",))
    return tmp_path / "bundle"


def test_an_installed_model_is_loaded_checked_and_scored_with(site: Path, folder: Path) -> None:
    _install(site)
    loaded = load_bundle(folder)
    assert (loaded.model.version, loaded.num_features) == ("taste-1", 3)
    assert loaded.cost.units(64) == pytest.approx(50.0 + 64 * 0.5625)
    scorer = Scorer(loaded.model)
    check_conformance(scorer, loaded.num_features)
    w = {name: tensor.double().numpy() for name, tensor in open_bundle(folder).bundle.tensors.items()}
    features, past, ads = np.array([1.0, -2.0, 0.5], dtype=np.float32), [7, 9], [3, 7]
    scores_N = scorer.score_chunk(
        scorer.prepare(Users.of_requests([features], [np.array(past)])),
        CandidateChunk(
            ad_ids_N=np.array(ads),
            bids_N=np.array([1.0, 2.0], dtype=np.float32),
            retrieval_scores_N=np.array([0.5, -0.5], dtype=np.float32),
            request_of_candidate_N=np.zeros(2, dtype=np.int64),
        ),
    )
    taste = w["taste.weight"] @ features + w["taste.bias"] + w["ads.weight"][past].mean(axis=0)
    log_odds = w["ads.weight"][ads] @ taste + np.array([0.5, -0.5]) - 3.0
    np.testing.assert_allclose(scores_N, np.array([1.0, 2.0]) / (1.0 + np.exp(-log_odds)), rtol=1e-5)


def test_a_model_whose_package_is_not_installed_is_refused_though_its_file_lies_on_the_path(folder: Path) -> None:
    with pytest.raises(
        BundleError, match=r"manifest.json: architecture taste is neither built in .* installed package"
    ):
        load_model(folder)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("own_model:ABSENT", "own_model:ABSENT cannot be imported"),
        ("no_such_module:ARCHITECTURE", "no_such_module:ARCHITECTURE cannot be imported"),
        ("own_model:TasteModel", "own_model:TasteModel is no Architecture"),
    ],
)
def test_an_entry_point_that_leads_nowhere_is_named(site: Path, folder: Path, value: str, reason: str) -> None:
    _install(site, value)
    with pytest.raises(BundleError, match=reason) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)


def test_two_packages_that_bring_one_architecture_are_refused(site: Path, folder: Path) -> None:
    _install(site)
    _install(site, package="other_model")
    with pytest.raises(BundleError, match="architecture taste is brought by 2 installed packages"):
        load_model(folder)


def test_a_model_that_looks_at_batch_mates_is_not_fit_to_serve(
    site: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(site)
    loaded = load_bundle(folder)
    score = loaded.model.score

    def relative(encoded: EncodedUsers, candidates: CandidateTensors) -> Tensor:
        scores_N = score(encoded, candidates)
        return scores_N / scores_N.sum()

    monkeypatch.setattr(loaded.model, "score", relative)
    with pytest.raises(NonconformingModelError, match=r"taste-1: .* scores depend on what else is in the call"):
        check_conformance(Scorer(loaded.model), 3)
    with pytest.raises(NonconformingModelError, match="taste-1 cannot score: ") as caught:
        check_conformance(Scorer(loaded.model), 4)
    assert "\n" not in str(caught.value)


def test_state_outside_the_weights_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch, site: Path) -> None:
    from own_model import ARCHITECTURE, TasteModel  # type: ignore[import-not-found]

    class Forgetful(TasteModel):  # type: ignore[misc]
        def __init__(self, config: object, version: str) -> None:
            super().__init__(config, version)
            self.register_buffer("table", torch.ones(2), persistent=False)

    monkeypatch.setitem(
        BUILT_IN,
        "taste",
        type(ARCHITECTURE)(config_type=ARCHITECTURE.config_type, build=Forgetful, cost=ARCHITECTURE.cost),
    )
    with pytest.raises(BundleError, match="tensor table of taste-1 is not part of its state"):
        load_model(folder)
