"""What hosts offer, as rows of whole numbers that are summed up by column. Pure.

A row is one offer of one host: the group it belongs to (all its words, as a number), whether it is the first of its
accelerator on that host, and its quantities. A host's rows are packed into bytes: one small object a host, which two
heartbeats that say the same compare by.

Shape legend: M rows of several hosts, C columns of a row.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.records import Offer
from streams.ingest.bounds import MICRO, UNKNOWN

# Columns of a row; units and cores times 10^6.
GROUP, IS_FIRST, UNITS, CPU_CORES, MEMORY_BYTES = range(5)
NUM_COLUMNS = 5
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
        host_M = np.repeat(np.arange(len(num_offers_by_host)), num_offers_by_host)
        accelerator_M = np.array(self._accelerator_by_group, dtype=np.int64)[groups_M]
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


def unpack(packed: Iterable[bytes]) -> NDArray[np.int64]:
    """The rows of several hosts, one host after another, int64 [M, C]."""
    return np.frombuffer(b"".join(packed), dtype=np.int64).reshape(-1, NUM_COLUMNS)


def _micro(quantities: Sequence[float]) -> NDArray[np.int64]:
    """As `bounds.micro`: the same product, and the same rounding of halves to even."""
    return np.rint(np.array(quantities, dtype=np.float64) * MICRO).astype(np.int64)
