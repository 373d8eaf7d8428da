"""The Open Bandit Dataset as labelled views (Saito et al. 2020, arXiv 2008.07146): one shown item a row.

What a model sees of a row: the four hashed user features and the position as one-hot features, the item as the ad, and
the user's affinities, which count past clicks by item: those with any are the history, and that of the shown item is
its retrieval score. There are no bids: each is one.

Shape legend: R rows, F features, I items.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ranking.models.inputs import CandidateChunk, Users
from ranking.models.training.views import LabelledViews

_USER_FEATURES = tuple(f"user_feature_{number}" for number in range(4))
_AFFINITY = "user-item_affinity_"


class OpenBanditError(Exception):
    """A file that is not as the dataset's are; one line that names the file and the row."""


@dataclass(frozen=True, slots=True)
class _Row:
    time: datetime
    item: int
    clicked: bool
    labels: tuple[str, ...]
    affinities: tuple[float, ...]


def read_open_bandit(files: Sequence[Path]) -> LabelledViews:
    """Rows of the campaign files (`men.csv`, not `item_context.csv`) of one campaign, by time.

    Raises: OpenBanditError on what is not as the dataset's description says.
    """
    rows = sorted((row for path in files for row in _read(path)), key=lambda row: row.time)
    if not rows:
        raise OpenBanditError("no row in any of the files")
    items_R = np.array([row.item for row in rows])
    affinities_RI = _affinities(rows)
    history_of, history_ids = np.nonzero(affinities_RI > 0.0)
    return LabelledViews(
        users=Users(
            features_BF=_one_hot([row.labels for row in rows]),
            history_ids_H=history_ids.astype(np.int64),
            request_of_history_H=history_of.astype(np.int64),
        ),
        shown=CandidateChunk(
            ad_ids_N=items_R,
            bids_N=np.ones(len(rows), dtype=np.float32),
            retrieval_scores_N=affinities_RI[np.arange(len(rows)), items_R],
            request_of_candidate_N=np.arange(len(rows)),
        ),
        clicked_N=np.array([row.clicked for row in rows]),
    )


def _read(path: Path) -> list[_Row]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            columns = [name for name in reader.fieldnames or () if name.startswith(_AFFINITY)]
            # By the item's number: the columns need not stand in that order.
            columns.sort(key=lambda name: int(name.removeprefix(_AFFINITY)))
            return [_row(row, columns) for row in reader]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise OpenBanditError(f"{path}: {error}") from error


def _row(row: dict[str, str], columns: Sequence[str]) -> _Row:
    item = int(row["item_id"])
    if not 0 <= item < len(columns) or row["click"] not in ("0", "1"):
        raise ValueError(f"row {row['']}: item {item}, click {row['click']!r}")
    return _Row(
        time=datetime.fromisoformat(row["timestamp"]),
        item=item,
        clicked=row["click"] == "1",
        labels=(row["position"], *(row[name] for name in _USER_FEATURES)),
        affinities=tuple(float(row[name]) for name in columns),
    )


def _affinities(rows: Sequence[_Row]) -> NDArray[np.float32]:
    lengths = {len(row.affinities) for row in rows}
    if len(lengths) > 1:
        raise OpenBanditError(f"files of campaigns with {min(lengths)} and {max(lengths)} items: give those of one")
    return np.array([row.affinities for row in rows], dtype=np.float32)


def _one_hot(labels: Sequence[tuple[str, ...]]) -> NDArray[np.float32]:
    """One column for each value of each label, values in their order: float32 [R, F]."""
    blocks = []
    for values in zip(*labels, strict=True):
        known, place_R = np.unique(np.array(values), return_inverse=True)
        blocks.append(np.eye(len(known), dtype=np.float32)[place_R])
    return np.concatenate(blocks, axis=1)
