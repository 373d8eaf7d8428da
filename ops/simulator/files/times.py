"""Times as traces write them: ISO 8601 with or without zone, or plain seconds. Pure."""

import math
import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Seconds beyond this are no time of any trace, and differences of such floats mean nothing.
_MAX_S: Final = 1e12
_LONG_FRACTION: Final = re.compile(r"\.\d{7}")
# Longer than any time or number, and short enough that the pattern below cannot be made to labour.
_MAX_CHARS: Final = 64
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_MISSING: Final = frozenset({"", "nan", "null", "none", "na", "n/a", "-", "nat"})


class ParsedTime(NamedTuple):
    """``seconds``: since 1970 for a date, else as written. The rest are the kinds of dirt that it shows."""

    seconds: float
    dirt: tuple[str, ...]


def is_missing(text: str | None) -> bool:
    """Whether a field says that there is nothing."""
    return text is None or text.casefold() in _MISSING


def parse_number(text: str) -> float | None:
    """A finite decimal number, None for anything else; not the underscores, blanks and names that ``float`` takes."""
    if len(text) > _MAX_CHARS or not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def parse_time(text: str) -> ParsedTime | None:
    """The time in a field that is not missing, None where there is none."""
    # A dash after the year, as in nearly all rows of large files: no number.
    seconds = None if text[4:5] == "-" else parse_number(text)
    if seconds is not None:
        return ParsedTime(seconds, ("plain_seconds",)) if abs(seconds) <= _MAX_S else None
    try:
        stamp = datetime.fromisoformat(text.removesuffix(" UTC"))
    except ValueError:
        return None
    dirt: tuple[str, ...] = ("long_fraction",) if "." in text and _LONG_FRACTION.search(text) else ()
    if stamp.tzinfo is None:
        stamp = stamp.replace(tzinfo=UTC)
        if not text.endswith(" UTC"):
            dirt = (*dirt, "no_zone")
    return ParsedTime((stamp - _EPOCH).total_seconds(), dirt)
