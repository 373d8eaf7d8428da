"""From an operator's words on the command line to acknowledged records in the log of the controllers."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import click
import msgspec

from ops.commands import MS_PER_S, CommandError, command_window, expiry_ms, is_retired, listening
from ops.connection import broker_config, namespace
from ops.declared_cells import declared_cells
from ops.errors import UserError
from ops.status.parts import at_time
from schemas.avro import validate
from schemas.errors import RecordError
from schemas.kafka.config import Config, producer_config
from schemas.kafka.producer import DeliveryError, DurableProducer
from schemas.records import CellDeclaration, ControlWindow, OperatorCommand
from schemas.topics import CONTROL_WINDOWS

Action = Literal["freeze", "override", "resume"]

# Expiry is judged by the broker's time: a clock further away than this is told of.
_SKEW_MS: Final = 5_000


def order(
    action: Action,
    *,
    candidates: int | None = None,
    coverage: float | None = None,
    duration: str | None,
    until: str | None,
    as_json: bool,
    **said: Any,
) -> None:
    """Say one word to all the chosen cells, or to none where one of them cannot hear it."""
    check_choice(said["names"], everyone=said["everyone"])
    now_ms = local_ms()
    try:
        expires_ms = None if action == "resume" else expiry_ms(duration=duration, until=until, now_ms=now_ms)
    except ValueError as error:
        raise click.UsageError(f"{error}.") from error
    if action != "resume" and not said["reason"].strip():
        raise click.UsageError("--reason is empty: whoever meets the hold must know why it is there.")
    if not said["operator"]:
        raise click.UsageError("who says so? Give --operator, as $USER is not set.")
    config = broker_config("control")
    cells = chosen_cells(config, said["names"], everyone=said["everyone"], now_ms=now_ms)
    fields = {
        "action": action,
        "operator": said["operator"],
        "reason": said["reason"] or action,
        "candidate_target": candidates,
        "coverage": coverage,
        "expires_ms": expires_ms,
    }
    try:
        command = validate(fields, OperatorCommand)
        windows = [command_window(cell, command, now_ms=now_ms) for cell in cells]
    except RecordError as error:
        raise UserError(f"{error.field}: {error.detail}") from error
    except CommandError as error:
        raise UserError(str(error)) from error
    _report(windows, _send(config, windows, now_ms=now_ms), as_json=as_json)


def check_choice(names: Sequence[str], *, everyone: bool) -> None:
    """Raises UsageError unless cells are named or all are meant: before a broker is looked for."""
    if bool(names) == everyone:
        raise click.UsageError("which cells? Give --cell, once or more, or --all.")


def chosen_cells(config: Config, names: Sequence[str], *, everyone: bool, now_ms: int) -> list[CellDeclaration]:
    """The cells of those names, or every one that is not retired; raises UserError."""
    declared = declared_cells(config)
    if everyone:
        names = [name for name, cell in declared.items() if not is_retired(cell, now_ms=now_ms)]
        if not names:
            raise UserError("no cell is declared: `intertidal cells add` declares one")
    try:
        return listening(declared, names, now_ms=now_ms)
    except CommandError as error:
        raise UserError(str(error)) from error


def _send(config: Config, windows: Sequence[ControlWindow], *, now_ms: int) -> dict[str, tuple[int, int | None]]:
    """Partition and offset of each cell's record, once the broker has acknowledged them all."""
    places: dict[str, tuple[int, int | None]] = {}
    ahead_ms = 0

    def noted(cell: str) -> Callable[[Any], None]:
        def note(message: Any) -> None:
            nonlocal ahead_ms
            places[cell] = (message.partition(), message.offset())
            ahead_ms = now_ms - message.timestamp()[1]

        return note

    try:
        with DurableProducer(producer_config(config)) as producer:
            for window in windows:
                producer.send(
                    namespace().topic(CONTROL_WINDOWS),
                    window,
                    key=window.cell.encode(),
                    on_delivered=noted(window.cell),
                )
    except DeliveryError as error:
        raise UserError(str(error)) from error
    if abs(ahead_ms) > _SKEW_MS:
        behind = "ahead of" if ahead_ms > 0 else "behind"
        click.echo(
            f"this machine's clock is {abs(ahead_ms) / MS_PER_S:.0f} s {behind} the broker's, by which holds run out",
            err=True,
        )
    return places


def _report(windows: Sequence[ControlWindow], places: dict[str, tuple[int, int | None]], *, as_json: bool) -> None:
    rows = []
    for window in windows:
        command = window.command
        assert command is not None
        partition, offset = places[window.cell]
        until = None if command.expires_ms is None else at_time(command.expires_ms).isoformat(timespec="seconds")
        rows.append(
            {
                "cell": window.cell,
                "action": command.action,
                "candidates": command.candidate_target,
                "coverage": command.coverage,
                "expires": until,
                "topic": namespace().topic(CONTROL_WINDOWS),
                "partition": partition,
                "offset": offset,
            }
        )
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
        return
    for row in rows:
        until = f" until {row['expires']}" if row["expires"] else ""
        click.echo(f"{row['cell']}: {row['action']}{until}, {row['topic']}[{row['partition']}] offset {row['offset']}")


def local_ms() -> int:
    """Time of this machine's clock, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
