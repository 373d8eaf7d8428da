"""From a bundle on disk to a model that can score, and back."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ranking.models.architectures import BundledModel, UnknownArchitectureError, architecture_named
from ranking.models.baseline import BaselineModel
from ranking.models.bundle import (
    CONFIG,
    MANIFEST,
    WEIGHTS,
    Accelerator,
    Bundle,
    BundleError,
    Manifest,
    check_tensors,
    read_bundle,
    write_bundle,
)
from ranking.models.cost import ModelCost
from ranking.models.devices import device_named
from ranking.models.protocol import RankingModel

# The model of the built-in world: what the demo ranks with.
BASELINE_WORLD_BUNDLE = Path(__file__).parent / "bundles" / "baseline-world"
# Made by `intertidal train --world --architecture wukong --version powerful-world-1.1 --out ...`.
POWERFUL_WORLD_BUNDLE = BASELINE_WORLD_BUNDLE.with_name("powerful-world")


@dataclass(frozen=True)
class OpenedBundle:
    """A verified bundle whose tensors are those of its architecture, before any device is looked at."""

    bundle: Bundle
    config: Any
    empty_model: RankingModel
    cost: ModelCost


@dataclass(frozen=True)
class LoadedModel:
    """A verified model on its device, and what its bundle says; `num_features` are those of each user.

    `cost` is what the bundle says was measured, or else what its architecture expects.
    """

    model: RankingModel
    manifest: Manifest
    num_features: int
    cost: ModelCost


def open_bundle(folder: Path) -> OpenedBundle:
    """Read and verify a bundle of any architecture.

    1. Read the files: sizes bounded before, hashes checked after.
    2. Find the architecture by name, among what is built in and what is installed.
    3. Build the model on the meta device and compare its tensors with the file's: a config that asks for more than
       the file holds costs no memory.

    Raises: BundleError, in one line, on anything that is not as the manifest and the architecture say.
    """
    bundle = read_bundle(folder)
    try:
        architecture = architecture_named(bundle.manifest.architecture)
    except UnknownArchitectureError as error:
        raise BundleError(f"{folder / MANIFEST}: {error}") from error
    try:
        config: Any = msgspec.json.decode(bundle.config_json, type=architecture.config_type)
    except msgspec.DecodeError as error:
        raise BundleError(f"{folder / CONFIG}: {error}") from error
    with torch.device("meta"), _NoRandomFill():
        model = architecture.build(config, bundle.manifest.version)
    if not isinstance(model, torch.nn.Module):
        raise BundleError(f"{folder / MANIFEST}: {bundle.manifest.architecture} builds no PyTorch module")
    check_tensors(bundle, model.state_dict())
    cost = bundle.manifest.cost or architecture.cost(config)
    return OpenedBundle(bundle=bundle, config=config, empty_model=model, cost=cost)


def load_bundle(folder: Path, *, device: str = "cpu") -> LoadedModel:
    """Load and verify a model of any architecture; the file's tensors take the places of the empty model's.

    Raises: BundleError as `open_bundle` does, and where the bundle does not run on the device; ValueError on a device
    that is not there.
    """
    opened = open_bundle(folder)
    manifest, model = opened.bundle.manifest, opened.empty_model
    if device.partition(":")[0] not in manifest.accelerators:
        accelerators = ", ".join(manifest.accelerators)
        raise BundleError(f"{folder / MANIFEST}: {manifest.version} runs on {accelerators}, not on {device}")
    torch_device = device_named(device)
    assert isinstance(model, torch.nn.Module)
    model.load_state_dict(dict(opened.bundle.tensors), assign=True)
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_meta:
            raise BundleError(f"{folder / WEIGHTS}: tensor {name} of {model.version} is not part of its state")
    loaded: RankingModel = model.requires_grad_(False).eval().to(torch_device)
    return LoadedModel(loaded, manifest, opened.config.num_features, opened.cost)


def load_model(folder: Path, *, device: str = "cpu") -> RankingModel:
    """The model of `load_bundle`, alone."""
    return load_bundle(folder, device=device).model


def load_baseline(folder: Path = BASELINE_WORLD_BUNDLE, *, device: str = "cpu") -> BaselineModel:
    """Load and verify a baseline model, as `load_bundle` does; another architecture is a BundleError."""
    model = load_model(folder, device=device)
    if not isinstance(model, BaselineModel):
        raise BundleError(f"{folder / MANIFEST}: the architecture is not {BaselineModel.architecture}")
    return model


def save_model(model: BundledModel, folder: Path, *, accelerators: tuple[Accelerator, ...] = ("cpu", "cuda")) -> None:
    """Write a model as a bundle. Raises ValueError on weights that are not finite."""
    write_bundle(
        folder,
        architecture=model.architecture,
        version=model.version,
        accelerators=accelerators,
        config=model.config,
        tensors=model.state_dict(),
    )


class _NoRandomFill(TorchFunctionMode):
    """Leaves tensors as they are where a module would draw its first weights.

    On the meta device there is nothing to draw, and the first `normal_` there imports much of PyTorch's compiler.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(func, "__module__", None) == torch.nn.init.__name__ or func in (Tensor.normal_, Tensor.uniform_):
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))
