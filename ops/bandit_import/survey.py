"""What a log is like before any of it is imported: rows, refusals, order, zones, what its weights are worth. Pure."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from msgspec import Struct

from ops.bandit_import.files import ARM_OF, Line, LogFile, Policy
from ops.bandit_import.records import drawn_micro
from ranking.models.training.open_bandit_rows import BadRow, BanditRow
from schemas.attribution import MICRO

MAX_LISTED: Final = 20


class BadLine(Struct, frozen=True, kw_only=True):
    """A line that is left out, and why."""

    file: str
    line: int
    reason: str


class FileSurvey(Struct, frozen=True, kw_only=True):
    """One file. ``num_unordered`` rows stand behind a later one, ``num_same_time`` have the time of the one before;
    both are taken. ``zones`` counts rows by the zone in which their time is written.
    """

    file: str
    policy: str
    arm: str
    sha256: str
    num_rows: int
    num_bad: int
    num_unordered: int
    num_same_time: int
    zones: dict[str, int]
    first: str
    last: str


class PolicySurvey(Struct, frozen=True, kw_only=True):
    """The rows of one policy, and its weights 1 / propensity: as logged, and as they are counted once small
    propensities are raised to the floor.

    ``largest_share`` is the share of all weight that one row carries, ``effective_sample_size`` what the rows are worth
    (Kish): (sum of w)^2 / sum of w^2. Where propensities are right the mean weight is about the number of items that
    have a chance, at most ``num_items``. ``propensity_sums`` are, by position, sums over items of their mean
    propensity: 1 where one distribution was logged whole.
    """

    policy: str
    arm: str
    num_rows: int
    num_clicks: int
    num_items: int
    min_propensity: float
    max_propensity: float
    num_clipped: int
    mean_weight: float
    largest_share: float
    effective_sample_size: float
    counted_mean_weight: float
    counted_largest_share: float
    counted_effective_sample_size: float
    propensity_sums: dict[str, float]


class Survey(Struct, frozen=True, kw_only=True):
    """All files of a log; at most ``MAX_LISTED`` bad lines of each are listed, all are counted."""

    files: list[FileSurvey]
    policies: list[PolicySurvey]
    bad_lines: list[BadLine]
    num_rows: int
    num_bad: int


class _Weights:
    def __init__(self) -> None:
        self.total = self.squares = self.largest = 0.0

    def add(self, weight: float) -> None:
        self.total += weight
        self.squares += weight * weight
        self.largest = max(self.largest, weight)

    @property
    def share(self) -> float:
        return self.largest / self.total

    @property
    def size(self) -> float:
        return self.total * self.total / self.squares


class _File:
    def __init__(self, file: LogFile) -> None:
        self.file = file
        self.sha256 = file.sha256()
        self.counts: Counter[str] = Counter()
        self.zones: Counter[str] = Counter()
        self.first: datetime | None = None
        self.last: datetime | None = None
        self.before: datetime | None = None

    def add(self, row: BanditRow) -> None:
        before, self.before = self.before, row.time
        self.counts["num_rows"] += 1
        self.counts["num_unordered"] += before is not None and row.time < before
        self.counts["num_same_time"] += row.time == before
        self.zones[str(row.time.tzinfo)] += 1
        self.first = row.time if self.first is None else min(self.first, row.time)
        self.last = row.time if self.last is None else max(self.last, row.time)

    def survey(self) -> FileSurvey:
        return FileSurvey(
            file=self.file.name,
            policy=self.file.policy,
            arm=ARM_OF[self.file.policy],
            sha256=self.sha256,
            zones=dict(sorted(self.zones.items())),
            first=self.first.isoformat() if self.first else "",
            last=self.last.isoformat() if self.last else "",
            **{name: self.counts[name] for name in ("num_rows", "num_bad", "num_unordered", "num_same_time")},
        )


class _Policy:
    def __init__(self, policy: Policy, min_propensity: float) -> None:
        self.policy = policy
        self._floor = min_propensity
        self.num_rows = self.num_clicks = self.num_clipped = self.num_items = 0
        self.least, self.most = 1.0, 0.0
        self.logged, self.counted = _Weights(), _Weights()
        # By position and item: sum of propensities, rows.
        self.chances: defaultdict[tuple[str, int], list[float]] = defaultdict(lambda: [0.0, 0.0])

    def add(self, row: BanditRow) -> None:
        self.num_rows += 1
        self.num_clicks += row.clicked
        self.num_clipped += row.propensity < self._floor
        self.num_items = max(self.num_items, len(row.affinities))
        self.least, self.most = min(self.least, row.propensity), max(self.most, row.propensity)
        self.logged.add(1.0 / row.propensity)
        self.counted.add(MICRO / drawn_micro(row.propensity, min_propensity=self._floor))
        chance = self.chances[row.position, row.item]
        chance[0] += row.propensity
        chance[1] += 1.0

    def survey(self) -> PolicySurvey:
        sums: defaultdict[str, float] = defaultdict(float)
        for (position, _), (total, num) in sorted(self.chances.items()):
            sums[position] += total / num
        return PolicySurvey(
            policy=self.policy,
            arm=ARM_OF[self.policy],
            num_rows=self.num_rows,
            num_clicks=self.num_clicks,
            num_items=self.num_items,
            min_propensity=self.least,
            max_propensity=self.most,
            num_clipped=self.num_clipped,
            mean_weight=self.logged.total / self.num_rows,
            largest_share=self.logged.share,
            effective_sample_size=self.logged.size,
            counted_mean_weight=self.counted.total / self.num_rows,
            counted_largest_share=self.counted.share,
            counted_effective_sample_size=self.counted.size,
            propensity_sums=dict(sums),
        )


def survey(
    files: Iterable[tuple[LogFile, Iterable[Line]]], *, min_propensity: float, advance: Callable[[int], None]
) -> Survey:
    """Read a log through once; ``advance`` is told of each line."""
    found, policies, listed = [], dict[Policy, _Policy](), list[BadLine]()
    for file, lines in files:
        own = _File(file)
        for line in lines:
            advance(1)
            if isinstance(line.row, BadRow):
                own.counts["num_bad"] += 1
                if own.counts["num_bad"] <= MAX_LISTED:
                    listed.append(BadLine(file=str(file.path), line=line.number, reason=line.row.reason))
                continue
            own.add(line.row)
            policies.setdefault(file.policy, _Policy(file.policy, min_propensity)).add(line.row)
        found.append(own.survey())
    return Survey(
        files=found,
        policies=[policy.survey() for _, policy in sorted(policies.items())],
        bad_lines=listed,
        num_rows=sum(each.num_rows for each in found),
        num_bad=sum(each.num_bad for each in found),
    )
