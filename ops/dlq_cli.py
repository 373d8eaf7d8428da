"""`intertidal dlq`: what could not be read or believed, looked at, brought back in, or given up."""

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from ops.connection import broker_config, namespace
from ops.dlq.choose import choice, oldest
from ops.dlq.groups import Group, grouped
from ops.dlq.kafka_log import LetterLog, dead_letter_producer
from ops.dlq.letters import UNREADABLE, Letter
from ops.dlq.marks import Marks, MarksError
from ops.dlq.redrive import DEFAULT_MAX_ATTEMPTS, Place, Terms, repaired_letters
from ops.dlq.view import lines, to_json
from ops.dlq.work import (
    MarksFullError,
    Outcome,
    Redrive,
    UnfinishedRunError,
    discard,
    open_letters,
    plan,
    redrive,
    unfinished,
)
from ops.errors import UserError
from ops.intake import BY_NAME
from ops.live_intake import intake_of, topic_named
from ops.replay.pace import Pace
from ops.telemetry.progress import progress
from ops.times import iso_time
from schemas.errors import REASONS
from schemas.kafka.admin import BrokerError
from schemas.kafka.config import Config
from schemas.kafka.producer import DeliveryError
from schemas.topics import Topic

F = TypeVar("F", bound=Callable[..., Any])

_SUFFIX = ".dlq"
_topic = click.argument("topic_name", metavar="TOPIC")
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_partition = click.option(
    "--partition", type=click.IntRange(0), default=0, show_default=True, help="Partition of the dead letters."
)
_go = click.option("--go", is_flag=True, help="Do it; without it, only what would be done is said.")


def _choice(command: F) -> F:
    command = click.option(
        "--offset", "offsets", type=click.IntRange(0), multiple=True, help="One letter; repeatable."
    )(command)
    return click.option(
        "--reason", "reasons", multiple=True, metavar="REASON", help="Letters of a reason; may be repeated."
    )(command)


@click.group()
def dlq() -> None:
    """Dead letters: records that could not be read or believed. List and show them, redrive or discard them.

    \b
    Example:
      intertidal dlq list
      intertidal dlq show fleet.capacity 17
      intertidal dlq redrive fleet.capacity --reason unknown_cell --go
    """


@dlq.command(name="list")
@click.argument("topic_names", metavar="[TOPIC]...", nargs=-1)
@click.option("--all", "with_done", is_flag=True, help="Count those that were redriven or discarded too.")
@_as_json
def list_letters(topic_names: tuple[str, ...], with_done: bool, as_json: bool) -> None:
    """Count the open dead letters by topic and reason, with the first and last time and the fields to blame.

    \b
    Example:
      intertidal dlq list
      intertidal dlq list fleet.capacity --all --json
    """
    topics = [_topic_of(name) for name in topic_names] or list(BY_NAME.values())
    config = broker_config("dlq", only_looks=True)
    groups: list[Group] = []
    notes: list[tuple[Topic, Letter]] = []
    with progress("reading dead letters", total=len(topics)) as done:
        for topic in topics:
            with _log(config, topic) as log:
                marks = {number: Marks() for number in log.extents} if with_done else log.marks()
                groups += grouped(topic.name, _noting(log.letters(marks), marks, topic, notes))
            done(1)
    if as_json:
        shown = {"groups": [group.to_json() for group in groups]}
        click.echo(json.dumps(shown | {"notes": [_note(topic, note) for topic, note in notes]}, indent=2))
        return
    for group in groups:
        click.echo(group.line())
    for topic, note in notes if with_done else ():
        click.echo(f"{topic.name:<24} {_note(topic, note)['time']}  {_note(topic, note)['detail']}")
    if not groups:
        click.echo("no dead letters", err=True)


@dlq.command()
@_topic
@click.argument("offsets", type=click.IntRange(0), nargs=-1, metavar="[OFFSET]...")
@click.option("--reason", "reasons", multiple=True, metavar="REASON", help="Open letters of a reason; repeatable.")
@click.option("--limit", type=click.IntRange(1), default=10, show_default=True, help="At most so many open letters.")
@_partition
@_as_json
def show(
    topic_name: str, offsets: tuple[int, ...], reasons: tuple[str, ...], limit: int, partition: int, as_json: bool
) -> int:
    """Show dead letters of TOPIC, by offset or the oldest open ones: what could be read, and the byte where it failed.

    A line of --json holds the record as `record` where it can be decoded; repaired, the lines are what
    `redrive --repaired` takes.

    \b
    Example:
      intertidal dlq show fleet.capacity 17
      intertidal dlq show fleet.capacity --reason invalid_field --json > letters.jsonl
    """
    topic = _topic_of(topic_name)
    _check_reasons(reasons)
    with _log(broker_config("dlq", only_looks=True), topic) as log:
        marks = log.marks()
        num_missing = 0
        chosen = choice(reasons, ())
        by_offset = ((offset, log.at(partition, offset)) for offset in offsets)
        for offset, letter in by_offset if offsets else oldest(log, marks, chosen, limit=limit):
            if letter is None:
                click.echo(f"{topic.dead_letters}[{partition}] holds no letter {offset}", err=True)
                num_missing += 1
                continue
            is_done = marks[letter.partition].is_done(letter.offset)
            if as_json:
                click.echo(json.dumps(to_json(letter, topic, is_done=is_done)))
            else:
                for line in lines(letter, topic, is_done=is_done):
                    click.echo(line)
    return 1 if num_missing else 0


@dlq.command(name="redrive")
@_topic
@_choice
@_partition
@click.option(
    "--repaired",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Redrive the letters in this file, as it has them: lines of `dlq show --json`, with `record` repaired.",
)
@click.option(
    "--max-attempts",
    type=click.IntRange(1),
    default=DEFAULT_MAX_ATTEMPTS,
    show_default=True,
    help="A record that was redriven so often stays.",
)
@click.option(
    "--rate", type=click.FloatRange(0.0, min_open=True), default=100.0, show_default=True, help="Records a second."
)
@_go
@_as_json
def redrive_letters(topic_name: str, go: bool, as_json: bool, **given: Any) -> int:
    """Send the records of open dead letters to TOPIC again, once its readers would take them; dry unless --go.

    Key, headers and event time stay; a header counts the attempts, and one tells when the record was first appended.
    What would be refused again stays, with the reason: the exit code is then 1. Killed, it goes on where it was with
    the next start, and sends nothing twice.

    \b
    Example:
      intertidal dlq redrive fleet.capacity --reason unknown_cell
      intertidal dlq redrive fleet.capacity --reason unknown_cell --rate 50 --go
      intertidal dlq redrive ranking.outcomes --repaired letters.jsonl --go
    """
    topic = _topic_of(topic_name)
    _check_reasons(given["reasons"])
    repaired = _repaired(given["path"], topic)
    if repaired is not None and (given["reasons"] or given["offsets"]):
        raise click.UsageError("--repaired says which letters: leave --reason and --offset out.")
    config = broker_config("dlq")
    intake = intake_of(config, topic)

    def work(run: str) -> Redrive:
        terms = Terms(run=run, max_attempts=given["max_attempts"], repaired=repaired)
        chosen = choice(given["reasons"], given["offsets"], given["partition"])
        if repaired is not None:
            chosen = lambda letter: letter.place in repaired  # noqa: E731
        return Redrive(topic=topic, intake=intake, terms=terms, chosen=chosen, now_ms=_local_ms)

    with _log(config, topic) as log:
        if go:
            with dead_letter_producer(config) as producer, progress(f"redriving {topic.dead_letters}"):
                marks = log.hold(producer)
                run = unfinished(marks)
                pace = Pace(given["rate"], clock_s=time.monotonic, sleep=time.sleep)
                done = work(_new_run() if run is None else run.name)
                outcome = redrive(log, marks, done, topic=namespace().topic(topic), pace=pace)
        else:
            marks = log.marks()
            outcome = plan(log, marks, work(""))
    _report(outcome, namespace().topic(topic), is_dry=not go, rate=given["rate"], as_json=as_json)
    return 1 if outcome.stays else 0


@dlq.command(name="discard")
@_topic
@_choice
@_partition
@click.option("--all", "everything", is_flag=True, help="Every open letter.")
@click.option("--why", required=True, help="Why they are given up; it is written into the log.")
@click.option("--operator", default=lambda: os.environ.get("USER", ""), show_default="$USER", help="Who says so.")
@_go
@_as_json
def discard_letters(topic_name: str, go: bool, as_json: bool, **given: Any) -> None:
    """Give open dead letters of TOPIC up: they count as done, and the log says who did it and why; dry unless --go.

    The letters stay in their topic for as long as it keeps them.

    \b
    Example:
      intertidal dlq discard ranking.requests --reason bad_framing --why "a scanner" --go
    """
    topic = _topic_of(topic_name)
    _check_reasons(given["reasons"])
    if bool(given["reasons"] or given["offsets"]) == given["everything"]:
        raise click.UsageError("which letters? Give --reason or --offset, or --all.")
    if not given["why"].strip():
        raise click.UsageError("--why is empty: whoever finds the letters must know why they were given up.")
    if not given["operator"]:
        raise click.UsageError("who says so? Give --operator, as $USER is not set.")
    chosen = choice(given["reasons"], given["offsets"], given["partition"])
    config = broker_config("dlq")
    with _log(config, topic) as log:
        if go:
            with dead_letter_producer(config) as producer:
                marks = log.hold(producer)
                why = f"{given['why']} ({given['operator']})"
                num_given_up = discard(log, marks, namespace().topic(topic), chosen=chosen, why=why)
        else:
            marks = log.marks()
            num_given_up = sum(1 for _ in open_letters(log.letters(marks), marks, chosen))
    if as_json:
        click.echo(json.dumps({"topic": namespace().topic(topic), "dry_run": not go, "discarded": num_given_up}))
    else:
        click.echo(f"{num_given_up} letters {'given up' if go else 'would be given up; --go does it'}")


@contextmanager
def _log(config: Config, topic: Topic) -> Iterator[LetterLog]:
    try:
        with LetterLog(config, namespace(), topic) as log:
            yield log
    except (BrokerError, DeliveryError, MarksError, MarksFullError, UnfinishedRunError) as error:
        raise UserError(str(error)) from error


def _topic_of(name: str) -> Topic:
    return topic_named(name.removesuffix(_SUFFIX))


def _check_reasons(reasons: Sequence[str]) -> None:
    """Raises UsageError for a word that is no reason: nothing would be found, and seem to be well."""
    for reason in reasons:
        if reason not in (*REASONS, UNREADABLE):
            raise click.UsageError(f"no reason {reason}; there are {', '.join(REASONS)}.")


def _noting(
    letters: Iterator[Letter], marks: dict[int, Marks], topic: Topic, notes: list[tuple[Topic, Letter]]
) -> Iterator[Letter]:
    """Open letters; what was said of others is put aside."""
    for letter in letters:
        if letter.is_note:
            notes.append((topic, letter))
        elif not marks[letter.partition].is_done(letter.offset):
            yield letter


def _note(topic: Topic, note: Letter) -> dict[str, Any]:
    assert note.letter is not None, "a note is a letter"
    return {
        "topic": topic.name,
        "time": iso_time(note.append_ms),
        "offset": note.offset,
        "what": note.letter.stage,
        "detail": note.letter.detail,
    }


def _repaired(path: Path | None, topic: Topic) -> dict[Place, Any] | None:
    if path is None:
        return None
    try:
        repaired = repaired_letters(path.read_bytes(), topic)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: {error}") from error
    if not repaired:
        raise UserError(f"{path}: no letter")
    return repaired


def _report(outcome: Outcome, topic: str, *, is_dry: bool, rate: float, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(outcome.to_json(topic, is_dry=is_dry)))
        return
    if is_dry:
        takes_s = outcome.num_redriven / rate
        click.echo(f"{outcome.num_redriven} records would go to {topic} in {takes_s:.0f} s; --go sends them")
    else:
        again = f", {outcome.num_again} had been before" if outcome.num_again else ""
        click.echo(f"{outcome.num_redriven} records redriven to {topic}{again} (run {outcome.run})")
    for why, count in sorted(outcome.stays.items()):
        click.echo(f"{count} stay: {why}")
    for letter, stays in outcome.examples:
        click.echo(f"  {letter.offset}: {' '.join(stays.detail.split())}")


def _new_run() -> str:
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def _local_ms() -> int:
    return time.time_ns() // 1_000_000
