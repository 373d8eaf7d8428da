"""Reader of quantiles of candidates per request: numbers in rising order, as the MLPerf DLRM distribution has them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ops.simulator.files.dirt import Dirt
from ops.simulator.files.errors import TrafficFileError
from ops.simulator.files.lines import read_lines
from ops.simulator.files.times import parse_number

MAX_QUANTILES: Final = 100_000


@dataclass(frozen=True)
class PairsFile:
    """Quantiles at equal steps of probability from 0 to 1, rising, each at least 1 and at most the limit."""

    quantiles: tuple[float, ...]
    num_values: int
    dirt: Dirt


def read_pairs(path: Path, *, limit: int) -> PairsFile:
    """Read a file of quantiles, divided by commas, semicolons, blanks or lines; ``limit`` is what a request may hold.

    Raises TrafficFileError where it cannot be used.
    """
    dirt = Dirt()
    values: list[float] = []
    num_values = 0
    last = 0.0
    for line, text in read_lines(path, dirt):
        for word in text.replace(",", " ").replace(";", " ").split():
            num_values += 1
            if len(values) == MAX_QUANTILES:
                dirt.note("after_limit", line)
                continue
            value = parse_number(word)
            if value is None:
                dirt.note("not_a_number", line)
            elif value < 1.0:
                dirt.note("below_one", line)
            else:
                if value > limit:
                    dirt.note("above_limit", line)
                if value < last:
                    dirt.note("unordered", line)
                last = value
                values.append(min(value, float(limit)))
    if not values:
        raise TrafficFileError(str(path), "quantiles", f"no usable number among {num_values} (at least 1 is wanted)")
    return PairsFile(tuple(sorted(values)), num_values, dirt)
