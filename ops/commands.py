"""An operator's word to cells: until when it counts, which cells hear it, and the record that says it. Pure."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from schemas.records import CellDeclaration, CellLimits, ControlWindow, OperatorCommand

MS_PER_S: Final = 1_000
# A hold is for the time of a trouble: what should stay for longer is a matter of the cell's limits.
MAX_HOLD_MS: Final = 7 * 86_400 * MS_PER_S
_DURATION: Final = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
_UNITS_S: Final = (86_400, 3_600, 60, 1)
_MAX_CHARS: Final = 40


class CommandError(ValueError):
    """A word that cannot be given to a cell; the message names the cell."""


def expiry_ms(*, duration: str | None, until: str | None, now_ms: int) -> int:
    """When a hold runs out, of exactly one of the two; raises ValueError for what is no time, over, or too far away."""
    if (duration is None) == (until is None):
        raise ValueError("a hold must run out by itself: give --for or --until")
    expires_ms = now_ms + duration_ms(duration) if duration is not None else _time_ms(until or "")
    if expires_ms <= now_ms:
        raise ValueError("a hold must run out after now")
    if expires_ms > now_ms + MAX_HOLD_MS:
        raise ValueError(f"a hold lasts {MAX_HOLD_MS // MS_PER_S // _UNITS_S[0]} days at most")
    return expires_ms


def duration_ms(text: str) -> int:
    """Milliseconds of a time like 90s, 30m, 1h30m or 2d; raises ValueError."""
    match = _DURATION.fullmatch(text) if 0 < len(text) <= _MAX_CHARS else None
    if match is None:
        raise ValueError(f"{text!r} is no time like 90s, 30m, 1h30m or 2d")
    parts = zip(match.groups(), _UNITS_S, strict=True)
    return MS_PER_S * sum(int(number) * unit_s for number, unit_s in parts if number is not None)


def listening(declared: Mapping[str, CellDeclaration], names: Iterable[str], *, now_ms: int) -> list[CellDeclaration]:
    """The cells of those names that still have a controller, in order, each once; raises CommandError for any other."""
    cells = []
    for name in sorted(set(names)):
        declaration = declared.get(name)
        if declaration is None:
            raise CommandError(f"cell {name} is not declared: `intertidal cells list` names those that are")
        if is_retired(declaration, now_ms=now_ms):
            raise CommandError(f"cell {name} is retired from window {declaration.until_window} on")
        cells.append(declaration)
    return cells


def is_retired(declaration: CellDeclaration, *, now_ms: int) -> bool:
    """Whether a cell has no windows any more."""
    until = declaration.until_window
    return until is not None and now_ms // max(1, declaration.window_ms) >= until


def command_window(declaration: CellDeclaration, command: OperatorCommand, *, now_ms: int) -> ControlWindow:
    """The record of a command, of the window in which it is given; raises CommandError beyond the cell's limits.

    It counts from the next tick on, wherever its window stands: the order of the log decides.
    """
    index = now_ms // max(1, declaration.window_ms)
    # Those of a cell that is yet to begin are the first ones.
    limits = declaration.limits_at(index) or declaration.revisions[0].limits
    _check(declaration.cell, command, limits)
    return ControlWindow(
        cell=declaration.cell,
        kind="command",
        source_partition=0,
        window_index=index,
        start_ms=index * declaration.window_ms,
        end_ms=(index + 1) * declaration.window_ms,
        command=command,
    )


def _check(cell: str, command: OperatorCommand, limits: CellLimits) -> None:
    target, coverage = command.candidate_target, command.coverage
    if target is not None and not limits.base_candidates <= target <= limits.max_candidates:
        raise CommandError(
            f"cell {cell}: --candidates {target} is not in [{limits.base_candidates}, {limits.max_candidates}]"
        )
    if coverage is not None and not 0.0 <= coverage <= limits.max_coverage:
        raise CommandError(f"cell {cell}: --coverage {coverage:g} is not in [0, {limits.max_coverage:g}]")


def _time_ms(text: str) -> int:
    try:
        stamp = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no ISO 8601 time") from None
    if stamp.tzinfo is None:
        raise ValueError(f"{text!r} has no zone: 2026-05-01T18:00:00Z, or +02:00 at its end")
    return round((stamp - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * MS_PER_S)
