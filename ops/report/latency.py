"""Latency of requests by arm, and by whether capacity was being taken back. Pure.

Windows of results come in beside those of capacity, not in step with them. What a window met is held until the
capacity windows after it are there, so that it is known whether a reclaim followed; little is held, however long the
range is.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ops.report.model import CdfPoint, Latency, Phase, PhaseCounts
from schemas.histogram import ExponentialHistogram
from schemas.records import HistogramFields
from schemas.records.measurement import ArmName
from streams.control.facts import histogram_of

PHASES: Final[tuple[Phase, ...]] = ("before", "during", "other")
# Windows before a reclaim that it is compared with, and after its windows that still belong to it.
NUM_BEFORE: Final = 5
NUM_AFTER: Final = 2
# Windows of one cell that wait for its capacity windows at most.
_MAX_HELD: Final = 256
_MAX_POINTS: Final = 80
# Arms that got base work alone, and those that could get more.
WITHOUT: Final[tuple[ArmName, ...]] = ("holdout", "none")
WITH: Final[tuple[ArmName, ...]] = ("rma", "sbm", "both")

Histograms = defaultdict[tuple[ArmName, Phase], ExponentialHistogram]


@dataclass(kw_only=True)
class _Met:
    """What one window met."""

    arms: defaultdict[ArmName, ExponentialHistogram] = field(default_factory=lambda: defaultdict(ExponentialHistogram))
    counts: Counter[str] = field(default_factory=Counter)


class CellPhases:
    """One cell's windows by phase; adds to sums that all cells share."""

    def __init__(self, histograms: Histograms, counts: dict[Phase, Counter[str]]) -> None:
        self._histograms = histograms
        self._counts = counts
        self._held: defaultdict[int, _Met] = defaultdict(_Met)
        # Runs of windows in which something was taken, in order: firsts and lasts.
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._newest: int | None = None

    def note_capacity(self, window_index: int, *, is_taken: bool) -> None:
        """A capacity window is there; they come in order."""
        if is_taken:
            if self._lasts and window_index <= self._lasts[-1] + 1:
                self._lasts[-1] = window_index
            else:
                self._firsts.append(window_index)
                self._lasts.append(window_index)
        self._newest = window_index
        for held in sorted(index for index in self._held if index + NUM_BEFORE <= window_index):
            self._settle(held)

    def note_arm(self, window_index: int, arm: ArmName, latency: HistogramFields) -> None:
        """Requests of one arm; a histogram that contradicts itself is passed over."""
        try:
            self._held[window_index].arms[arm].add(histogram_of(latency))
        except ValueError:
            return
        self._bound()

    def note_counts(self, window_index: int, counts: Mapping[str, int]) -> None:
        """What routers counted in the window."""
        self._held[window_index].counts.update(counts)
        self._bound()

    def settle_all(self) -> None:
        """Nothing more comes."""
        for index in sorted(self._held):
            self._settle(index)

    def phase(self, window_index: int) -> Phase:
        """Phase of a window, as far as capacity windows say."""
        # The first run that ends late enough to matter.
        run = bisect_left(self._lasts, window_index - NUM_AFTER)
        if run < len(self._firsts) and self._firsts[run] <= window_index:
            return "during"
        following = bisect_left(self._firsts, window_index + 1)
        if following < len(self._firsts) and self._firsts[following] - window_index <= NUM_BEFORE:
            return "before"
        return "other"

    def _bound(self) -> None:
        while len(self._held) > _MAX_HELD:
            self._settle(min(self._held))

    def _settle(self, window_index: int) -> None:
        met, phase = self._held.pop(window_index), self.phase(window_index)
        for arm, histogram in sorted(met.arms.items()):
            self._histograms[arm, phase].add(histogram)
        self._counts[phase].update(met.counts)


def latencies(histograms: Histograms) -> list[Latency]:
    """Of each arm, and of those with and without optional work, in all and by phase; none without requests."""
    found = {arm for arm, _ in histograms}
    groups: list[tuple[str, tuple[ArmName, ...]]] = [("without", WITHOUT), ("with", WITH)]
    groups += [(arm, (arm,)) for arm in (*WITHOUT, *WITH) if arm in found]
    rows = []
    for group, arms in groups:
        phased = {phase: _merged(histograms, arms, [phase]) for phase in PHASES}
        rows.append(_latency(group, "all", _merged(histograms, arms, PHASES)))
        rows += [_latency(group, phase, histogram) for phase, histogram in phased.items()]
    return [row for row in rows if row is not None]


def phase_counts(counts: Mapping[Phase, Counter[str]]) -> list[PhaseCounts]:
    """Base work by phase, without phases that no window was of."""
    return [
        PhaseCounts(
            phase=phase,
            num_windows=counts[phase]["num_windows"],
            num_requests=counts[phase]["num_requests"],
            num_base_late=counts[phase]["num_base_late"],
            num_errors=counts[phase]["num_errors"],
        )
        for phase in PHASES
        if counts[phase]["num_windows"]
    ]


def _merged(histograms: Histograms, arms: Iterable[ArmName], phases: Iterable[Phase]) -> ExponentialHistogram:
    phases = tuple(phases)
    merged = ExponentialHistogram()
    for arm in arms:
        for phase in phases:
            if (arm, phase) in histograms:
                merged.add(histograms[arm, phase])
    return merged


def _latency(group: str, phase: Phase | str, histogram: ExponentialHistogram) -> Latency | None:
    quantiles = [histogram.quantile(q) for q in (0.5, 0.9, 0.95, 0.99)]
    p50, p90, p95, p99 = (round(value or 0.0, 3) for value in quantiles)
    if histogram.count == 0:
        return None
    return Latency(
        group=group,
        phase=phase,  # type: ignore[arg-type]
        num_requests=histogram.count,
        p50_ms=p50,
        p90_ms=p90,
        p95_ms=p95,
        p99_ms=p99,
        mean_ms=round(histogram.sum_micro / 1e6 / histogram.count, 3),
        cdf=cdf(histogram),
    )


def cdf(histogram: ExponentialHistogram) -> list[CdfPoint]:
    """Share of values up to the upper edge of each bucket, thinned to a few dozen points."""
    packed = histogram.to_fields()
    counts = [int(count) for count in memoryview(packed["counts"]).cast("q")]
    base_log2 = 2.0 ** -packed["scale"]
    points: list[CdfPoint] = []
    below, step = packed["zero_count"], 1.0 / _MAX_POINTS
    for place, count in enumerate(counts):
        below += count
        share = below / packed["count"]
        is_last = place == len(counts) - 1
        # The tail is what the plot is for: there every bucket that holds anything is told.
        if count and (is_last or not points or share - points[-1].share >= step or share > 0.95):
            edge_ms = 2.0 ** ((packed["offset"] + place + 1) * base_log2)
            points.append(CdfPoint(at_ms=round(edge_ms, 3), share=share))
    return points
