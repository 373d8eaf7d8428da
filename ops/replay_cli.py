"""`intertidal replay`: backfills beside the live pipeline."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import click
import msgspec

from ops.connection import broker_config, namespace, time_settings
from ops.errors import UserError
from ops.time_option import Time
from schemas.kafka.admin import BrokerError
from schemas.kafka.producer import DeliveryError

# A tenth of what one processor can read, and five times what the control plane of a thousand hosts says.
DEFAULT_RATE: Final = 5_000.0
_MAX_WORKERS: Final = 8
_OFFSETS: Final = re.compile(r"([a-z.]+):(\d+)=(\d+)\.\.(\d+)", re.ASCII)

_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class _Replay(click.Group):
    """A group whose verbs are few: anything else is the name of a run."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] in self.commands:
            return super().resolve_command(ctx, args)
        return "RUN", run_command, args

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "RUN [OPTIONS]  |  diff RUN  |  list  |  delete RUN")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with click.Context(run_command, info_name="RUN", parent=ctx) as inner:
            run_command.format_options(inner, formatter)
        self.format_commands(ctx, formatter)


@click.group(cls=_Replay)
def replay() -> None:
    """Run ingest and control over logs of the past, into topics of a run of its own (replay.RUN.*).

    Says what it would read, and what retention has already removed, and does nothing more; --go runs it. It touches no
    live topic and no live group. Killed at any moment, the same command goes on, with no record left out or said twice.
    docs/replay.md says more.

    \b
    Example:
      intertidal replay fix-42 --since 2026-05-01T00:00:00Z
      intertidal replay fix-42 --since 2026-05-01T00:00:00Z --go
      intertidal replay diff fix-42
      intertidal replay controllers --part control --from-snapshot --since -2h --go
    """


@contextmanager
def _one_line() -> Iterator[None]:
    from ops.replay.run_log import RunLogError
    from ops.replay.workers import ReplayError

    try:
        yield
    except (BrokerError, DeliveryError, ReplayError, RunLogError) as error:
        raise UserError(str(error)) from error


def _runs(config: Any) -> Any:
    from ops.replay.runs import Runs

    return Runs(config, namespace())


def _check_name(_ctx: click.Context, _param: click.Parameter, run: str) -> str:
    from ops.replay.names import run_namespace

    try:
        if run in replay.commands:
            raise ValueError(f"{run!r} is a verb, not a name of a run")
        run_namespace(namespace(), run)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return run


def _parts(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[str, ...]:
    from ops.replay.work import PARTS

    given = text.split(",")
    if len(set(given)) != len(given) or not set(given) <= set(PARTS):
        raise click.BadParameter("ingest, control, or ingest,control.")
    return tuple(part for part in PARTS if part in given)


def _places(
    _ctx: click.Context, _param: click.Parameter, given: Sequence[str]
) -> dict[tuple[str, int], tuple[int, int]]:
    places = {}
    for text in given:
        match = _OFFSETS.fullmatch(text)
        if match is None:
            raise click.BadParameter(f"{text!r} is not TOPIC:PARTITION=START..END.")
        topic, partition, start, end = match.groups()
        places[topic, int(partition)] = (int(start), int(end))
    return places


@click.command(name="RUN")
@click.argument("run", callback=_check_name)
@click.option(
    "--part",
    "parts",
    default="ingest,control",
    show_default=True,
    callback=_parts,
    help="What runs: control alone takes the live control.windows.",
)
@click.option("--since", "since_ms", type=Time(), help="Records appended at this time or later.  [default: all]")
@click.option("--until", "until_ms", type=Time(), help="Records appended before this time.  [default: now]")
@click.option(
    "--offsets",
    multiple=True,
    metavar="TOPIC:PARTITION=START..END",
    callback=_places,
    help="Of one partition only these records, the last one not included; may be repeated.",
)
@click.option("--from-snapshot", is_flag=True, help="Controllers begin where a snapshot of control.state has them.")
@click.option(
    "--rate",
    type=click.FloatRange(0.0),
    default=DEFAULT_RATE,
    show_default=True,
    help="Records a second at most; 0 is without a limit.",
)
@click.option("--workers", "num_workers", type=click.IntRange(1), help="Processes.  [default: one per processor]")
@click.option("--go", is_flag=True, help="Do it; without this it is only said what would be done.")
@click.option("--changed", "allows_changes", is_flag=True, help="Go on although code or settings are not as they were.")
@_as_json
def run_command(
    run: str,
    rate: float,
    num_workers: int | None,
    go: bool,
    allows_changes: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Plan the run RUN, or with --go run it, or go on with it."""
    from ops.replay.command import Command

    if asked["from_snapshot"] and "ingest" in asked["parts"]:
        raise click.UsageError("--from-snapshot is for --part control: windows made anew need controllers from base.")
    workers = num_workers or min(_MAX_WORKERS, len(os.sched_getaffinity(0)))
    with _one_line():
        Command(
            broker_config("replay"),
            namespace(),
            time=time_settings(),
            rate=rate,
            num_workers=workers,
            as_json=as_json,
        ).run(run, asked, go=go, allows_changes=allows_changes)


@replay.command()
@click.argument("run", callback=_check_name)
@click.option(
    "--tolerance",
    type=click.FloatRange(0.0),
    default=0.0,
    show_default=True,
    help="Figures may differ by so much of the larger one; 0 compares byte for byte.",
)
@_as_json
def diff(run: str, tolerance: float, as_json: bool) -> int:
    """Compare what RUN says with what was said live: windows, targets and pools. Exit code 1 where they differ.

    \b
    Example:
      intertidal replay diff fix-42 --tolerance 0.01
    """
    from ops.replay.diff import compare_run, lines

    config = broker_config("replay")
    with _one_line():
        log = _runs(config).find(run)
        if log is None:
            raise UserError(f"there is no run {run}: `intertidal replay list`")
        found = compare_run(config, namespace(), log, tolerance=tolerance)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        for line in lines(found):
            click.echo(line)
    return 1 if found.differs else 0


@replay.command(name="list")
@_as_json
def list_runs(as_json: bool) -> None:
    """List the runs with where they stand.

    \b
    Example:
      intertidal replay list --json
    """
    from ops.replay.command import line_of

    with _one_line():
        found = _runs(broker_config("replay")).list()
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    for status in found:
        click.echo(line_of(status))
    if not found:
        click.echo("there is no run", err=True)


@replay.command()
@click.argument("run", callback=_check_name)
def delete(run: str) -> None:
    """Delete the topics of RUN, and with them all that it said.

    \b
    Example:
      intertidal replay delete fix-42
    """
    with _one_line():
        if not _runs(broker_config("replay")).delete(run):
            raise UserError(f"there is no run {run}: `intertidal replay list`")
