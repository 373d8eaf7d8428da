"""Sums by stratum and bucket of users, as results and outcomes are counted alike. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from schemas.records import StratumSums
from schemas.records.measurement import ArmName, DrawnDepth, DrawnUpgrade
from schemas.segments import MAX_SEGMENTS
from streams.ingest.bounds import MAX_COUNT, OTHER, largest

# Told apart while a window is open, in the order of the log; the rest are other from the start.
MAX_TRACKED: Final = 1_024
# Numbers of a window, a row of them for each stratum and bucket: 16,384 rows of results, 8,738 of outcomes. At six
# bytes each, as sums of hundreds of thousands in micro-units have, a record of 800 kB: brokers by default take 1 MB.
MAX_NUMBERS: Final = 131_072
# How many cohorts are told as one before segments are: an effect then waits longer, and is known all the same.
MAX_COHORTS_TOGETHER: Final = 16
MERGED_COHORTS: Final = "cohorts of intake are told together: a window has room for so many rows"
MERGED_SEGMENTS: Final = "segments and cohorts of intake are told together: a window has room for so many rows"


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


class Fitted(NamedTuple):
    """What a record has room for: the segments that are told apart, every stratum in order, and what one must know."""

    segments: frozenset[str]
    strata: list[StratumSums]
    note: str


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

    def fitted(self, segments: Iterable[str] = ()) -> Fitted:
        """Everything, told so coarsely that a record has room for it; ``segments`` are counted elsewhere too.

        At most MAX_SEGMENTS segments are told apart, the others are ``(other)``. As long as there are too many numbers,
        twice as many cohorts are told together, as the newest of them, up to MAX_COHORTS_TOGETHER; then half as many
        segments, those of the fewest rows go first; at last all cohorts. What is left then always has room.
        """
        sizes = Counter(dict.fromkeys(segments, 0))
        for stratum, buckets in self._rows.items():
            sizes[stratum.segment] += len(buckets)
        limit, together, note = MAX_SEGMENTS, 1, ""
        while True:
            kept = frozenset(largest(sizes, limit)[0])
            newest = self._newest(together)
            told = self._told(kept, {cohort: newest[cohort // together] for cohort in self._cohorts()})
            if told._num_numbers() <= MAX_NUMBERS or (not kept and len(newest) == 1):
                return Fitted(kept, [_stratum_sums(*each) for each in sorted(told._rows.items())], note)
            if kept and together >= MAX_COHORTS_TOGETHER:
                limit, note = min(limit, len(kept)) // 2, MERGED_SEGMENTS
            else:
                together, note = together * 2, note or MERGED_COHORTS

    def _cohorts(self) -> set[int]:
        return {stratum.cohort for stratum in self._rows}

    def _newest(self, together: int) -> dict[int, int]:
        """The newest cohort that there is of each group of so many."""
        return {cohort // together: cohort for cohort in sorted(self._cohorts())}

    def _told(self, kept: frozenset[str], cohort_names: Mapping[int, int]) -> "Strata":
        told = Strata(self._num_columns)
        for stratum, buckets in self._rows.items():
            segment = stratum.segment if stratum.segment in kept else OTHER
            name = stratum._replace(segment=segment, cohort=cohort_names[stratum.cohort])
            for bucket, row in buckets.items():
                told.add(name, bucket, row)
        return told

    def _num_numbers(self) -> int:
        return self._num_columns * sum(map(len, self._rows.values()))


def _stratum_sums(stratum: Stratum, buckets: Mapping[int, Sequence[int]]) -> StratumSums:
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
