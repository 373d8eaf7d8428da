"""A model bundle on disk: a folder with weights, config, and a manifest that vouches for both.

    manifest.json        architecture, version, accelerators, what it costs, and size and SHA-256 of each other file
    config.json          what the architecture needs to be built
    weights.safetensors  the tensors; never a pickle, which would run code when read

Reading trusts nothing: sizes are bounded before anything is read, hashes are checked on the bytes that are
then parsed, and every tensor is compared with what the architecture expects before it is used.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from ranking.models.cost import LatencyCurve, ModelCost

MANIFEST = "manifest.json"
CONFIG = "config.json"
WEIGHTS = "weights.safetensors"

_MAX_JSON_BYTES = 64 * 1024
_MAX_WEIGHTS_BYTES = 4 * 1024**3
# What pickles (protocol 2 and later) and torch's zipped pickles begin with; only to say so of a file that is
# no safetensors file, as the length of a safetensors header can begin with the same bytes.
_PICKLE_STARTS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04")
# A manifest that is being replaced; it may stay behind where its writer was killed.
_NEW_MANIFEST = f".{MANIFEST}.new"

Accelerator = Literal["cpu", "cuda"]


class BundleError(Exception):
    """A bundle that must not be loaded; one line that names the file or the tensor."""


class FileEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the manifest says of one file."""

    size_bytes: Annotated[int, msgspec.Meta(ge=0)]
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a bundle says of itself; `accelerators` are the device types that it may run on.

    What was measured is optional: `memory_bytes` of a device at the largest call, `latency_curve` by accelerator, and
    `cost`, the predicted cost where it is known better than from the architecture alone.
    """

    format: Literal[1] = 1
    architecture: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    version: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    accelerators: Annotated[tuple[Accelerator, ...], msgspec.Meta(min_length=1)]
    files: dict[str, FileEntry]
    memory_bytes: Annotated[int, msgspec.Meta(ge=0)] | None = None
    latency_curve: dict[Accelerator, LatencyCurve] | None = None
    cost: ModelCost | None = None


@dataclass(frozen=True)
class Bundle:
    """A bundle whose files are what its manifest says; its tensors are finite, not yet known to fit."""

    folder: Path
    manifest: Manifest
    config_json: bytes
    tensors: Mapping[str, Tensor]


def write_bundle(
    folder: Path,
    *,
    architecture: str,
    version: str,
    accelerators: tuple[Accelerator, ...],
    config: msgspec.Struct,
    tensors: Mapping[str, Tensor],
) -> None:
    """Write a bundle; equal arguments give equal bytes.

    Raises: ValueError on weights that are not finite: they would be refused when read.
    """
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise ValueError(f"tensor {name} is not finite")
    contents = {
        CONFIG: msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n",
        WEIGHTS: safetensors.torch.save({n: t.detach().cpu().contiguous() for n, t in tensors.items()}),
    }
    manifest = Manifest(
        architecture=architecture,
        version=version,
        accelerators=accelerators,
        files={name: FileEntry(len(data), _sha256(data)) for name, data in contents.items()},
    )
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    # Last: a folder whose writing was cut short has no manifest that fits, and is refused.
    write_manifest(folder, manifest)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write or replace a bundle's manifest; a reader sees the old one or the new one."""
    said = {name: value for name, value in msgspec.to_builtins(manifest, str_keys=True).items() if value is not None}
    new = folder / _NEW_MANIFEST
    new.write_bytes(msgspec.json.format(msgspec.json.encode(said), indent=2) + b"\n")
    new.replace(folder / MANIFEST)


def read_bundle(folder: Path, *, max_weights_bytes: int = _MAX_WEIGHTS_BYTES) -> Bundle:
    """Read and verify a bundle's files.

    Raises: BundleError on a missing, unlisted, oversized, changed or unreadable file, on a pickle, and on
    weights that are not finite.
    """
    manifest = _manifest(folder)
    _check_listing(folder, manifest)
    config_json = _verified(folder, CONFIG, manifest, _MAX_JSON_BYTES)
    weights = _verified(folder, WEIGHTS, manifest, max_weights_bytes)
    try:
        tensors = safetensors.torch.load(weights)
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        what = "a pickle, which is never loaded" if weights.startswith(_PICKLE_STARTS) else error
        raise BundleError(f"{folder / WEIGHTS}: not a safetensors file: {what}") from error
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise BundleError(f"{folder / WEIGHTS}: tensor {name} holds a value that is not finite")
    return Bundle(folder=folder, manifest=manifest, config_json=config_json, tensors=tensors)


def check_tensors(bundle: Bundle, wanted: Mapping[str, Tensor]) -> None:
    """Compare a bundle's tensors with those that its architecture wants, in shape and type, before they are used.

    `wanted` may stand on the meta device, where tensors take no memory.
    Raises: BundleError that names the tensor which is missing, not wanted, or of another shape or type.
    """
    path = bundle.folder / WEIGHTS
    for name in sorted(wanted.keys() - bundle.tensors.keys()):
        raise BundleError(f"{path}: tensor {name} is missing")
    for name in sorted(bundle.tensors.keys() - wanted.keys()):
        raise BundleError(f"{path}: tensor {name} is not part of {bundle.manifest.architecture}")
    for name, want in wanted.items():
        found = bundle.tensors[name]
        if found.shape != want.shape or found.dtype != want.dtype:
            raise BundleError(
                f"{path}: tensor {name} is {found.dtype} {list(found.shape)}, expected {want.dtype} {list(want.shape)}"
            )


def _manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    data = _bounded(path, _MAX_JSON_BYTES)
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise BundleError(f"{path}: {error}") from error
    if manifest.files.keys() != {CONFIG, WEIGHTS}:
        raise BundleError(f"{path}: must list {CONFIG} and {WEIGHTS}, lists {', '.join(sorted(manifest.files))}")
    return manifest


def _check_listing(folder: Path, manifest: Manifest) -> None:
    for path in sorted(folder.iterdir()):
        if path.name not in (MANIFEST, _NEW_MANIFEST, *manifest.files):
            raise BundleError(f"{path}: not listed in {MANIFEST}; weights are {WEIGHTS} only")


def _verified(folder: Path, name: str, manifest: Manifest, max_bytes: int) -> bytes:
    path, entry = folder / name, manifest.files[name]
    data = _bounded(path, max_bytes)
    if len(data) != entry.size_bytes:
        raise BundleError(f"{path}: {len(data)} bytes, {MANIFEST} says {entry.size_bytes}")
    if _sha256(data) != entry.sha256:
        raise BundleError(f"{path}: SHA-256 differs from the one in {MANIFEST}")
    return data


def _bounded(path: Path, max_bytes: int) -> bytes:
    """Read a file of at most `max_bytes`; the open file is asked for its size, so that it is not swapped."""
    try:
        with path.open("rb") as file:
            size_bytes = os.fstat(file.fileno()).st_size
            if size_bytes > max_bytes:
                raise BundleError(f"{path}: {size_bytes} bytes, at most {max_bytes} are read")
            return file.read(size_bytes)
    except OSError as error:
        raise BundleError(f"{path}: {error.strerror}") from error


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
