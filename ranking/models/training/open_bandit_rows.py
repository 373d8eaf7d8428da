"""Rows of a campaign file of the Open Bandit Dataset (Saito et al. 2020, arXiv 2008.07146), one shown item a line.

Files are as pandas writes them, without quotes: a line is a row, so that a bad one spoils no other.
"""

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

USER_FEATURES: Final = tuple(f"user_feature_{number}" for number in range(4))
_AFFINITY: Final = "user-item_affinity_"
# Hashes are shorter; what is longer would not fit an attribution token.
_MAX_LABEL: Final = 64
_COLUMNS: Final = ("timestamp", "item_id", "position", "click", "propensity_score", *USER_FEATURES)


class OpenBanditError(Exception):
    """A file that is not as the dataset's are; one line that names the file and, where it is one, the line."""


@dataclass(frozen=True, slots=True)
class BanditRow:
    """One shown item: ``propensity`` is the probability with which it was put at ``position``, in (0, 1].

    ``user_features`` are hashes, ``affinities`` counts of the user's past clicks by item.
    """

    time: datetime
    item: int
    position: str
    clicked: bool
    propensity: float
    user_features: tuple[str, ...]
    affinities: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BadRow:
    """A line that is no row of the dataset, and why."""

    reason: str


def read_rows(path: Path) -> Iterator[tuple[int, BanditRow | BadRow]]:
    """Every line of a file after its head, with its number (the head's is 1), in order.

    Raises: OpenBanditError for a file that cannot be read, or whose head lacks a column.
    """
    try:
        # Bytes that are no text become visible ones, and the line a bad row.
        with path.open(newline="", encoding="utf-8", errors="replace") as file:
            lines = csv.reader(file, quoting=csv.QUOTE_NONE)
            place_of = _places(path, next(lines, []))
            affinities = _affinity_places(path, place_of)
            while True:
                try:
                    fields = next(lines)
                    found: BanditRow | BadRow = _row(fields, place_of, affinities)
                except StopIteration:
                    return
                except (csv.Error, ValueError) as error:
                    found = BadRow(str(error))
                yield lines.line_num, found
    except OSError as error:
        raise OpenBanditError(f"{path}: {error.strerror}") from error


def _places(path: Path, head: Sequence[str]) -> dict[str, int]:
    place_of = {name: place for place, name in enumerate(head)}
    missing = [name for name in _COLUMNS if name not in place_of]
    if missing:
        raise OpenBanditError(f"{path}: its head has no column {', '.join(missing)}")
    return place_of


def _affinity_places(path: Path, place_of: dict[str, int]) -> list[int]:
    names = [name for name in place_of if name.startswith(_AFFINITY)]
    try:
        # By the item's number: the columns need not stand in that order.
        names.sort(key=lambda name: int(name.removeprefix(_AFFINITY)))
    except ValueError as error:
        raise OpenBanditError(f"{path}: a column of affinities without the number of its item") from error
    return [place_of[name] for name in names]


def _row(fields: Sequence[str], place_of: dict[str, int], affinities: Sequence[int]) -> BanditRow:
    """The row of a line; raises ValueError with the reason why it is none."""
    if len(fields) != len(place_of):
        raise ValueError(f"{len(fields)} columns of {len(place_of)}")
    said = {name: fields[place_of[name]] for name in _COLUMNS}
    empty = [name for name in _COLUMNS if not said[name]]
    if empty:
        raise ValueError(f"no {', '.join(empty)}")
    time = datetime.fromisoformat(said["timestamp"])
    if time.tzinfo is None:
        raise ValueError(f"timestamp {said['timestamp']!r} has no zone")
    if time.timestamp() < 0.0:
        raise ValueError(f"timestamp {said['timestamp']!r} is before 1970")
    for name in ("position", *USER_FEATURES):
        if len(said[name]) > _MAX_LABEL or not (said[name].isascii() and said[name].isprintable()):
            raise ValueError(f"{name} is no short word")
    item = int(said["item_id"])
    if not 0 <= item < len(affinities):
        raise ValueError(f"item {item} of {len(affinities)}")
    if said["click"] not in ("0", "1"):
        raise ValueError(f"click {said['click']!r}")
    propensity = float(said["propensity_score"])
    # So written that NaN is refused as well.
    if not 0.0 < propensity <= 1.0:
        raise ValueError(f"propensity_score {propensity:g}")
    past_clicks = tuple(float(fields[place]) for place in affinities)
    if not all(0.0 <= number < math.inf for number in past_clicks):
        raise ValueError("an affinity that is no count")
    return BanditRow(
        time=time,
        item=item,
        position=said["position"],
        clicked=said["click"] == "1",
        propensity=propensity,
        user_features=tuple(said[name] for name in USER_FEATURES),
        affinities=past_clicks,
    )
