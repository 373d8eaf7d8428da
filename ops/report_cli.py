"""`intertidal report`: what borrowed capacity earned in a range of the logs, as a page and as JSON."""

import os
import time
from pathlib import Path
from typing import Final

import click

from ops.connection import broker_config, namespace, time_settings
from ops.errors import UserError
from ops.report.build import Reading, build_report
from ops.report.document import to_json
from ops.report.gains import LatestUplift, segment_gains
from ops.report.model import Report
from ops.report.page.render import render
from ops.report.remeasure import Remeasured
from ops.report.source import ReportSource
from ops.report.tally import Tally
from ops.telemetry.progress import progress
from ops.telemetry.stop_signals import stop_event
from ops.time_option import Time
from schemas.kafka.admin import BrokerError

_PAGE: Final = "report.html"
_DOCUMENT: Final = "report.json"


@click.command()
@click.option("--since", "since_ms", type=Time(), help="Windows that begin at this time or later.  [default: all]")
@click.option("--until", "until_ms", type=Time(), help="Windows that end by this time.  [default: now]")
@click.option("--cell", "cells", multiple=True, help="This cell; may be given again.  [default: all]")
@click.option(
    "--out", type=click.Path(path_type=Path), help="The page NAME.html, or a folder: report.html and report.json in it."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON as docs/report.schema.json has it.")
def report(since_ms: int | None, until_ms: int | None, cells: tuple[str, ...], out: Path | None, as_json: bool) -> None:
    """Say what borrowed capacity earned, lever by lever, what it cost, and what is not known.

    Reads closed windows and the measured uplift; joins no group and changes nothing. The page is one file that needs no
    network. docs/report.md says how each figure is made.

    \b
    Example:
      intertidal report --since -24h --out report.html
      intertidal report --cell us-east --json | jq -r '.headline.sentence, .not_known[].reason'
    """
    if since_ms is not None and until_ms is not None and since_ms > until_ms:
        raise click.UsageError("--since is after --until.")
    paths = _paths(out)
    made = _read(since_ms=since_ms, until_ms=until_ms, cells=frozenset(cells))
    for path in paths:
        _write(path, render(made) if path.suffix == ".html" else to_json(made) + "\n")
    if as_json:
        click.echo(to_json(made))
    else:
        for line in _summary(made, paths):
            click.echo(line)


def _read(*, since_ms: int | None, until_ms: int | None, cells: frozenset[str]) -> Report:
    """1. the measured uplift, 2. the windows, 3. both put together; raises UserError, and Abort when interrupted.

    Windows are measured anew where no record of uplift is of the range.
    """
    space, settings = namespace(), time_settings()
    tally = Tally(since_ms=since_ms, until_ms=until_ms, cells=cells)
    latest = LatestUplift(until_ms=until_ms, cells=cells)
    try:
        with stop_event() as stopping:
            source = ReportSource(
                broker_config("report", only_looks=True), space, time=settings, is_stopped=stopping.is_set
            )
            with progress("reading measured uplift") as advance:
                for record in source.uplift(advance=advance):  # 1
                    latest.add(record)
            remeasured = Remeasured(latest.cells())
            with progress("reading windows") as advance:
                for window in source.windows(since_ms=since_ms, advance=advance):  # 2
                    if tally.add(window):
                        remeasured.add(window)
            tally.close()
            if stopping.is_set():
                raise click.Abort
    except BrokerError as error:
        raise UserError(str(error)) from error
    for example in source.losses.examples:
        click.echo(f"passed over, as the first of {source.losses.num_unreadable}: {example}", err=True)
    reading = Reading(  # 3
        namespace=space.prefix,
        gains=[
            *segment_gains(latest.records(), origin="segment.uplift"),
            *segment_gains(remeasured.records(), origin="control.windows"),
        ],
        gains_missing=latest.missing(),
        num_unreadable=source.losses.num_unreadable,
        num_deleted=source.losses.num_deleted,
    )
    return build_report(tally, reading)


def _summary(made: Report, paths: list[Path]) -> list[str]:
    lines = [made.headline.sentence]
    lines += [f"  {figure.value:>10}  {figure.label} ({figure.detail})" for figure in made.headline.figures]
    lines += [f"  wrote {path}" for path in paths]
    return lines if paths else [*lines, "  --out report.html writes the page"]


def _paths(out: Path | None) -> list[Path]:
    """The files to write; raises UsageError before anything is read for nothing."""
    if out is None:
        return []
    paths = [out] if out.suffix == ".html" and not out.is_dir() else [out / _PAGE, out / _DOCUMENT]
    folder = paths[0].parent
    if out not in paths:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise click.UsageError(f"--out: {error.strerror}: {folder}") from error
    if not os.access(folder, os.W_OK):
        raise click.UsageError(f"--out: cannot write into {folder}")
    return paths


def _write(path: Path, text: str) -> None:
    """Whole or not at all: who has an old page open never sees half of a new one."""
    hidden = path.with_name(f".{path.name}.{os.getpid()}.{time.time_ns()}")
    try:
        hidden.write_text(text, encoding="utf-8")
        hidden.replace(path)
    except OSError as error:
        hidden.unlink(missing_ok=True)
        raise UserError(f"{path}: {error.strerror}") from error
