"""`intertidal tune`: gains of the control loop from identification on the twin."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import click
import msgspec

from ops.errors import UserError
from ops.simulator.scenario import built_in_scenarios, load_scenario
from ops.telemetry.progress import progress
from ops.tune.choose import MIN_GAIN_MARGIN, MIN_PHASE_DEG
from ops.tune.report import POSITIONS, TUNED, Found, Loop, NothingFoundError, Report, Verdict, tuned

_HEADER: Final = (
    f"{'scenario':<20} {'position':>8} {'load':>5} {'bound by':<8} {'gain':>7} {'dead':>5} {'lag':>5}"
    f"  {'margins of the defaults':<25} {'without the budget'}"
)


@click.command()
@click.argument("name_or_toml", required=False)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Another seed than the scenario's.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for tune.json and tune.png.")
@click.option("--json", "as_json", is_flag=True, help="Print all figures as JSON.")
def tune_command(name_or_toml: str | None, seed: int | None, out: Path | None, as_json: bool) -> int:
    """Identify how p99 answers to the candidate target, and say which gains that bears, with their margins.

    On the twin, by tick, the target goes up and down around several operating points of every cell. Without a scenario
    all that are built in are played. The exit code is 1 where the default gains do not keep their margins. See
    docs/controller.md.

    \b
    Example:
      intertidal tune two-levers
      intertidal tune my-cell.toml --out tuned
      intertidal tune --json | jq .recommended
    """
    if out is not None:
        # Before the time is spent on a plot that cannot be drawn.
        import matplotlib  # noqa: F401
    names = built_in_scenarios() if name_or_toml is None else (name_or_toml,)
    try:
        scenarios = [load_scenario(name) for name in names]
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if seed is not None:
        scenarios = [replace(scenario, seed=seed) for scenario in scenarios]
    total = len(POSITIONS) * sum(len(scenario.cells) for scenario in scenarios)
    try:
        with progress("identifying on the twin", total=total) as advance:
            report = tuned(scenarios, progress=advance)
    except NothingFoundError as error:
        raise UserError(f"nothing to identify: {error}") from error
    encoded = msgspec.json.format(msgspec.json.encode(report), indent=1).decode() + "\n"
    if out is not None:
        _write(out, report, encoded)
    click.echo(encoded if as_json else "\n".join(_lines(report)), nl=not as_json)
    return 0 if report.default.worst.holds else 1


def _lines(report: Report) -> list[str]:
    skipped = [
        f"{each.scenario:<20} {'-' if each.position is None else format(each.position, 'g'):>8} {each.why}"
        for each in report.skipped
    ]
    differs = ", ".join(f"{name} {delta:+g}" for name, delta in report.difference.items() if delta)
    return [
        _HEADER,
        *(_line(point) for point in report.points),
        *skipped,
        "",
        f"wanted: a gain margin of {MIN_GAIN_MARGIN:g} and a phase margin of {MIN_PHASE_DEG:g} degrees at each of them",
        _verdict("defaults", report.default),
        _verdict("recommended", report.recommended),
        f"recommended less defaults: {differs or 'none, they agree'}",
    ]


def _line(point: Found) -> str:
    beyond = point.unbudgeted
    after = "" if beyond is None else f"{_margins(beyond.default)} at load {beyond.load:.2f}"
    return (
        f"{point.scenario:<20} {point.position:>8g} {point.load:>5.2f} {point.bound:<8} {point.gain:>7.2f}"
        f" {point.dead_ticks:>5.2f} {point.lag_ticks:>5.2f}  {_margins(point.default):<25} {after}"
    ).rstrip()


def _verdict(name: str, verdict: Verdict) -> str:
    gains = " ".join(f"{each} {verdict.gains[each]:g}" for each in TUNED)
    kept = "kept" if verdict.worst.holds else "NOT kept"
    return f"{name:<12} {gains}: worst {_margins(verdict.worst)}, {kept}"


def _margins(loop: Loop) -> str:
    if not loop.is_stable:
        return "unstable"
    gain = "-" if loop.gain is None else f"{loop.gain:.2f}"
    return f"gain {gain}, phase {loop.phase_deg:.0f} deg"


def _write(out: Path, report: Report, encoded: str) -> None:
    from ops.tune.plot import write_plot

    out.mkdir(parents=True, exist_ok=True)
    (out / "tune.json").write_text(encoded, encoding="utf-8")
    path = out / "tune.png"
    write_plot(report, path)
    click.echo(f"wrote {path}", err=True)
