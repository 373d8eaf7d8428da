"""Reader of arrival times: a table with a column TIMESTAMP, as the Azure LLM inference traces have it."""

from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ops.simulator.files.dirt import Dirt
from ops.simulator.files.table import TableReader
from ops.simulator.files.times import is_missing, parse_number, parse_time

# 8 bytes each while the file is read. The largest public trace of the kind, a week of chat, has 27 million.
MAX_ARRIVALS: Final = 32_000_000
_TIME: Final = "TIMESTAMP"
_TOKENS: Final = ("ContextTokens", "GeneratedTokens")


@dataclass(frozen=True)
class ArrivalTrace:
    """Arrivals of a file: ``times_s`` rise and count from the first one, float64."""

    times_s: NDArray[np.float64]
    num_rows: int
    dirt: Dirt

    @property
    def length_s(self) -> float:
        """From the first arrival to the last."""
        return float(self.times_s[-1])


def read_arrivals(path: Path, *, max_rows: int = MAX_ARRIVALS) -> ArrivalTrace:
    """Read a file of arrivals; at least one is there. Raises TrafficFileError where it cannot be used."""
    dirt = Dirt()
    table = TableReader(path, (_TIME, *_TOKENS), required=(_TIME,), dirt=dirt, max_rows=max_rows)
    times = array("d")
    last_s = -np.inf
    odd: str | None = None
    for line, (stamp, *tokens) in table.rows():
        if stamp is None or is_missing(stamp):
            dirt.note("missing_time", line)
            continue
        parsed = parse_time(stamp)
        if parsed is None:
            odd = odd or stamp
            dirt.note("bad_time", line)
            continue
        for kind in parsed.dirt:
            dirt.note(kind, line)
        if parsed.seconds < 0.0 and "plain_seconds" in parsed.dirt:
            dirt.note("negative_time", line)
            continue
        if parsed.seconds < last_s:
            dirt.note("unordered", line)
        last_s = parsed.seconds
        _note_tokens(tokens, line, dirt)
        times.append(parsed.seconds)
    if not times:
        seen = f"; the first is {odd[:60]!r}" if odd else ""
        raise table.unusable(_TIME, f"no usable time in {table.num_rows} rows{seen} (ISO 8601 or seconds are wanted)")
    times_s = np.frombuffer(times, np.float64).copy()
    times_s.sort()
    return ArrivalTrace(times_s - times_s[0], table.num_rows, dirt)


def _note_tokens(tokens: list[str | None], line: int, dirt: Dirt) -> None:
    """Tokens decide nothing here, but a row that has odd ones is a row to know of; it is noted once for each kind."""
    odd = [text for text in tokens if text is not None and not _is_plain(text)]
    if odd:
        for kind in sorted({kind for kind in map(_token_kind, odd) if kind}):
            dirt.note(kind, line)


def _is_plain(text: str) -> bool:
    return text.isdigit() and text[0] != "0"


def _token_kind(text: str) -> str | None:
    if is_missing(text):
        return "missing_tokens"
    number = parse_number(text)
    if number is None:
        return "odd_tokens"
    if number == 0.0:
        return "zero_tokens"
    return "negative_tokens" if number < 0.0 else None
