"""`intertidal model`: one line and exit code 1 on a bundle that must not serve, and what it says of one that may."""

import json
from pathlib import Path

import pytest
import torch

from ops.cli import main
from ranking.models.bundle import MANIFEST, WEIGHTS
from ranking.models.load import load_bundle, save_model
from ranking.models.wukong import WukongConfig, WukongModel

_CONFIG = WukongConfig(num_features=3, bucket_bits=4, embedding_dim=4, history_width=4, user_width=8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    save_model(WukongModel(_CONFIG, "w1"), tmp_path / "bundle", accelerators=("cpu",))
    return tmp_path / "bundle"


def test_check_passes_a_good_bundle(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "check", str(folder)]) == 0
    assert capsys.readouterr().out == "w1 (wukong) may serve on cpu\n"
    assert main(["model", "check", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"architecture": "wukong", "version": "w1", "device": "cpu"}


@pytest.mark.parametrize("verb", ["check", "describe", "bench"])
def test_a_changed_bundle_is_one_line(folder: Path, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    weights = bytearray((folder / WEIGHTS).read_bytes())
    weights[-1] ^= 1
    (folder / WEIGHTS).write_bytes(weights)
    assert main(["model", verb, str(folder)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "SHA-256 differs" in said.err


@pytest.mark.parametrize(
    ("device", "reason"), [("cuda", "w1 runs on cpu, not on cuda"), ("abacus", "w1 runs on cpu, not on abacus")]
)
def test_check_refuses_another_accelerator(
    folder: Path, device: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["model", "check", str(folder), "--device", device]) == 1
    assert reason in capsys.readouterr().err


def test_describe_says_what_is_in_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "describe", str(folder), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    model = WukongModel(_CONFIG, "w1")
    assert said["num_parameters"] == sum(tensor.numel() for tensor in model.state_dict().values())
    assert {tensor["name"]: tensor["shape"] for tensor in said["tensors"]} == {
        name: list(tensor.shape) for name, tensor in model.state_dict().items()
    }
    assert (said["accelerators"], said["config"]["num_features"], said["cost_is_measured"]) == (["cpu"], 3, False)
    assert main(["model", "describe", str(folder)]) == 0
    assert "accelerators  cpu\n" in capsys.readouterr().out


def test_bench_keeps_what_it_measured_only_when_asked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, weights = (folder / MANIFEST).read_bytes(), (folder / WEIGHTS).read_bytes()
    arguments = ["model", "bench", str(folder), "--history", "5", "--turns", "3"]
    assert main(arguments) == 0
    assert "512 candidates" in capsys.readouterr().out
    assert (folder / MANIFEST).read_bytes() == before
    assert main([*arguments, "--write", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    loaded = load_bundle(folder)
    assert loaded.manifest.cost is not None
    assert said["cost"] == {
        "request_units": loaded.cost.request_units,
        "candidate_units": loaded.cost.candidate_units,
    }
    assert loaded.manifest.latency_curve is not None
    assert loaded.manifest.latency_curve["cpu"].history_length == 5
    assert sorted(loaded.manifest.latency_curve["cpu"].microseconds) == [1, 32, 128, 256, 512, 1024, 2048]
    assert (folder / WEIGHTS).read_bytes() == weights
    assert main(["model", "describe", str(folder)]) == 0
    assert ", measured\n" in capsys.readouterr().out
