"""`intertidal simulate`: a scenario on a fake clock."""

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from ops.errors import UserError
from ops.simulator.files.wanted import WantedFiles
from ops.simulator.scenario import load_scenario
from ops.simulator.scenario_model import Scenario
from ops.telemetry.progress import progress
from ops.twin import oracle, threshold
from ops.twin.controllers import Production
from ops.twin.metrics import Run, Totals
from ops.twin.play import num_cells
from ops.twin.run import Plan, simulate_all
from ops.twin.table import comparison, markdown, plain
from ops.twin.trace import Stretch, with_arrivals, with_fleet

_FILE: Final = click.Path(dir_okay=False, path_type=Path)
_MOST_SECONDS: Final = 366 * 86_400.0
_COMPARED: Final = (Production.name, threshold.NAME, oracle.NAME)


class Report(msgspec.Struct, frozen=True):
    """What ``simulate`` writes: the run, and the totals of every controller that it was compared with."""

    run: Run
    compared: dict[str, Totals]
    files: dict[str, dict[str, Any]]


@click.command()
@click.argument("name_or_toml")
@click.option("--detail", type=click.Choice(["tick", "request"]), default="tick", show_default=True, help="Level.")
@click.option("--seconds", type=click.FloatRange(1.0, _MOST_SECONDS), help="Measured time after the warm-up.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Another seed than the scenario's.")
@click.option("--capacity", type=_FILE, help="GPUs are idle as this fleet leaves them: CSV as for the demo.")
@click.option(
    "--capacity-from",
    type=click.FloatRange(0.0),
    metavar="SECONDS",
    help="Start so late in the trace.  [default: 0]",
)
@click.option("--arrivals", type=_FILE, help="Requests come as unevenly as in this file: CSV with a column TIMESTAMP.")
@click.option(
    "--arrivals-sources",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="So many of that file at once, each starting elsewhere in it.  [default: 1]",
)
@click.option("--compare", is_flag=True, help="Also play the threshold rule and the oracle; --capacity does so anyway.")
@click.option("--processes", type=click.IntRange(1, 256), help="Processes for many cells.  [default: cores]")
@click.option("--out", type=click.Path(file_okay=False), help="Folder for metrics.json and the plots.")
@click.option("--json", "as_json", is_flag=True, help="Print the metrics as JSON.")
def simulate_command(
    name_or_toml: str, detail: str, seed: int | None, processes: int | None, out: str | None, **options: Any
) -> None:
    """Play a scenario on a fake clock: the same controller as in production, no Kafka, far faster than real time.

    By tick, queues are fluids between the windows, and what it costs is in proportion to cells. By request, every part
    of router, replicas and ingest is driven too. The same scenario and seed give the same metrics, byte for byte.

    With --capacity it answers what would have been reclaimed from a fleet: its whole trace is played at the pace of
    life, beside the threshold rule of the articles and an oracle that knows the future. See docs/twin.md.

    \b
    Example:
      intertidal simulate reclaim-storm --out storm
      intertidal simulate fleet-trace --capacity fleet.csv --arrivals requests.csv
      intertidal simulate two-levers --json | jq .run.totals
    """
    _check_options(out, options)
    if detail == "request":
        _check_by_request({**options, "processes": processes})
    try:
        with progress("reading the scenario"):
            scenario = _scenario(name_or_toml, seed=seed, options=options)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    folder = None if out is None else _folder(out)
    as_json = options["as_json"]
    for file in scenario.file_reports:
        click.echo(f"{file.kind:<10} {file.line()}", err=as_json)
    compared = _COMPARED if options["compare"] or options["capacity"] is not None else _COMPARED[:1]
    if detail == "request":
        runs = [_by_request(scenario)]
    else:
        runs = _by_tick(Plan(scenario, compared, processes or os.cpu_count() or 1))
    report = Report(
        run=runs[0],
        compared={run.controller: run.totals for run in runs},
        files={file.kind: file.to_dict() for file in scenario.file_reports},
    )
    encoded = msgspec.json.format(msgspec.json.encode(report), indent=1).decode() + "\n"
    rows = comparison(report.compared, oracle=oracle.NAME)
    if folder is not None:
        _write(folder, report.run, encoded, markdown(rows))
    click.echo(encoded if as_json else plain(rows), nl=not as_json)


def _scenario(name_or_toml: str, *, seed: int | None, options: dict[str, Any]) -> Scenario:
    scenario = load_scenario(name_or_toml)
    named = _named(scenario.wanted_files)
    if named:
        raise ValueError(
            f"{scenario.name} names traffic files: {', '.join(named)}; the demo reads them, simulate takes --capacity"
            " and --arrivals."
        )
    if seed is not None:
        scenario = replace(scenario, seed=seed)
    if options["capacity"] is not None:
        stretch = Stretch(from_s=options["capacity_from"] or 0.0, seconds=options["seconds"])
        scenario = with_fleet(scenario, options["capacity"], stretch)
    elif options["seconds"] is not None:
        scenario = scenario.stretched(options["seconds"])
    if options["arrivals"] is not None:
        scenario = with_arrivals(scenario, options["arrivals"], num_sources=options["arrivals_sources"] or 1)
    return scenario


def _named(wanted: WantedFiles) -> list[str]:
    arrivals = [] if wanted.arrivals is None else [wanted.arrivals.path]
    capacity = [] if wanted.capacity is None else [wanted.capacity.path]
    return [*arrivals, *capacity, *([] if wanted.pairs is None else [wanted.pairs])]


def _by_tick(plan: Plan) -> list[Run]:
    total = num_cells(plan.scenario) * len(plan.controllers)
    with progress(f"{plan.scenario.name} by tick", total=total) as advance:
        return simulate_all(plan, progress=advance)


def _by_request(scenario: Scenario) -> Run:
    from ops.twin.requests.simulation import Setup, Simulation

    with progress(f"{scenario.name} by request", total=100) as advance:
        done = 0

        def share(passed: float) -> None:
            nonlocal done
            advance(int(100 * passed) - done)
            done = int(100 * passed)

        try:
            simulation = Simulation(scenario, Setup(seed=scenario.seed), on_progress=share)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        return simulation.run()


def _check_options(out: str | None, options: dict[str, Any]) -> None:
    for factor, file in (("capacity_from", "capacity"), ("arrivals_sources", "arrivals")):
        if options[factor] is not None and options[file] is None:
            raise click.UsageError(f"--{factor.replace('_', '-')} belongs to --{file}.")
    for name in ("seconds", "capacity_from"):
        # NaN, which click's ranges let through.
        if options[name] is not None and math.isnan(options[name]):
            raise click.UsageError(f"--{name.replace('_', '-')}: not a number of seconds.")
    if out is not None:
        if not out:
            raise click.UsageError("--out names no folder.")
        _check_plots()


def _check_by_request(options: dict[str, Any]) -> None:
    for name in ("capacity", "arrivals", "compare", "processes"):
        if options[name]:
            raise click.UsageError(f"--{name} belongs to a run by tick: leave out --detail request.")


def _check_plots() -> None:
    # Before minutes are spent on plots that cannot be drawn.
    import matplotlib  # noqa: F401


def _folder(out: str) -> Path:
    """The folder, made before minutes are spent on what could not be written into it. Raises UserError."""
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out}: {error.strerror or error}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"--out {out}: may not be written to")
    return folder


def _write(out: Path, run: Run, encoded: str, table: str) -> None:
    from ops.twin.plots import write_plots

    try:
        (out / "metrics.json").write_text(encoded, encoding="utf-8")
        (out / "table.md").write_text(table + "\n", encoding="utf-8")
        paths = write_plots(run, out)
    except OSError as error:
        raise UserError(f"--out {out}: {error.strerror or error}") from error
    for path in paths:
        click.echo(f"wrote {path}", err=True)
