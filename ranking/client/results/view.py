"""What a reader of results is handed: what each one is worth, where it stands in the log, and what could not be read.

Shape legend: K shown ads of one result.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from schemas.dead_letters import RawRecord, envelope
from schemas.errors import RecordError
from schemas.records import DeadLetter, RankingResult
from schemas.records.fields import Route

Standing = Literal["ok", "late", "degraded", "error"]


def standing_of(record: RankingResult) -> Standing:
    """The worst that is to be said of a result, in one word.

    ``error``: the request was wrong, and nothing was ranked. ``degraded``: the base ranking is missing. ``late``: it is
    whole, and was published after the deadline. A degraded result may be late too: the record's own fields say each.
    """
    if record.status == "error":
        return "error"
    if record.degraded:
        return "degraded"
    return "late" if record.late else "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One result with its place in the log; ``append_ms`` is the broker's time."""

    record: RankingResult
    partition: int
    offset: int
    append_ms: int

    @property
    def request_id(self) -> str:
        return self.record.request_id

    @property
    def standing(self) -> Standing:
        return standing_of(self.record)

    @property
    def routes(self) -> tuple[Route, ...]:
        """The routes whose scores are in the ranking."""
        return tuple(self.record.routes)

    @property
    def ad_ids_K(self) -> NDArray[np.int64]:
        """The shown ads, best first; read-only."""
        return np.frombuffer(self.record.ad_ids, dtype="<i8")

    @property
    def scores_K(self) -> NDArray[np.float32]:
        """Expected value of each shown ad; read-only."""
        return np.frombuffer(self.record.scores, dtype="<f4")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableResult:
    """A record that is no result, or none that can be believed, and why. ``error`` has the reason and the field."""

    raw: RawRecord
    error: RecordError

    def letter(self) -> DeadLetter:
        """Its dead letter, for a caller that keeps them. None is sent: every reader of the topic meets the record."""
        return envelope(self.raw, self.error, part="caller", stage="decode")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsBatch:
    """What the records from ``first_offset`` up to, not including, ``next_offset`` of one partition came to.

    Batches of a partition follow each other without a gap. One may hold no result: its records were duplicates, or
    unreadable. ``num_deleted`` records had been deleted by the topic's retention before they were read. ``owned_since``
    tells times of owning the partition apart.
    """

    partition: int
    first_offset: int
    next_offset: int
    results: tuple[Result, ...]
    unreadable: tuple[UnreadableResult, ...]
    num_duplicates: int
    num_deleted: int
    owned_since: int

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)
