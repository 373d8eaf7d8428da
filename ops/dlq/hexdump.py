"""Bytes around a place, as a person reads them. Pure."""

from collections.abc import Iterator
from typing import Final

_WIDTH: Final = 16
_LINES_AROUND: Final = 3


def hexdump(value: bytes, *, at: int) -> Iterator[str]:
    """The lines of 16 bytes around byte ``at``, which stands in brackets; it may be the one behind the last."""
    at = min(max(at, 0), len(value))
    row = at // _WIDTH
    first = max(0, row - _LINES_AROUND)
    for number in range(first, min(row + _LINES_AROUND, len(value) // _WIDTH) + 1):
        start = number * _WIDTH
        line = value[start : start + _WIDTH]
        cells = [f"[{byte:02x}]" if start + index == at else f" {byte:02x} " for index, byte in enumerate(line)]
        if at == len(value) and len(line) < _WIDTH:
            cells.append("[  ]")
        if not cells:
            return
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)
        yield f"{start:8d}  {''.join(cells):<{4 * _WIDTH + 4}} {text}"
