"""The verb itself: say the plan, or run it, or go on with what began."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final

import click
import msgspec

from ops.errors import UserError
from ops.replay.plan import PartitionPlan, PlanDocument, totals
from ops.replay.planning import Planned, Planner, Wanted
from ops.replay.run_log import Manifest, RunLog, code_version, differences
from ops.replay.runs import Runs, RunStatus, status_of
from ops.replay.work import Job
from ops.replay.workers import replay
from ops.telemetry.progress import progress
from ops.times import iso_time
from schemas.kafka.config import Config
from schemas.settings import TimeSettings
from schemas.topics import Namespace

_RANGE: Final = ("since_ms", "until_ms", "offsets", "from_snapshot")


class Command:
    """`intertidal replay RUN`, for one pipeline. Raises UserError, BrokerError, DeliveryError, ReplayError."""

    def __init__(
        self,
        config: Config,
        live: Namespace,
        *,
        time: TimeSettings,
        rate: float,
        num_workers: int,
        as_json: bool,
    ) -> None:
        self._config = config
        self._live = live
        self._time = time
        self._rate = rate
        self._num_workers = num_workers
        self._as_json = as_json

    def run(self, run: str, asked: Mapping[str, Any], *, go: bool, allows_changes: bool) -> None:
        """Say what would be done, and with ``go`` do it. ``asked`` are the options that a plan is made of."""
        runs = Runs(self._config, self._live)
        log = runs.find(run)
        if log is not None and log.manifest is not None:
            manifest = self._resumed(log.manifest, asked, allows_changes=allows_changes)
            self._say(self._resume_document(manifest, log))
            if go and manifest != log.manifest:
                runs.change(manifest)
            num_left = status_of(manifest, log).num_records
        else:
            planned = Planner(self._config, self._live, time=self._time).plan(Wanted(run=run, **asked))
            self._say(self._document(planned))
            manifest = planned.manifest
            if go:
                runs.begin(planned)
            num_left = sum(each.num_records for each in planned.partitions)
        if not go:
            if not self._as_json:
                click.echo("nothing was done: --go does it", err=True)
            return
        self._go(runs, manifest, num_left)

    def _go(self, runs: Runs, manifest: Manifest, num_records: int) -> None:
        job = Job(config=self._config, live=self._live, manifest=manifest)
        partitions = list(range(manifest.num_partitions))
        started_s = time.monotonic()
        with _reporting(manifest, num_records) as report:
            replay(job, partitions, num_workers=self._num_workers, rate=self._rate, report=report)
        log = runs.find(manifest.run)
        assert log is not None
        status = status_of(manifest, log)
        if self._as_json:
            click.echo(msgspec.json.encode(status).decode())
        else:
            click.echo(f"{line_of(status)} in {time.monotonic() - started_s:.1f} s")

    def _resumed(self, manifest: Manifest, asked: Mapping[str, Any], *, allows_changes: bool) -> Manifest:
        """The manifest to go on with; raises UserError for changed settings or code, and for another range."""
        given = [name for name in _RANGE if asked[name]]
        changes = differences(manifest, parts=list(asked["parts"]), time=asdict(self._time), code=code_version())
        if list(asked["parts"]) != manifest.parts:
            raise UserError(f"{manifest.run} has begun with --part {','.join(manifest.parts)}: take another name")
        if changes and not allows_changes:
            raise UserError(
                f"{manifest.run} cannot be gone on with as it was: {'; '.join(changes)}; --changed goes on all the same"
            )
        if given and not self._as_json:
            click.echo(f"{manifest.run} has begun: its range stands, and is not looked for anew", err=True)
        if not changes:
            return manifest
        return msgspec.structs.replace(
            manifest, code=code_version(), time=asdict(self._time), changes=[*manifest.changes, *changes]
        )

    def _document(self, planned: Planned) -> PlanDocument:
        return PlanDocument(
            run=planned.manifest.run,
            parts=planned.manifest.parts,
            resumes=False,
            rate=self._rate,
            num_workers=self._num_workers,
            partitions=planned.partitions,
            total=totals(planned.partitions, rate=self._rate, num_workers=self._num_workers),
            num_snapshots=len(planned.begins),
            notes=planned.notes,
        )

    def _resume_document(self, manifest: Manifest, log: RunLog) -> PlanDocument:
        status = status_of(manifest, log)
        said = [
            PartitionPlan(
                topic=topic,
                partition=span.partition,
                start=span.start,
                end=span.end,
                num_records=span.end - span.start,
                num_bytes=0,
                begins_ms=None,
                num_removed=0,
                first_window=span.first_window,
            )
            for topic, spans in manifest.spans.items()
            for span in spans
        ]
        return PlanDocument(
            run=manifest.run,
            parts=manifest.parts,
            resumes=True,
            rate=self._rate,
            num_workers=self._num_workers,
            partitions=said,
            total=totals(said, rate=self._rate, num_workers=self._num_workers),
            num_snapshots=len(manifest.passed),
            notes=[f"{status.state}, {status.num_read:,} records read and {status.num_said:,} said so far"],
        )

    def _say(self, plan: PlanDocument) -> None:
        if self._as_json:
            click.echo(msgspec.json.encode(plan).decode())
            return
        for line in _lines(plan):
            click.echo(line)


def _lines(plan: PlanDocument) -> Iterator[str]:
    yield f"replay of {' and '.join(plan.parts)} into replay.{plan.run}.*{', gone on with' if plan.resumes else ''}"
    for each in plan.partitions:
        if not each.num_records:
            continue
        begins = f", from {iso_time(each.begins_ms)}" if each.begins_ms is not None else ""
        removed = f", {each.num_removed:,} before it removed by retention" if each.num_removed else ""
        yield (
            f"  {each.topic}[{each.partition}]  {each.start:,} to {each.end:,}: {each.num_records:,} records, "
            f"about {_bytes(each.num_bytes)}{begins}{removed}"
        )
    rate = f"at {plan.rate:,.0f} records a second" if plan.rate else "without a limit"
    total = plan.total
    yield (
        f"{total.num_records:,} records, about {_bytes(total.num_bytes)}, {rate}: about {total.expected_s:,.0f} s"
        f" in {plan.num_workers} processes"
    )
    if total.num_removed:
        yield f"retention has removed {total.num_removed:,} records of the range"
    if plan.num_snapshots:
        yield f"{plan.num_snapshots} cells begin with a snapshot"
    yield from (f"note: {note}" for note in plan.notes)


def line_of(status: RunStatus) -> str:
    """A run in one line."""
    if status.created_ms is None:
        return f"{status.run}  {status.state}: {status.detail}"
    detail = f" ({status.detail})" if status.detail else ""
    return (
        f"{status.run}  {status.state}, {'+'.join(status.parts)} of {iso_time(status.created_ms)}: "
        f"{status.num_read:,} records read, {status.num_said:,} said, {status.num_refused:,} refused{detail}"
    )


@contextmanager
def _reporting(manifest: Manifest, num_records: int) -> Iterator[Callable[[str, int], None]]:
    """A bar with rate and time left on a terminal, silence in a pipe; counts the records of the first part."""
    with progress(f"replay {manifest.run}", total=num_records, unit="records") as advance:
        yield lambda part, number: advance(number) if part == manifest.parts[0] else None


def _bytes(size_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1_000:
            return f"{size_bytes:.0f} {unit}"
        size_bytes /= 1_000
    return f"{size_bytes:.1f} TB"
