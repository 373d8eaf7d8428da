"""`intertidal import`: real logs, measured as the pipeline measures its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from ops.connection import broker_config, namespace
from ops.errors import UserError


@click.group(name="import")
def import_group() -> None:
    """Turn logs of others into results and outcomes, in topics of their own (import.RUN.*), and measure them.

    \b
    Example:
      intertidal import open-bandit random-men bts-men --run men
      intertidal import open-bandit random-men bts-men --run men --go
      INTERTIDAL_NAMESPACE=import.men. intertidal report
    """


@contextmanager
def _one_line() -> Iterator[None]:
    from ops.bandit_import.run_log import ImportLogError
    from ranking.models.training.open_bandit_rows import OpenBanditError
    from schemas.kafka.admin import BrokerError
    from schemas.kafka.producer import DeliveryError

    try:
        yield
    except (BrokerError, DeliveryError, ImportLogError, OpenBanditError) as error:
        raise UserError(str(error)) from error


def _check_name(_ctx: click.Context, _param: click.Parameter, run: str) -> str:
    from ops.bandit_import.names import import_namespace

    try:
        import_namespace(namespace(), run)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return run


@import_group.command(name="open-bandit")
@click.argument(
    "folders", metavar="DIR...", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.option("--run", default="open-bandit", show_default=True, callback=_check_name, help="Name of the import.")
@click.option(
    "--min-propensity",
    type=click.FloatRange(1e-6, 0.5),
    default=1e-3,
    show_default=True,
    help="Smaller propensities are counted as this one: no row may outweigh all others.",
)
@click.option("--go", is_flag=True, help="Do it; without this it is only said what would be done.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def open_bandit(folders: tuple[Path, ...], run: str, min_propensity: float, go: bool, as_json: bool) -> None:
    """Import the campaign files of the Open Bandit Dataset below each DIR, one policy against the other.

    Reads them through first, and says what is in them, what is left out and what is clipped. Killed at any moment, the
    same command goes on, with no row left out or written twice. docs/import.md says what a row becomes.

    \b
    Example:
      intertidal import open-bandit obd/random/men obd/bts/men --run men --go
    """
    from ops.bandit_import.command import Command

    with _one_line():
        Command(broker_config("import"), namespace(), run=run, min_propensity=min_propensity, as_json=as_json).run(
            folders, go=go
        )


@import_group.command()
@click.argument("run", callback=_check_name)
def delete(run: str) -> None:
    """Delete the topics of the import RUN, and with them all that was measured.

    \b
    Example:
      intertidal import delete men
    """
    from ops.bandit_import.names import import_namespace
    from schemas.kafka.admin import TopicAdmin

    space = import_namespace(namespace(), run)
    with _one_line():
        admin = TopicAdmin(broker_config("import"))
        if not any(name.startswith(space.prefix) for name in admin.existing()):
            raise UserError(f"there is no import {run}")
        admin.delete(space)
