"""`intertidal model`: whether a bundle may serve, what is in it, and what it costs here."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from ops.errors import UserError
from ranking.models.bundle import BundleError, write_manifest
from ranking.models.conformance import NonconformingModelError, check_conformance
from ranking.models.latency import measure_latency
from ranking.models.load import BASELINE_WORLD_BUNDLE, load_bundle, open_bundle
from ranking.models.scorer import Scorer

_folder = click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
_device = click.option("--device", default="cpu", show_default=True, help="Device to run on, such as cuda:0.")
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def model() -> None:
    """Check, describe and measure a bundle of a ranking model.

    \b
    Example:
      intertidal model check models/powerful
      intertidal model bench models/powerful --write
    """


@model.command()
@_folder
@_device
@_as_json
def check(folder: Path, device: str, as_json: bool) -> None:
    """Load FOLDER as a ranker would and score with it; exit code 1 and one line when it must not serve.

    Files, hashes, shapes and values are compared with what the manifest and the architecture say. Then candidates are
    scored together and request by request, which must give the same.

    \b
    Example:
      intertidal model check models/powerful --device cuda
    """
    with _refusals():
        loaded = load_bundle(folder, device=device)
        check_conformance(Scorer(loaded.model, device), loaded.num_features)
    manifest = loaded.manifest
    if as_json:
        click.echo(json.dumps({"architecture": manifest.architecture, "version": manifest.version, "device": device}))
    else:
        click.echo(f"{manifest.version} ({manifest.architecture}) may serve on {device}")


@model.command()
@_folder
@_as_json
def describe(folder: Path, as_json: bool) -> None:
    """Say what is in FOLDER: its manifest, config, tensors and cost. No device is needed.

    \b
    Example:
      intertidal model describe models/powerful --json
    """
    with _refusals():
        opened = open_bundle(folder)
    tensors = [
        {"name": name, "shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
        for name, tensor in sorted(opened.bundle.tensors.items())
    ]
    said: dict[str, Any] = {
        **msgspec.to_builtins(opened.bundle.manifest, str_keys=True),
        "cost": msgspec.to_builtins(opened.cost),
        "cost_is_measured": opened.bundle.manifest.cost is not None,
        "config": msgspec.to_builtins(opened.config),
        "num_parameters": sum(tensor.numel() for tensor in opened.bundle.tensors.values()),
        "size_bytes": sum(entry.size_bytes for entry in opened.bundle.manifest.files.values()),
        "tensors": tensors,
    }
    click.echo(json.dumps(said, indent=2) if as_json else "\n".join(_lines(said)))


@model.command()
@_folder
@_device
@click.option(
    "--history", type=click.IntRange(0, 1 << 20), default=200, show_default=True, help="Past ads of the user."
)
@click.option(
    "--turns", type=click.IntRange(3, 10_000), default=21, show_default=True, help="Measurements of each size."
)
@click.option("--write", is_flag=True, help="Keep curve and cost in the manifest; the weights stay as they are.")
@_as_json
def bench(folder: Path, device: str, history: int, turns: int, write: bool, as_json: bool) -> None:
    """Measure how long one request takes with FOLDER, by its number of candidates, and its cost in work units.

    A work unit is one candidate scored by the baseline model in full calls, measured beside it on the same device.

    \b
    Example:
      intertidal model bench models/powerful --history 200 --write
    """
    with _refusals():
        loaded, baseline = load_bundle(folder, device=device), load_bundle(BASELINE_WORLD_BUNDLE, device=device)
        curve, cost = measure_latency(
            Scorer(loaded.model, device),
            Scorer(baseline.model, device),
            num_features=(loaded.num_features, baseline.num_features),
            history_length=history,
            clock_ns=time.perf_counter_ns,
            num_turns=turns,
        )
    accelerator = next(kind for kind in loaded.manifest.accelerators if kind == device.partition(":")[0])
    if write:
        curves = {**(loaded.manifest.latency_curve or {}), accelerator: curve}
        write_manifest(folder, msgspec.structs.replace(loaded.manifest, latency_curve=curves, cost=cost))
    said = {"version": loaded.manifest.version, "device": device, "written": write}
    measured = {**msgspec.to_builtins(curve, str_keys=True), "cost": msgspec.to_builtins(cost)}
    if as_json:
        click.echo(json.dumps({**said, **measured}, indent=2))
        return
    click.echo(f"{loaded.manifest.version} on {device}, history of {history:,}")
    for size, time_us in curve.microseconds.items():
        click.echo(f"{size:>6,} candidates {time_us:>10,.0f} us")
    click.echo(f"cost {_cost(measured['cost'])}{', written to the manifest' if write else ''}")


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except (BundleError, NonconformingModelError, ValueError) as error:
        raise UserError(str(error)) from error


def _cost(cost: dict[str, float]) -> str:
    return f"{cost['request_units']:,.1f} work units per request and {cost['candidate_units']:,.2f} per candidate"


def _lines(said: dict[str, Any]) -> Iterator[str]:
    yield f"version       {said['version']}"
    yield f"architecture  {said['architecture']}"
    yield f"accelerators  {', '.join(said['accelerators'])}"
    yield f"size          {said['num_parameters']:,} parameters, {said['size_bytes']:,} bytes"
    yield f"cost          {_cost(said['cost'])}, {'measured' if said['cost_is_measured'] else 'expected'}"
    for accelerator, curve in (said["latency_curve"] or {}).items():
        times = ", ".join(f"{size} in {time_us:,.0f} us" for size, time_us in curve["microseconds"].items())
        yield f"latency       {accelerator}, history of {curve['history_length']:,}: {times}"
    yield f"config        {', '.join(f'{name} {value}' for name, value in said['config'].items())}"
    for tensor in said["tensors"]:
        yield f"tensor        {tensor['name']:<32} {tensor['dtype']} {tensor['shape']}"
