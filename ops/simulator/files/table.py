"""Comma-separated rows with a header: columns by name, whatever their order and whatever stands beside them."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ops.simulator.files.dirt import Dirt
from ops.simulator.files.errors import TrafficFileError
from ops.simulator.files.lines import read_lines

_SHOWN_CHARS: Final = 80


class TableReader:
    """Rows of one file, the values of ``columns`` in their order; ``None`` for a column that the file lacks.

    Names are compared without case and blanks. One row is one line: none of these files needs a line break within
    quotes, and so quotes that never close cost one row. Iterating raises TrafficFileError where the file cannot
    be used.
    """

    def __init__(self, path: Path, columns: Sequence[str], *, required: Sequence[str], dirt: Dirt, max_rows: int):
        self._path = path
        self._columns = columns
        self._required = required
        self._dirt = dirt
        self._max_rows = max_rows
        self.num_rows = 0

    def rows(self) -> Iterator[tuple[int, list[str | None]]]:
        """Line number and stripped values of each row that is long enough."""
        lines = read_lines(self._path, self._dirt)
        header = next((text for _, text in lines if text.strip()), "")
        places = self._places(header)
        longest = max(place for place in places if place is not None)
        for line, text in lines:
            if not text.strip():
                self._dirt.note("blank_line", line)
                continue
            self.num_rows += 1
            if self.num_rows > self._max_rows:
                self._dirt.note("after_limit", line)
                return
            if text == header:
                self._dirt.note("repeated_header", line)
                continue
            try:
                fields = self._split(text)
            except csv.Error:
                self._dirt.note("bad_quotes", line)
                continue
            if len(fields) <= longest:
                self._dirt.note("short_row", line)
                continue
            yield line, [None if place is None else fields[place].strip() for place in places]

    def unusable(self, column: str, detail: str) -> TrafficFileError:
        """The error for a file of which no row could be used."""
        return TrafficFileError(str(self._path), column, detail)

    def _places(self, header: str) -> list[int | None]:
        try:
            names = [name.strip().casefold() for name in self._split(header)]
        except csv.Error:
            names = []
        for name in self._required:
            if name.casefold() not in names:
                shown = header[:_SHOWN_CHARS]
                raise self.unusable(name, f"no such column; the first line, where the header is wanted, is {shown!r}")
        return [names.index(name) if name in names else None for name in map(str.casefold, self._columns)]

    @staticmethod
    def _split(text: str) -> list[str]:
        if '"' not in text:
            return text.split(",")
        return next(csv.reader([text], strict=True), [])
