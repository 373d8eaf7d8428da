"""`intertidal cells`: which cells exist, from which window on, within which limits."""

import json
import time

import click
import msgspec

from ops.cells import CellChangeError, declare, first_window, retire
from ops.connection import broker_config, namespace, time_settings
from ops.declared_cells import declared_cells
from ops.errors import UserError
from schemas.avro import validate
from schemas.errors import RecordError
from schemas.kafka.config import Config, producer_config
from schemas.kafka.producer import DeliveryError, DurableProducer
from schemas.records import CellDeclaration, CellLimits
from schemas.topics import CONTROL_CELLS


@click.group()
def cells() -> None:
    """Declare, list and retire cells. Records of an undeclared cell are dead-lettered.

    \b
    Example:
      intertidal cells add us-east --base 64 --max 512 --latency-limit-ms 150
      intertidal cells list
    """


@cells.command()
@click.argument("cell")
@click.option("--base", type=click.IntRange(1), required=True, help="Candidates of a request that are base work.")
@click.option("--max", "maximum", type=click.IntRange(1), required=True, help="Most candidates of a request.")
@click.option("--latency-limit-ms", type=float, required=True, help="Limit of the p99 of the last wanted answer.")
@click.option("--rise-share", type=float, default=0.1, show_default=True, help="Largest rise in one tick.")
@click.option("--shed-allowance", type=float, default=0.01, show_default=True, help="Shed share that is fine.")
@click.option("--utilisation", type=float, default=0.7, show_default=True, help="Share of the pool to plan with.")
@click.option(
    "--units-per-unit-s",
    type=float,
    default=50_000.0,
    show_default=True,
    help="Candidates that one accelerator unit scores in a busy second, until it has been measured.",
)
@click.option("--provider", "providers", multiple=True, help="A provider of its capacity; may be repeated.")
def add(cell: str, base: int, maximum: int, providers: tuple[str, ...], **limits: float) -> None:
    """Declare CELL, or give it new limits; in force from the window after the next one on.

    \b
    Example:
      intertidal cells add us-east --base 64 --max 512 --latency-limit-ms 150 --provider own
    """
    settings = time_settings()
    config = broker_config("cells")
    fields = {"base_candidates": base, "max_candidates": maximum, **limits}
    try:
        checked = validate(fields, CellLimits)
        declaration = declare(
            declared_cells(config).get(cell),
            cell,
            limits=checked,
            from_window=first_window(time.time_ns() // 1_000_000, settings.window_ms),
            window_ms=settings.window_ms,
            providers=providers,
        )
        # The bounds of a cell's name stand with the record.
        validate(msgspec.to_builtins(declaration), CellDeclaration)
    except RecordError as error:
        raise UserError(f"cell {cell}: {error.field or 'limits'}: {error.detail}") from error
    except CellChangeError as error:
        raise UserError(str(error)) from error
    _write(config, declaration)
    click.echo(f"{cell} from window {declaration.revisions[-1].from_window} on")


@cells.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_cells(as_json: bool) -> None:
    """List the declared cells with the limits last given.

    \b
    Example:
      intertidal cells list --json
    """
    declared = declared_cells(broker_config("cells"))
    if as_json:
        click.echo(json.dumps([msgspec.to_builtins(declared[cell]) for cell in sorted(declared)], indent=2))
        return
    for cell in sorted(declared):
        limits = declared[cell].revisions[-1].limits
        until = declared[cell].until_window
        state = "declared" if until is None else f"retired from window {until} on"
        click.echo(
            f"{cell:<24} {limits.base_candidates}..{limits.max_candidates} candidates, "
            f"p99 <= {limits.latency_limit_ms:g} ms, {state}"
        )


@cells.command(name="retire")
@click.argument("cell")
def retire_cell(cell: str) -> None:
    """Retire CELL from the window after the next one on; its history stays.

    \b
    Example:
      intertidal cells retire us-east.3
    """
    config = broker_config("cells")
    until_window = first_window(time.time_ns() // 1_000_000, time_settings().window_ms)
    try:
        declaration = retire(declared_cells(config).get(cell), cell, until_window=until_window)
    except CellChangeError as error:
        raise UserError(str(error)) from error
    _write(config, declaration)
    click.echo(f"{cell} until window {declaration.until_window}")


def _write(config: Config, declaration: CellDeclaration) -> None:
    try:
        with DurableProducer(producer_config(config)) as producer:
            producer.send(namespace().topic(CONTROL_CELLS), declaration, key=declaration.cell.encode())
    except DeliveryError as error:
        raise UserError(str(error)) from error
