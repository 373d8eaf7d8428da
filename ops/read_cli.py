"""`intertidal read`: any topic of the contract, as JSON lines or as files that a restart goes on with."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import cast

import click

from ops.connection import broker_config, namespace
from ops.errors import UserError
from ops.read.copy import JsonLines, Rows, copy
from ops.read.log import Extent, extent, read_log
from ops.read.topics import ReadableTopic, readable_topics
from ops.telemetry.progress import progress
from ops.telemetry.stop_signals import stop_event
from ops.time_option import Time
from ops.times import parse_duration_s
from schemas.kafka.admin import BrokerError

Places = dict[int, int]


class Duration(click.ParamType):
    """Seconds, written as 90s, 15m or 1h30m."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return parse_duration_s(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command()
@click.argument("topic")
@click.option("--since", "since_ms", type=Time(), help="Records appended at this time or later.  [default: all]")
@click.option("--until", "until_ms", type=Time(), help="Records appended before this time.  [default: now]")
@click.option("--follow", is_flag=True, help="Go on with what is appended from now on, until SIGINT or SIGTERM.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["json", "parquet", "arrow"]),
    default="json",
    show_default=True,
    help="JSON lines on stdout, or files.",
)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder of the files, by hour=...")
@click.option(
    "--every",
    "max_wait_s",
    type=Duration(),
    default="1m",
    show_default=True,
    help="How long a record waits for its file at most, with --follow.",
)
def read(
    topic: str,
    since_ms: int | None,
    until_ms: int | None,
    follow: bool,
    file_format: str,
    out: Path | None,
    max_wait_s: float,
) -> int:
    """Read TOPIC: every record with its fields and its place in the log. Joins no group and changes nothing.

    A record that cannot be read is named on stderr and passed over; the exit code is then 1. Files are whole or not
    there; the same command goes on where they end, and --since counts for the first run only. docs/results.md says
    what is in them, docs/read.schema.json what is in a line.

    \b
    Example:
      intertidal read ranking.results --since -15m | jq -r '[.request_id, ._standing] | @tsv'
      intertidal read control.targets --follow
      intertidal read ranking.results --follow --format parquet --out results
    """
    topics = readable_topics(namespace())
    if topic not in topics:
        raise click.UsageError(f"no topic {topic}; `intertidal topics list` names them, and each has a {topic}.dlq.")
    if follow and until_ms is not None:
        raise click.UsageError("--follow has no end: leave --until out.")
    if since_ms is not None and until_ms is not None and since_ms > until_ms:
        raise click.UsageError("--since is after --until.")
    if (out is None) != (file_format == "json"):
        raise click.UsageError("--format parquet and arrow need --out DIR, and json goes to stdout.")
    source = topics[topic]
    try:
        config = broker_config("read")
        found = extent(config, source.name, since_ms=since_ms, until_ms=until_ms)
        with (
            _rows(source, found, file_format=file_format, out=out, max_wait_s=max_wait_s) as (rows, starts),
            stop_event() as stopping,
        ):
            num_deleted = _check(source, found, starts)
            ends = None if follow else found.until
            total = None if ends is None else sum(max(0, ends[number] - start) for number, start in starts.items())
            # A bar would run through the lines on the same terminal.
            is_quiet = out is None and sys.stdout.isatty()
            with nullcontext(lambda _: None) if is_quiet else progress("reading", total=total) as advance:
                num_unreadable = copy(
                    read_log(config, source.name, starts, ends, is_stopped=stopping.is_set),
                    source,
                    rows,
                    complain=lambda line: click.echo(line, err=True),
                    advance=advance,
                )
            is_cut_short = stopping.is_set() and not follow
    except BrokerError as error:
        raise UserError(str(error)) from error
    if is_cut_short:
        raise click.Abort
    return 1 if num_unreadable or num_deleted else 0


@contextmanager
def _rows(
    source: ReadableTopic, found: Extent, *, file_format: str, out: Path | None, max_wait_s: float
) -> Iterator[tuple[Rows, Places]]:
    """Where the rows go, and where each partition is read from; raises UserError for a folder of something else."""
    if out is None:
        yield JsonLines(click.get_binary_stream("stdout")), dict(found.since)
        return
    # Loaded where files are wanted: nobody else needs to have pyarrow.
    from ops.read.files import FileFormat, FileLimits, FileWriter
    from ops.read.folder import OutputFolder

    with OutputFolder(out, cluster=found.cluster, topic=source.name, file_format=file_format) as folder:
        # Partitions that came into being since the first run are read whole.
        folder.begin(found.lows if folder.next_offsets else found.since)
        writer = FileWriter(
            folder,
            record_types=source.record_types,
            file_format=cast(FileFormat, file_format),
            limits=FileLimits(max_wait_s=max_wait_s),
            clock_s=time.monotonic,
        )
        yield writer, dict(folder.next_offsets)
        click.echo(f"{writer.num_rows} records in {writer.num_files} files under {out}", err=True)


def _check(source: ReadableTopic, found: Extent, starts: Places) -> int:
    """How many records are gone before they were read, each partition named; raises UserError for another log."""
    num_deleted = 0
    for number, start in sorted(starts.items()):
        if start > found.ends.get(number, 0):
            raise UserError(
                f"{source.name}[{number}] ends at offset {found.ends.get(number, 0)}, and the files at {start}: "
                "the topic was made anew"
            )
        if start < found.lows[number]:
            num_deleted += found.lows[number] - start
            click.echo(f"{source.name}[{number}]: {found.lows[number] - start} records deleted unread", err=True)
    return num_deleted
