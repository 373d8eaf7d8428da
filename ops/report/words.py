"""How a report writes figures: few digits, real minus signs, spaces before units. Pure."""

from datetime import datetime
from typing import Final

DASH: Final = "—"
_MINUS: Final = "−"


def figure(value: float | None, *, digits: int = 3) -> str:
    """A number to so many significant digits, thousands apart; a dash where it is not known."""
    if value is None:
        return DASH
    size = abs(value)
    whole = len(f"{int(size)}") if size >= 1.0 else 0
    decimals = max(0, digits - whole) if size >= 0.1 or value == 0.0 else digits + 1
    text = f"{value:,.{decimals}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return _MINUS + text[1:] if text.startswith("-") and text != "-0" else text.removeprefix("-")


def signed(value: float | None, *, digits: int = 3) -> str:
    """The same with its sign."""
    text = figure(value, digits=digits)
    return text if value is None or value <= 0.0 or text == "0" else f"+{text}"


def percent(share: float | None) -> str:
    """A share as a percentage."""
    if share is None:
        return DASH
    return f"{figure(100.0 * share, digits=2)} %"


def signed_percent(share: float | None) -> str:
    """A relative change."""
    if share is None:
        return DASH
    return f"{signed(100.0 * share, digits=2 if abs(share) < 1.0 else 3)} %"


def hours(length_h: float) -> str:
    """A length of time in the unit that suits it."""
    if length_h < 2 / 60:
        return f"{length_h * 3_600:.0f} s"
    if length_h < 2:
        return f"{length_h * 60:.0f} min"
    return f"{length_h:.0f} h" if length_h < 48 else f"{length_h / 24:.1f} days"


def milliseconds(value: float | None) -> str:
    """A latency."""
    return DASH if value is None else f"{figure(value, digits=3 if value >= 1.0 else 2)} ms"


def moment(at: datetime | None) -> str:
    """A time, to the second, in UTC."""
    return DASH if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def clock(at: datetime) -> str:
    """A time of day."""
    return f"{at:%H:%M:%S}"


def and_list(names: list[str], *, most: int = 4) -> str:
    """`a, b and c`, or `a, b, c and 9 more`."""
    shown = names if len(names) <= most else [*names[: most - 1], f"{len(names) - most + 1} more"]
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]])) if shown else ""
