"""The Open Bandit Dataset as labelled views (Saito et al. 2020, arXiv 2008.07146): one shown item a row.

What a model sees of a row: the four hashed user features and the position as one-hot features, the item as the ad, and
the user's affinities, which count past clicks by item: those with any are the history, and that of the shown item is
its retrieval score. There are no bids: each is one.

Shape legend: R rows, F features, I items.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ranking.models.inputs import CandidateChunk, Users
from ranking.models.training.open_bandit_rows import BadRow, BanditRow, OpenBanditError, read_rows
from ranking.models.training.views import LabelledViews


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
            features_BF=_one_hot([(row.position, *row.user_features) for row in rows]),
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


def _read(path: Path) -> Iterator[BanditRow]:
    for line, row in read_rows(path):
        if isinstance(row, BadRow):
            raise OpenBanditError(f"{path}:{line}: {row.reason}")
        yield row


def _affinities(rows: Sequence[BanditRow]) -> NDArray[np.float32]:
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
