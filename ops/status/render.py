"""A status on a terminal of any width: text wraps, figures are never cut."""

from collections.abc import Iterator
from datetime import datetime

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ops.status.model import CellStatus, PartStatus, Status
from ops.status.sentences import Sentence, cell_sentences
from ops.status.words import age, plural

_STYLES = {"plain": "", "good": "green", "bad": "red"}
_VERDICT_STYLES = {"ok": "bold green", "waiting": "bold yellow", "attention": "bold red"}
_LABEL_WIDTH = 12
_INDENT = (0, 0, 0, 2)
# What is more stands in the JSON.
_MAX_TROUBLES = 12


def render(status: Status, *, with_partitions: bool = False) -> Group:
    """The whole status, the verdict first: a terminal that is too short cuts the end."""
    return Group(*_blocks(status, with_partitions=with_partitions))


def _blocks(status: Status, *, with_partitions: bool) -> Iterator[RenderableType]:
    pipeline = status.namespace or "live pipeline"
    yield Text(f"Intertidal  {pipeline}  {status.time.isoformat(timespec='seconds')}", style="bold")
    state = _VERDICT_STYLES[status.verdict.state]
    yield Text.assemble((f"{status.verdict.state}: ", state), status.verdict.line)
    # The first one is the verdict's already.
    others = [
        trouble for trouble in status.troubles if f"{trouble.subject}: {trouble.detail}" not in status.verdict.line
    ]
    for trouble in others[:_MAX_TROUBLES]:
        yield Padding(Text(f"{trouble.subject}: {trouble.detail}", style="yellow"), _INDENT)
    if len(others) > _MAX_TROUBLES:
        yield Padding(Text(f"and {len(others) - _MAX_TROUBLES} more", style="yellow"), _INDENT)
    for cell in status.cells:
        yield Text()
        yield cell_block(cell, now=status.time)
    if status.parts:
        yield Text()
        yield _parts(status, with_partitions=with_partitions)
    yield Text()
    yield fact_table(_rest(status))


def cell_block(cell: CellStatus, *, now: datetime) -> Group:
    """One cell with its facts."""
    return Group(Text(cell.cell, style="bold"), fact_table(cell_sentences(cell, now=now)))


def fact_table(sentences: Iterator[Sentence]) -> Table:
    """Labels at the left, sentences beside them in what is left of the width."""
    table = Table.grid(padding=(0, 1), pad_edge=False)
    table.add_column(width=_LABEL_WIDTH, overflow="fold", style="dim")
    table.add_column(overflow="fold")
    for sentence in sentences:
        table.add_row(Text(sentence.label), Text(sentence.text, style=_STYLES[sentence.tone]))
    return table


def _parts(status: Status, *, with_partitions: bool) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    for name in ("part", "topic", "state"):
        table.add_column(name, overflow="fold")
    for name in ("records", "lag", "waiting"):
        table.add_column(name, justify="right", overflow="fold")
    for part in status.parts:
        topic = part.topic.removeprefix(status.namespace)
        style = "red" if part.state in ("stalled", "absent") else ""
        table.add_row(
            Text(part.part),
            Text(topic),
            Text(_state(part), style=style),
            f"{part.lag_records:,}",
            _seconds(part.lag_s),
            _seconds(part.waiting_s),
        )
        for at in part.partitions if with_partitions else ():
            place = f"{at.position if at.position is not None else '-'} of {at.low}..{at.end}"
            watermark = "" if at.watermark is None else f"to {at.watermark.isoformat(timespec='milliseconds')[11:23]}"
            table.add_row(
                Text(f"  [{at.partition}]"),
                Text(place),
                Text(watermark, style="dim"),
                f"{at.lag_records:,}",
                _seconds(at.lag_s),
                _seconds(at.waiting_s),
            )
    return table


def _state(part: PartStatus) -> str:
    members = "" if not part.num_members else f", {part.num_members}"
    return f"{part.state}{members}"


def _seconds(lag_s: float | None) -> str:
    return "-" if lag_s is None else age(lag_s)


def _rest(status: Status) -> Iterator[Sentence]:
    if status.stalest is not None:
        yield Sentence("stalest", f"{status.stalest.what} of {status.stalest.cell}, {age(status.stalest.age_s)} old")
    for part in status.parts:
        if part.reason is not None and part.state != "unused":
            yield Sentence("not ready", f"{part.part}: {part.reason}", "bad")
    for replay in status.replays:
        share = f"{replay.num_read:,} of {replay.num_records:,} records"
        yield Sentence("replay", f"{replay.run} ({', '.join(replay.parts)}) {replay.state}: {replay.detail or share}")
    yield from _dead_letters(status)


def _dead_letters(status: Status) -> Iterator[Sentence]:
    if not status.dead_letters:
        yield Sentence("dead letters", "none")
    for letters in status.dead_letters:
        topic = letters.topic.removeprefix(status.namespace)
        newest = "" if letters.newest is None else f", newest {age((status.time - letters.newest).total_seconds())} ago"
        done = letters.count - letters.num_open
        text = f"{topic}: {plural(letters.num_open, 'letter')}{newest}" + (f", {done} done" if done else "")
        yield Sentence("dead letters", text, "bad" if letters.is_growing else "plain")
    for bad in status.unreadable:
        yield Sentence("unreadable", f"{bad.topic.removeprefix(status.namespace)}: {bad.count}, {bad.example}", "bad")
