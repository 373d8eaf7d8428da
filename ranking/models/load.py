"""From a bundle on disk to a model that can score."""

from pathlib import Path

import msgspec

from ranking.models.baseline import BaselineConfig, BaselineModel, tensor_shapes
from ranking.models.bundle import (
    CONFIG,
    MANIFEST,
    Accelerator,
    BundleError,
    check_tensors,
    read_bundle,
    write_bundle,
)

BASELINE_ARCHITECTURE = "baseline"
# The model of the built-in world: what the demo ranks with, made by `python -m ops.simulator.fit`.
BASELINE_WORLD_BUNDLE = Path(__file__).parent / "bundles" / "baseline-world"


def load_baseline(folder: Path = BASELINE_WORLD_BUNDLE, *, device: str = "cpu") -> BaselineModel:
    """Load and verify a baseline model.

    Raises: BundleError, in one line, on anything that is not as the manifest and the architecture say, and
    where the bundle does not run on the device.
    """
    bundle = read_bundle(folder)
    manifest = bundle.manifest
    if manifest.architecture != BASELINE_ARCHITECTURE:
        raise BundleError(f"{folder / MANIFEST}: architecture {manifest.architecture} is not {BASELINE_ARCHITECTURE}")
    accelerators = ", ".join(manifest.accelerators)
    if device.partition(":")[0] not in manifest.accelerators:
        raise BundleError(f"{folder / MANIFEST}: {manifest.version} runs on {accelerators}, not on {device}")
    try:
        config = msgspec.json.decode(bundle.config_json, type=BaselineConfig)
    except msgspec.DecodeError as error:
        raise BundleError(f"{folder / CONFIG}: {error}") from error
    # Before the model is built: a config that asks for more than the file holds costs no memory.
    check_tensors(bundle, tensor_shapes(config))
    model = BaselineModel(config, manifest.version)
    model.load_state_dict(dict(bundle.tensors))
    return model.requires_grad_(False).eval().to(device)


def save_baseline(
    model: BaselineModel, folder: Path, *, accelerators: tuple[Accelerator, ...] = ("cpu", "cuda")
) -> None:
    """Write a baseline model as a bundle."""
    write_bundle(
        folder,
        architecture=BASELINE_ARCHITECTURE,
        version=model.version,
        accelerators=accelerators,
        config=model.config,
        tensors=model.state_dict(),
    )
