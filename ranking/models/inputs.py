"""What replicas hand to the scorer: numpy columns of several requests, checked for shape and type.

Shape legend: B requests, F user features, H past ad ids of all users, N candidates of all requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Users:
    """The users of B requests.

    features_BF float32; history_ids_H int64, all users' past ad ids one after another, each user's oldest
    first; request_of_history_H int64, ascending.
    Raises: ValueError on a wrong dtype, mismatched lengths or an index outside [0, B).
    """

    features_BF: NDArray[np.float32]
    history_ids_H: NDArray[np.int64]
    request_of_history_H: NDArray[np.int64]

    def __post_init__(self) -> None:
        _check("features_BF", self.features_BF, np.float32, num_dims=2)
        _check("history_ids_H", self.history_ids_H, np.int64)
        _check("request_of_history_H", self.request_of_history_H, np.int64)
        if len(self.history_ids_H) != len(self.request_of_history_H):
            raise ValueError(
                f"{len(self.history_ids_H)} history ids, but {len(self.request_of_history_H)} request indices"
            )
        check_index("request_of_history_H", self.request_of_history_H, len(self.features_BF))

    @classmethod
    def of_requests(
        cls, features_F: Sequence[NDArray[np.float32]], history_ids_H: Sequence[NDArray[np.int64]]
    ) -> "Users":
        """Put the users of several requests together; each sequence has an entry per request."""
        if not features_F or len(features_F) != len(history_ids_H):
            raise ValueError(f"{len(features_F)} users, but {len(history_ids_H)} histories")
        if len(features_F) == 1:
            # Most batches of a quiet replica: nothing is copied.
            history = history_ids_H[0]
            return cls(
                features_BF=features_F[0][None],
                history_ids_H=history,
                request_of_history_H=np.zeros(len(history), dtype=np.int64),
            )
        lengths_B = [len(history) for history in history_ids_H]
        return cls(
            features_BF=np.stack(features_F),
            history_ids_H=np.concatenate(history_ids_H),
            request_of_history_H=np.repeat(np.arange(len(lengths_B)), lengths_B),
        )


@dataclass(frozen=True)
class CandidateChunk:
    """Candidates of one or several requests; all columns have length N.

    ad_ids_N int64; bids_N float32, value per click, currency; retrieval_scores_N float32;
    request_of_candidate_N int64, rows of the `Users` that were prepared, in any order.
    Raises: ValueError on a wrong dtype or mismatched lengths.
    """

    ad_ids_N: NDArray[np.int64]
    bids_N: NDArray[np.float32]
    retrieval_scores_N: NDArray[np.float32]
    request_of_candidate_N: NDArray[np.int64]

    def __post_init__(self) -> None:
        _check("ad_ids_N", self.ad_ids_N, np.int64)
        _check("bids_N", self.bids_N, np.float32)
        _check("retrieval_scores_N", self.retrieval_scores_N, np.float32)
        _check("request_of_candidate_N", self.request_of_candidate_N, np.int64)
        lengths = {
            name: len(column)
            for name, column in (
                ("ad_ids_N", self.ad_ids_N),
                ("bids_N", self.bids_N),
                ("retrieval_scores_N", self.retrieval_scores_N),
                ("request_of_candidate_N", self.request_of_candidate_N),
            )
        }
        if len(set(lengths.values())) != 1:
            raise ValueError(f"columns of one chunk differ in length: {lengths}")

    def __len__(self) -> int:
        return len(self.ad_ids_N)


def check_index(name: str, index: NDArray[np.int64], num_rows: int) -> None:
    """Raise ValueError where `index` names a row outside [0, num_rows)."""
    if len(index) and not (index.min() >= 0 and index.max() < num_rows):
        raise ValueError(f"{name} must be in [0, {num_rows}), got {index.min()}..{index.max()}")


def _check(name: str, column: NDArray[np.generic], dtype: type[np.generic], *, num_dims: int = 1) -> None:
    if column.dtype != dtype or column.ndim != num_dims:
        raise ValueError(
            f"{name} must be {dtype.__name__} with {num_dims} dimension(s), got {column.dtype} {column.shape}"
        )
