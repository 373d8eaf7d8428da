"""What hosts offer, as rows of whole numbers that are summed up by column. Pure.

A row is one offer of one host: the group it belongs to (all its words, as a number), whether it is the first of its
accelerator on that host, its quantities, and since when it is offered. A host's rows are packed into bytes: one small
object a host, which two heartbeats that say the same compare by.

Shape legend: M rows of several hosts, C columns of a row.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.records import Offer
from streams.ingest.bounds import MICRO, UNKNOWN

# Columns of a row; units and cores times 10^6, times in milliseconds.
GROUP, IS_FIRST, UNITS, CPU_CORES, MEMORY_BYTES, SINCE = range(6)
NUM_COLUMNS = 6
# Since when an offer stands that does not say so: a time that no window reaches (the year 2248), so that its age is 0
# at every window's end. To count from the first record of it that was seen would be to remember more than the horizon.
NOT_SAID_MS = 2**43
_ROW_BYTES = NUM_COLUMNS * np.dtype(np.int64).itemsize


class Group(NamedTuple):
    """Everything that an offer says in words; offers of one group differ in their quantities alone."""

    accelerator: str
    cause: str
    unusable: str | None
    provider: str
    noticed: bool


class Groups:
    """Numbers for groups, given in the order of appearance."""

    def __init__(self, groups: Iterable[Group] = ()) -> None:
        self._groups: list[Group] = []
        self._numbers: dict[tuple[object, ...], int] = {}
        self._accelerators: dict[str, int] = {}
        self._accelerator_by_group: list[int] = []
        for group in groups:
            self._number(group)

    def __len__(self) -> int:
        return len(self._groups)

    def __getitem__(self, number: int) -> Group:
        return self._groups[number]

    @property
    def accelerators(self) -> list[str]:
        """Names of the accelerators, by their number."""
        return list(self._accelerators)

    def accelerator_of(self, group_M: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of the accelerator of each row, from its group."""
        return np.array(self._accelerator_by_group, dtype=np.int64)[group_M]

    def is_usable(self, group_M: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each row can be used now, from its group."""
        return np.array([group.unusable is None for group in self._groups], dtype=np.bool_)[group_M]

    def pack(self, offers_by_host: Sequence[Sequence[Offer]]) -> list[bytes]:
        """The rows of each of several hosts, in the order of its offers."""
        num_offers = [len(offers) for offers in offers_by_host]
        packed = self._rows(list(chain.from_iterable(offers_by_host)), num_offers).tobytes()
        ends = (np.cumsum(num_offers, dtype=np.int64) * _ROW_BYTES).tolist()
        return [packed[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def _rows(self, offers: Sequence[Offer], num_offers_by_host: Sequence[int]) -> NDArray[np.int64]:
        rows_MC = np.zeros((len(offers), NUM_COLUMNS), dtype=np.int64)
        if not offers:
            return rows_MC
        groups_M = np.array(self._numbers_of(offers), dtype=np.int64)
        rows_MC[:, GROUP] = groups_M
        rows_MC[:, UNITS] = _micro([offer.units for offer in offers])
        rows_MC[:, CPU_CORES] = _micro([offer.cpu_cores for offer in offers])
        rows_MC[:, MEMORY_BYTES] = [offer.memory_bytes for offer in offers]
        since_M = np.array([offer.offered_since_ms for offer in offers], dtype=np.int64)
        rows_MC[:, SINCE] = np.where(since_M == 0, NOT_SAID_MS, np.minimum(since_M, NOT_SAID_MS))
        host_M = np.repeat(np.arange(len(num_offers_by_host)), num_offers_by_host)
        accelerator_M = self.accelerator_of(groups_M)
        _, first = np.unique(host_M * len(self._accelerators) + accelerator_M, return_index=True)
        rows_MC[first, IS_FIRST] = 1
        return rows_MC

    def _numbers_of(self, offers: Sequence[Offer]) -> list[int]:
        words = [
            (
                offer.accelerator,
                offer.idle_cause,
                offer.unusable,
                offer.provider or UNKNOWN,
                offer.reclaim_at_ms is not None,
            )
            for offer in offers
        ]
        numbers = list(map(self._numbers.get, words))
        return [
            self._number(Group(*said)) if number is None else number
            for said, number in zip(words, numbers, strict=True)
        ]

    def _number(self, group: Group) -> int:
        number = self._numbers.get(group)
        if number is None:
            number = self._numbers[group] = len(self._groups)
            self._groups.append(group)
            self._accelerator_by_group.append(self._accelerators.setdefault(group.accelerator, len(self._accelerators)))
        return number


def num_rows(packed: bytes) -> int:
    """How many offers one host's rows are."""
    return len(packed) // _ROW_BYTES


def unpack(packed: Iterable[bytes]) -> NDArray[np.int64]:
    """The rows of several hosts, one host after another, int64 [M, C]."""
    return np.frombuffer(b"".join(packed), dtype=np.int64).reshape(-1, NUM_COLUMNS)


def _micro(quantities: Sequence[float]) -> NDArray[np.int64]:
    """As `bounds.micro`: the same product, and the same rounding of halves to even."""
    return np.rint(np.array(quantities, dtype=np.float64) * MICRO).astype(np.int64)
