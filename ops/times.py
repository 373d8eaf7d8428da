"""Times and durations as a person writes them: ISO 8601 with zone, or relative to now; 90s, 15m, 2h, 1d. Pure."""

import re
from datetime import UTC, datetime
from typing import Final

_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def parse_duration_s(text: str) -> float:
    """Seconds of ``15m``, ``90s``, ``1h30m``; raises ValueError."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no duration such as 30s, 15m or 1h30m")
    return float(sum(float(number) * _UNITS_S[unit] for number, unit in parts))


def parse_time_ms(text: str, *, now_ms: int) -> int:
    """Milliseconds since the Unix epoch of ``2026-03-01T12:00:00Z``, ``-15m`` or ``+2m``; raises ValueError."""
    if text[:1] in ("-", "+"):
        return now_ms + round(float(text[0] + "1") * parse_duration_s(text[1:]) * 1e3)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time such as 2026-03-01T12:00:00Z or -15m") from None
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no zone; write {text}Z for UTC")
    return round(moment.timestamp() * 1e3)


def iso_time(at_ms: int) -> str:
    """A time as ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(at_ms / 1e3, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
