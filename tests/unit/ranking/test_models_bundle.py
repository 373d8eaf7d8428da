"""A bundle is loaded as it was written, or refused in one line that names the file or the tensor."""

import hashlib
import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from ranking.models.baseline import BaselineConfig, BaselineModel
from ranking.models.bundle import CONFIG, MANIFEST, WEIGHTS, BundleError, read_bundle
from ranking.models.load import load_baseline, save_model

_CONFIG = BaselineConfig(num_features=5, bucket_bits=4, embedding_dim=3, tower_width=6, meeting_width=7, last_width=2)


def _model() -> BaselineModel:
    torch.manual_seed(0)
    return BaselineModel(_CONFIG, "v1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(_model(), tmp_path / "bundle", accelerators=("cpu",))
    return tmp_path / "bundle"


def _resign(folder: Path, change: Callable[[dict[str, Any]], None] = lambda _: None) -> None:
    """Make the manifest fit the files again, as a hostile author would, then change it further."""
    manifest = json.loads((folder / MANIFEST).read_bytes())
    for name, entry in manifest["files"].items():
        data = (folder / name).read_bytes()
        entry.update(size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    change(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))


def _rewrite_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = dict(safetensors.torch.load((folder / WEIGHTS).read_bytes()))
    change(tensors)
    (folder / WEIGHTS).write_bytes(safetensors.torch.save(tensors))
    _resign(folder)


def _refusal(folder: Path) -> str:
    with pytest.raises(BundleError) as caught:
        load_baseline(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


def test_round_trip(folder: Path) -> None:
    loaded = load_baseline(folder)
    assert loaded.version == "v1"
    assert loaded.config == _CONFIG
    assert not loaded.training
    for name, tensor in _model().state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)


def test_equal_models_give_equal_bytes(folder: Path, tmp_path: Path) -> None:
    save_model(_model(), tmp_path / "again", accelerators=("cpu",))
    for path in folder.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_one_changed_byte_is_named(folder: Path, name: str) -> None:
    data = bytearray((folder / name).read_bytes())
    data[-3] ^= 1
    (folder / name).write_bytes(data)
    assert f"{name}: SHA-256 differs" in _refusal(folder)


@pytest.mark.parametrize("name", [MANIFEST, CONFIG, WEIGHTS])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert f"{name}: No such file" in _refusal(folder)


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_a_truncated_file_is_named(folder: Path, name: str) -> None:
    (folder / name).write_bytes((folder / name).read_bytes()[:-1])
    assert f"{name}: " in _refusal(folder)


def test_a_tensor_of_another_shape_is_named(folder: Path) -> None:
    _rewrite_tensors(folder, lambda tensors: tensors.update({"last.weight": torch.zeros(2, 8)}))
    assert "tensor last.weight is torch.float32 [2, 8], expected torch.float32 [2, 7]" in _refusal(folder)


def test_a_tensor_of_another_type_is_named(folder: Path) -> None:
    _rewrite_tensors(folder, lambda tensors: tensors.update({"last.weight": torch.zeros(2, 7).half()}))
    assert "tensor last.weight is torch.float16" in _refusal(folder)


def test_a_missing_tensor_is_named(folder: Path) -> None:
    _rewrite_tensors(folder, lambda tensors: tensors.pop("tower_1.bias"))
    assert "tensor tower_1.bias is missing" in _refusal(folder)


def test_an_extra_tensor_is_named(folder: Path) -> None:
    _rewrite_tensors(folder, lambda tensors: tensors.update({"stowaway": torch.zeros(1)}))
    assert "tensor stowaway is not part of baseline" in _refusal(folder)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_named(folder: Path, bad: float) -> None:
    _rewrite_tensors(folder, lambda tensors: tensors["tower_2.weight"].view(-1)[3].fill_(bad))
    assert "tensor tower_2.weight holds a value that is not finite" in _refusal(folder)


def test_weights_that_are_not_finite_are_not_written(tmp_path: Path) -> None:
    model = _model()
    with torch.no_grad():
        model.last.bias[0] = float("nan")
    with pytest.raises(ValueError, match=r"last\.bias is not finite"):
        save_model(model, tmp_path / "bad")
    assert not (tmp_path / "bad").exists()


class _Bomb:
    exploded = False

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return _explode, ()


def _explode() -> None:
    _Bomb.exploded = True


def _torch_saved(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("dump", [pickle.dumps, _torch_saved])
def test_a_pickle_in_the_place_of_the_weights_is_refused_unrun(folder: Path, dump: Callable[[object], bytes]) -> None:
    (folder / WEIGHTS).write_bytes(dump(_Bomb()))
    _resign(folder)
    assert f"{WEIGHTS}: not a safetensors file: a pickle, which is never loaded" in _refusal(folder)
    assert not _Bomb.exploded


def test_noise_in_the_place_of_the_weights_is_refused(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(b"\xff" * 100)
    _resign(folder)
    assert f"{WEIGHTS}: not a safetensors file" in _refusal(folder)


@pytest.mark.parametrize("name", ["model.pt", "pytorch_model.bin", "more.safetensors"])
def test_a_file_beside_the_bundle_is_refused(folder: Path, name: str) -> None:
    (folder / name).write_bytes(pickle.dumps(_Bomb()))
    assert f"{name}: not listed in manifest.json" in _refusal(folder)


def test_a_manifest_may_not_reach_outside_the_folder(folder: Path) -> None:
    _resign(folder, lambda manifest: manifest["files"].update({"../x": manifest["files"][CONFIG]}))
    assert "must list config.json and weights.safetensors" in _refusal(folder)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 2}, "format"),
        ({"architecture": "abacus"}, "architecture abacus is neither built in (baseline, wukong) nor"),
        ({"accelerators": ["cuda"]}, "v1 runs on cuda, not on cpu"),
        ({"accelerators": ["abacus"]}, "accelerators"),
        ({"surprise": 1}, "surprise"),
        ({"version": ""}, "version"),
    ],
)
def test_a_manifest_that_cannot_be_served_is_named(folder: Path, change: dict[str, Any], reason: str) -> None:
    _resign(folder, lambda manifest: manifest.update(change))
    message = _refusal(folder)
    assert MANIFEST in message
    assert reason in message


@pytest.mark.parametrize("change", [{"bucket_bits": 40}, {"tower_width": 10**9}, {"num_features": "5"}, {"depth": 3}])
def test_a_config_out_of_bounds_is_named(folder: Path, change: dict[str, Any]) -> None:
    config = json.loads((folder / CONFIG).read_bytes()) | change
    (folder / CONFIG).write_text(json.dumps(config))
    _resign(folder)
    message = _refusal(folder)
    assert CONFIG in message
    assert next(iter(change)) in message


def test_a_config_larger_than_its_weights_costs_no_memory(folder: Path) -> None:
    config = json.loads((folder / CONFIG).read_bytes()) | {"bucket_bits": 26, "embedding_dim": 512}
    (folder / CONFIG).write_text(json.dumps(config))
    _resign(folder)
    # 128 GiB, were it built: the shapes are compared before.
    assert "tensor ad_embedding.weight" in _refusal(folder)


def test_an_oversized_file_is_refused_before_it_is_read(folder: Path) -> None:
    with pytest.raises(BundleError, match=r"weights\.safetensors: \d+ bytes, at most 100 are read"):
        read_bundle(folder, max_weights_bytes=100)
    with (folder / CONFIG).open("r+b") as file:
        file.truncate(2**40)
    assert f"{CONFIG}: {2**40} bytes, at most 65536 are read" in _refusal(folder)
