"""The verb itself: look at the log, say what it is, and import it, or go on with that."""

from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from ops.bandit_import.document import ImportDocument, lines, notes_of
from ops.bandit_import.files import LogFile, find_files, lines_of
from ops.bandit_import.names import import_namespace
from ops.bandit_import.records import cells_of
from ops.bandit_import.run_log import Progress, difference, manifest_of
from ops.bandit_import.survey import Survey, survey
from ops.bandit_import.work import Import
from ops.errors import UserError
from ops.telemetry.progress import progress
from schemas.kafka.config import Config
from schemas.topics import Namespace


class Command:
    """`intertidal import open-bandit`.

    Raises UserError, BrokerError, DeliveryError, ImportLogError and OpenBanditError.
    """

    def __init__(self, config: Config, live: Namespace, *, run: str, min_propensity: float, as_json: bool) -> None:
        self._config = config
        self._space = import_namespace(live, run)
        self._run = run
        self._min_propensity = min_propensity
        self._as_json = as_json

    def run(self, folders: Sequence[Path], *, go: bool) -> None:
        """Look, say what would be done, and with ``go`` do it: 1. read all files, 2. ask how far it is, 3. go on."""
        files = find_files(folders)
        with progress("reading the log", unit="rows") as advance:
            found = survey(  # 1
                ((file, lines_of(file)) for file in files), min_propensity=self._min_propensity, advance=advance
            )
        if not found.num_rows:
            raise UserError("there is no row in any of the files")
        campaign = files[0].campaign
        manifest = manifest_of(campaign, found.files, min_propensity=self._min_propensity)
        work = Import(config=self._config, space=self._space, files=files, manifest=manifest)
        began, reached = work.log()  # 2
        if began is not None and (changed := difference(began, manifest)):
            raise UserError(f"the import {self._run} cannot be gone on with: {changed}; take another name with --run")
        if go and reached.measured is None:
            with progress(f"import {self._run}", total=found.num_rows, unit="rows") as advance:
                reached = work.run(advance)  # 3
        state = "done" if reached.measured is not None else "planned" if began is None else "unfinished"
        self._say(files, found, reached, state=state)
        if state != "done" and not self._as_json:
            click.echo("nothing was done: --go does it", err=True)

    def _say(self, files: Sequence[LogFile], found: Survey, reached: Progress, *, state: str) -> None:
        document = ImportDocument(
            run=self._run,
            namespace=self._space.prefix,
            campaign=files[0].campaign,
            state=state,
            cells=cells_of(files[0].campaign),
            min_propensity=self._min_propensity,
            survey=found,
            progress=reached,
            notes=notes_of(found, min_propensity=self._min_propensity),
        )
        if self._as_json:
            click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
            return
        for line in lines(document):
            click.echo(line)
