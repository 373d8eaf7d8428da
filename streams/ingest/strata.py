"""Sums by stratum and bucket of users, as results and outcomes are counted alike. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from schemas.records import StratumSums
from schemas.records.measurement import ArmName, DrawnDepth, DrawnUpgrade
from streams.ingest.bounds import MAX_COUNT, OTHER, largest

# As many segments as traffic is told apart by.
MAX_SEGMENTS = 64
# Told apart while a window is open, in the order of the log; the rest are other from the start.
MAX_TRACKED = 1_024
# Rows of a window, one for each stratum and bucket: a record of at most some 500 kB.
MAX_ROWS = 16_384


class Stratum(NamedTuple):
    """What a request was assigned; see ``StratumSums``."""

    segment: str
    arm: ArmName
    depth: DrawnDepth
    upgrade: DrawnUpgrade
    cohort: int
    is_aa: bool


class Segments:
    """Names of segments of one open window: those beyond the first MAX_TRACKED are ``(other)``."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def name(self, segment: str) -> str:
        """Name under which a segment is counted."""
        if segment not in self._known:
            if len(self._known) >= MAX_TRACKED:
                return OTHER
            self._known.add(segment)
        return segment


class Strata:
    """Rows of whole numbers, summed up by stratum and bucket."""

    def __init__(self, num_columns: int) -> None:
        self._num_columns = num_columns
        self._rows: dict[Stratum, dict[int, list[int]]] = {}

    def add(self, stratum: Stratum, bucket: int, row: Sequence[int]) -> None:
        """Add one row; its numbers in the order of the columns."""
        buckets = self._rows.setdefault(stratum, {})
        held = buckets.get(bucket)
        if held is None:
            buckets[bucket] = list(row)
        else:
            for column, number in enumerate(row):
                held[column] += number

    def sizes(self) -> Counter[str]:
        """Rows by segment: those that add most to a record are the most telling too."""
        sizes: Counter[str] = Counter()
        for stratum, buckets in self._rows.items():
            sizes[stratum.segment] += len(buckets)
        return sizes

    def sums(self, kept: frozenset[str]) -> list[StratumSums]:
        """Every stratum in order, segments that are not kept as ``(other)``."""
        merged = Strata(self._num_columns)
        for stratum, buckets in self._rows.items():
            name = stratum.segment if stratum.segment in kept else OTHER
            for bucket, row in buckets.items():
                merged.add(stratum._replace(segment=name), bucket, row)
        return [_stratum_sums(stratum, buckets) for stratum, buckets in sorted(merged._rows.items())]


def kept_segments(names: Iterable[str], sizes: Counter[str]) -> tuple[frozenset[str], bool]:
    """Segments that a window tells apart, and whether rows had to be saved beyond the usual bound."""
    totals = {name: sizes[name] for name in names}
    limit = MAX_SEGMENTS
    kept, rest = largest(totals, limit)
    # What stands together has at most as many rows as apart.
    while len(kept) > 1 and sum(totals[name] for name in kept) > MAX_ROWS:
        limit //= 2
        kept, rest = largest(totals, limit)
    return frozenset(kept), bool(rest) and limit < MAX_SEGMENTS


def _stratum_sums(stratum: Stratum, buckets: dict[int, list[int]]) -> StratumSums:
    order = sorted(buckets)
    return StratumSums(
        segment=stratum.segment,
        arm=stratum.arm,
        depth=stratum.depth,
        upgrade=stratum.upgrade,
        cohort=stratum.cohort,
        is_aa=stratum.is_aa,
        buckets=order,
        sums=[_bounded(number) for bucket in order for number in buckets[bucket]],
    )


def _bounded(number: int) -> int:
    return max(-MAX_COUNT, min(number, MAX_COUNT))
