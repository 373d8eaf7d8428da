"""`intertidal control`: an operator's hold on the targets of cells."""

import math
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
import msgspec

from ops.connection import broker_config, namespace, time_settings
from ops.control_orders import check_choice, chosen_cells, local_ms, order
from ops.errors import UserError
from ops.holds import holds, line_of
from schemas.kafka.admin import BrokerError

F = TypeVar("F", bound=Callable[..., Any])


@click.group()
def control() -> None:
    """Hold the targets of cells for a time, let them go, and list what is held.

    A hold is a record in the log that the controllers read, so a replay repeats it. It never goes beyond a cell's
    limits, and where no capacity is left or no router reports, base counts for more.

    \b
    Example:
      intertidal control freeze --cell us-east --reason "a release" --for 30m
      intertidal control list
      intertidal control resume --cell us-east
    """


def _cells(command: F) -> F:
    command = click.option("--cell", "names", multiple=True, metavar="CELL", help="A cell; may be repeated.")(command)
    return click.option("--all", "everyone", is_flag=True, help="Every declared cell that is not retired.")(command)


def _said_by(*, needs_reason: bool) -> Callable[[F], F]:
    def decorate(command: F) -> F:
        command = click.option("--reason", required=needs_reason, help="Why; it is shown in the target.")(command)
        command = click.option(
            "--operator",
            default=lambda: os.environ.get("USER", ""),
            show_default="$USER",
            help="Who says so.",
        )(command)
        return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)

    return decorate


def _runs_out(command: F) -> F:
    command = click.option("--for", "duration", metavar="TIME", help="How long it counts, like 90s, 30m or 1h30m.")(
        command
    )
    return click.option("--until", metavar="TIME", help="When it runs out, ISO 8601 with zone.")(command)


@control.command()
@_cells
@_said_by(needs_reason=True)
@_runs_out
def freeze(**given: Any) -> None:
    """Keep candidates and coverage as they are. It must run out by itself: --for or --until.

    \b
    Example:
      intertidal control freeze --cell us-east --reason "a release" --for 30m
    """
    order("freeze", **given)


@control.command()
@_cells
@_said_by(needs_reason=True)
@_runs_out
@click.option("--candidates", type=click.IntRange(0), help="Candidates of a request, base included.")
@click.option("--coverage", type=click.FloatRange(0.0, 1.0), help="Share of requests for the powerful model.")
def override(candidates: int | None, coverage: float | None, **given: Any) -> None:
    """Set candidates, coverage or both, within the cell's limits. It must run out by itself: --for or --until.

    Of several words to a cell the last one counts: what an override does not name is steered as ever.

    \b
    Example:
      intertidal control override --cell us-east --candidates 200 --reason "a load test" --until 2026-05-01T18:00:00Z
    """
    if candidates is None and coverage is None:
        raise click.UsageError("an override needs --candidates, --coverage or both.")
    # NaN, which click's ranges let through.
    if coverage is not None and math.isnan(coverage):
        raise click.UsageError("--coverage: not a share of requests.")
    order("override", candidates=candidates, coverage=coverage, **given)


@control.command()
@_cells
@_said_by(needs_reason=False)
def resume(**given: Any) -> None:
    """Let the controllers steer again, from where the hold leaves the targets.

    \b
    Example:
      intertidal control resume --all
    """
    order("resume", duration=None, until=None, **given)


@control.command(name="list")
@_cells
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_holds(names: Sequence[str], everyone: bool, as_json: bool) -> None:
    """List the holds in force, who said so and why, and whether the targets follow; all cells unless some are named.

    \b
    Example:
      intertidal control list --json
    """
    everyone = everyone or not names
    check_choice(names, everyone=everyone)
    # Decodes controllers' states: not needed to say a word.
    from ops.control_log import ControlLog

    config, now_ms = broker_config("control"), local_ms()
    cells = chosen_cells(config, names, everyone=everyone, now_ms=now_ms)
    try:
        with ControlLog(config, namespace(), time=time_settings()) as log:
            facts = log.read(cell.cell for cell in cells)
    except BrokerError as error:
        raise UserError(str(error)) from error
    # A clock of ours that is behind the broker's is no reason to show a hold that has run out.
    found = holds(facts, now_ms=max(now_ms, log.newest_ms))
    for cell, why in sorted(log.unreadable.items()):
        click.echo(f"{cell}: {why}: a hold from before the last commands cannot be seen", err=True)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    for hold in found:
        click.echo(line_of(hold))
    if not found:
        click.echo("no hold is in force", err=True)
