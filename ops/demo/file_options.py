"""The demo's options for real files, and what they ask for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ops.simulator.files.wanted import (
    MAX_FROM_S,
    MAX_HOSTS,
    MAX_RATE,
    MAX_SPEED,
    MIN_RATE,
    MIN_SPEED,
    WantedArrivals,
    WantedCapacity,
    WantedFiles,
)

_FILE = click.Path(path_type=Path)
_FROM = click.FloatRange(0.0, MAX_FROM_S)
_SPEED = click.FloatRange(MIN_SPEED, MAX_SPEED)

_OPTIONS = (
    click.option("--arrivals", type=_FILE, help="Requests arrive as in this file: CSV with a column TIMESTAMP."),
    click.option(
        "--arrivals-from",
        type=_FROM,
        metavar="SECONDS",
        help="Start this long after the file's first arrival.  [default: where most requests come of it]",
    ),
    click.option(
        "--arrivals-speed",
        type=_SPEED,
        metavar="X",
        help="Seconds of the file in a second of the demo.  [default: 1, more where the file is sparse]",
    ),
    click.option(
        "--arrivals-rate",
        type=click.FloatRange(MIN_RATE, MAX_RATE),
        metavar="X",
        help="Send each arrival X times on average; below 1 drops some.  "
        "[default: for the scenario's mean rate, in bursts at most 2.5 times as much]",
    ),
    click.option(
        "--capacity",
        type=_FILE,
        help="Hosts are offered and taken back as this fleet is below its peak: CSV with gpu_request, cpu_request, "
        "scheduled_time, deletion_time.",
    ),
    click.option(
        "--capacity-from",
        type=_FROM,
        metavar="SECONDS",
        help="Start this long after the trace's start.  [default: its liveliest stretch]",
    ),
    click.option(
        "--capacity-speed",
        type=_SPEED,
        metavar="X",
        help="Seconds of the trace in a second of the demo.  [default: all of it in the measured time]",
    ),
    click.option(
        "--capacity-hosts",
        type=click.IntRange(1, MAX_HOSTS),
        metavar="N",
        help="Local hosts, each with a ranker, that stand for the fleet.  [default: the scenario's rankers]",
    ),
    click.option("--pairs", type=_FILE, help="Candidates per request as in this file: their quantiles, rising."),
)


def file_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command; it takes them as keywords for ``wanted_files``."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def wanted_files(options: dict[str, Any]) -> WantedFiles:
    """What the options ask for. Raises click.UsageError for a factor without its file, or out of range."""
    for name, value in options.items():
        file, _, factor = name.partition("_")
        if factor and value is not None and options[file] is None:
            raise click.UsageError(f"--{file}-{factor} belongs to --{file}.")
    arrivals, capacity, pairs = options["arrivals"], options["capacity"], options["pairs"]
    try:
        return WantedFiles(
            arrivals=None if arrivals is None else WantedArrivals(path=str(arrivals), **_factors(options, "arrivals")),
            capacity=None if capacity is None else WantedCapacity(path=str(capacity), **_factors(options, "capacity")),
            pairs=None if pairs is None else str(pairs),
        )
    except ValueError as error:
        # NaN, which click's ranges let through.
        raise click.UsageError(f"--{error}.") from error


def _factors(options: dict[str, Any], file: str) -> dict[str, Any]:
    names = {f"{file}_from": "from_s", f"{file}_speed": "speed", f"{file}_rate": "rate", f"{file}_hosts": "hosts"}
    return {field: options[name] for name, field in names.items() if name in options}
