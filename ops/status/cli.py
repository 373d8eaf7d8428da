"""`intertidal status`: any running pipeline, looked at from outside."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import click

from ops.connection import broker_config, namespace, time_settings
from ops.errors import UserError
from ops.status.document import to_json
from ops.status.line import status_line
from ops.status.look import Looker
from ops.status.model import Status
from schemas.kafka.admin import BrokerError

Show = Callable[[Status | str], None]
_EVERY_S: Final = 2.0


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON as docs/status.schema.json has it; one line a look.")
@click.option("--watch", is_flag=True, help="Look again and again, in place on a terminal, a line each in a pipe.")
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(0.2, 3_600.0),
    default=_EVERY_S,
    show_default=True,
    help="Seconds between two looks of --watch.",
)
@click.option("--partitions", "with_partitions", is_flag=True, help="Show each partition, with ingest's watermarks.")
def status(as_json: bool, watch: bool, every_s: float, with_partitions: bool) -> None:
    """Show cells, targets and why they moved, pools, latency against its limit, sheds, lag, and what is stale.

    Reads the ends of topics and the commits of groups; joins no group and changes nothing. The exit code is 0 when the
    pipeline could be read, however it is: scripts look at verdict.state of --json (ok, waiting or attention).

    \b
    Example:
      intertidal status
      intertidal status --watch --every 5
      intertidal status --json | jq -r '.verdict.state, .troubles[].detail'
    """
    if math.isnan(every_s):
        raise click.UsageError("--every: not a number of seconds")
    settings, space = time_settings(), namespace()
    try:
        with Looker(broker_config("status", only_looks=True), space, settings) as looker:
            # What is missing now is told before a terminal is taken over.
            first = looker.look()
            with _shown(as_json=as_json, watch=watch, with_partitions=with_partitions) as show:
                show(first)
                while watch:
                    time.sleep(every_s)
                    show(_look_again(looker))
    except BrokerError as error:
        raise UserError(str(error)) from error


def _look_again(looker: Looker) -> Status | str:
    """The next look; a broker that goes away for a while is news, not the end."""
    try:
        return looker.look()
    except BrokerError as error:
        return str(error)


@contextmanager
def _shown(*, as_json: bool, watch: bool, with_partitions: bool) -> Iterator[Show]:
    if as_json:
        yield _show_json
        return
    if watch and not sys.stdout.isatty():
        yield lambda seen: click.echo(seen if isinstance(seen, str) else status_line(seen))
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from ops.status.render import render

    console = Console(highlight=False)
    if not watch:
        yield lambda seen: console.print(
            seen if isinstance(seen, str) else render(seen, with_partitions=with_partitions)
        )
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
        yield lambda seen: live.update(
            Text(seen, style="bold red") if isinstance(seen, str) else render(seen, with_partitions=with_partitions),
            refresh=True,
        )


def _show_json(seen: Status | str) -> None:
    if isinstance(seen, str):
        click.echo(seen, err=True)
    else:
        click.echo(to_json(seen))
