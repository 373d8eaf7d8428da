"""How figures and times are written for a person. Pure."""

from collections.abc import Mapping


def number(value: float) -> str:
    """At most two decimals, none that say nothing, thousands apart."""
    text = f"{value:,.2f}"
    return text.rstrip("0").rstrip(".")


def counts(values: Mapping[str, float]) -> str:
    """`3 gate_closed, 5 pressure`."""
    return ", ".join(f"{number(value)} {label}" for label, value in values.items())


def age(seconds: float) -> str:
    """A length of time in the unit that suits it; tenths of a second up to two minutes."""
    if seconds < 120:
        return f"{max(0.0, seconds):.1f} s"
    if seconds < 2 * 3_600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.0f} h" if seconds < 2 * 86_400 else f"{seconds / 86_400:.0f} days"


def size(size_bytes: int) -> str:
    """Bytes in GiB from one on, else in MiB."""
    gib = size_bytes / (1 << 30)
    return f"{number(gib)} GiB" if gib >= 1 else f"{number(size_bytes / (1 << 20))} MiB"


def plural(count: int, noun: str) -> str:
    """`1 host`, `2 hosts`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
