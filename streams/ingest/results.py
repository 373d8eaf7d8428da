"""Results of a cell: what requests were assigned and what they met, summed up in each window. Pure."""

from collections import Counter
from typing import Final, Literal

from schemas.buckets import bucket_of
from schemas.drawn import drawn_depth, drawn_upgrade, in_millionths, upgrade_propensity
from schemas.errors import RecordError
from schemas.framing import Decoder
from schemas.histogram import ExponentialHistogram
from schemas.records import ArmGuard, CellLimits, HistogramFields, RankingResult, ResultsWindow, VersionTally
from schemas.records.measurement import ARMS, REQUEST_SUMS, ArmName
from schemas.segments import segment_of
from schemas.settings import MeasurementSettings, TimeSettings
from schemas.topics import RANKING_RESULTS
from streams.ingest.aggregate import Closed
from streams.ingest.bounds import MICRO, OTHER, bounded, largest
from streams.ingest.seen_before import ByName, SeenBefore
from streams.ingest.strata import Segments, Strata, Stratum

# Model versions of a window; a cell has one of each model, and another while it is replaced.
MAX_VERSIONS: Final = 32
_US_PER_MS: Final = 1_000.0
# As little as an attribution token can say.
MIN_PROPENSITY: Final = 1.0 / MICRO
# Of doses that come to the same number of candidates the probabilities are summed up as float.
_ROUNDING: Final = 1e-9


class ResultsKind:
    """Results of ``ranking.results``, in the window of their request's intake; each request once."""

    name: Literal["results"] = "results"
    topic = RANKING_RESULTS
    is_of_users = True

    def __init__(self, measurement: MeasurementSettings) -> None:
        self._measurement = measurement
        self.settings = measurement.tag

    def decoder(self) -> Decoder:
        return Decoder(self.topic.record_types)

    def believe(self, record: RankingResult, time: TimeSettings) -> None:
        if record.arm not in ("", *ARMS):
            raise RecordError("invalid_field", f"{record.arm!r} is no arm", field="arm")
        if record.dose > record.full_dose > 0:
            raise RecordError("invalid_field", f"{record.dose} of {record.full_dose} extras", field="dose")
        upgrade = upgrade_propensity(is_assigned=record.upgrade_assigned, probability=record.upgrade_propensity)
        for field, chance, is_drawn in (
            ("arm_propensity", record.arm_propensity, record.arm_propensity > 0.0),
            ("dose_propensity", record.dose_propensity, record.full_dose > 0),
            ("upgrade_propensity", upgrade, record.upgrade_assigned or record.upgrade_propensity < 1.0),
        ):
            # One such request would outweigh all others.
            if is_drawn and chance < MIN_PROPENSITY:
                raise RecordError("invalid_field", f"what was drawn had a chance of {chance:g}", field=field)

    def event_ms(self, record: RankingResult, append_ms: int) -> int:
        return record.intake_ms

    def times(self, record: RankingResult) -> tuple[tuple[str, int], ...]:
        return ("intake_ms", record.intake_ms), ("completed_ms", record.completed_ms)

    def seen_before(self, time: TimeSettings) -> SeenBefore:
        return ByName(self._measurement.repeat_ms, _request_id)

    def horizon_ms(self, time: TimeSettings) -> int:
        return self._measurement.repeat_ms + time.skew_ms

    def aggregate(self, time: TimeSettings) -> "ResultsCell":
        return ResultsCell(cohort_ms=self._measurement.cohort_ms)


class _Guard:
    """Sums of one segment and arm."""

    def __init__(self) -> None:
        self.latency = ExponentialHistogram()
        self.counts: Counter[str] = Counter()

    def add(self, result: RankingResult) -> None:
        self.latency.record(result.latency_us / _US_PER_MS)
        counts = self.counts
        counts["num_requests"] += 1
        counts["num_late"] += result.late
        counts["num_degraded"] += result.degraded
        counts["num_errors"] += result.status == "error"
        counts["num_compared"] += result.flipped is not None
        counts["num_flipped"] += result.flipped is True
        for item in result.optional:
            counts["num_items"] += 1
            if item.state == "admitted":
                counts["num_items_admitted"] += 1
                counts["value_admitted_micro"] += item.value_micro
            elif item.state == "shed":
                counts["num_items_shed"] += 1
                counts["value_shed_micro"] += item.value_micro

    def merge(self, other: "_Guard") -> None:
        self.latency.add(other.latency)
        self.counts.update(other.counts)


class _Open:
    """Sums of one open window."""

    def __init__(self) -> None:
        self.strata = Strata(len(REQUEST_SUMS))
        self.segments = Segments()
        self.guards: dict[tuple[str, ArmName], _Guard] = {}
        self.versions: Counter[tuple[str, str]] = Counter()
        self.num_results = 0
        self.num_duplicates = 0
        self.num_late = 0


class ResultsCell:
    """Windows of one cell's results. A caller's mistake is counted and belongs to no stratum."""

    def __init__(self, *, cohort_ms: int) -> None:
        self._cohort_ms = cohort_ms
        self._open: dict[int, _Open] = {}

    def accept(self, record: RankingResult, *, window: int, append_ms: int, late: bool) -> None:
        sums = self._opened(window)
        sums.num_results += 1
        sums.num_late += late
        if len(record.routes) == len(record.model_versions):
            sums.versions.update(zip(record.routes, record.model_versions, strict=True))
        arm = next((arm for arm in ARMS if arm == record.arm), None)
        if arm is None:
            return
        segment = sums.segments.name(record.segment or segment_of(record.advertiser_segment))
        sums.guards.setdefault((segment, arm), _Guard()).add(record)
        if record.status == "ok":
            stratum, row = self._counted(record, segment, arm)
            sums.strata.add(stratum, bucket_of(record.user_id), row)

    def count_duplicate(self, window: int) -> None:
        self._opened(window).num_duplicates += 1

    def close(self, window: int, limits: CellLimits) -> Closed | None:
        sums = self._open.pop(window, None)
        if sums is None:
            return None
        kept, told, note = sums.strata.fitted(segment for segment, _ in sums.guards)
        named, _ = largest({f"{route}\0{name}": num for (route, name), num in sums.versions.items()}, MAX_VERSIONS)
        results = ResultsWindow(
            strata=told,
            guards=_guards(sums.guards, kept),
            versions=[
                VersionTally(route=route, model_version=version, num_results=sums.versions[route, version])
                for route, _, version in (name.partition("\0") for name in named)
            ],
            num_results=sums.num_results,
            num_duplicates=sums.num_duplicates,
            num_late=sums.num_late,
            cohort_ms=self._cohort_ms,
        )
        return Closed(results=results, note=note)

    def _counted(self, record: RankingResult, segment: str, arm: ArmName) -> tuple[Stratum, tuple[int, ...]]:
        propensity = record.dose_propensity if record.dose_propensity < 1.0 - _ROUNDING else 1.0
        depth = drawn_depth(record.dose, full_dose=record.full_dose, propensity=propensity)
        is_assigned, probability = record.upgrade_assigned, record.upgrade_propensity
        upgrade = drawn_upgrade(is_assigned=is_assigned, probability=probability)
        upgrade_chance = upgrade_propensity(is_assigned=is_assigned, probability=probability)
        stratum = Stratum(segment, arm, depth, upgrade, record.intake_ms // self._cohort_ms, record.is_aa)
        admitted = [item for item in record.optional if item.state == "admitted"]
        return stratum, (
            1,
            _weight_micro(record.arm_propensity),
            _weight_micro(propensity) if depth else 0,
            _weight_micro(upgrade_chance) if upgrade else 0,
            record.dose,
            sum(item.units for item in admitted if item.lever == "rma"),
            int(record.upgrade_assigned),
            int(any(item.lever == "sbm" for item in admitted)),
        )

    def _opened(self, window: int) -> _Open:
        sums = self._open.get(window)
        if sums is None:
            sums = self._open[window] = _Open()
        return sums


def _guards(guards: dict[tuple[str, ArmName], _Guard], kept: frozenset[str]) -> list[ArmGuard]:
    merged: dict[tuple[str, ArmName], _Guard] = {}
    for (segment, arm), guard in guards.items():
        merged.setdefault((segment if segment in kept else OTHER, arm), _Guard()).merge(guard)
    return [
        ArmGuard(
            segment=segment,
            arm=arm,
            latency=HistogramFields(**guard.latency.to_fields()),
            **{name: bounded(guard.counts[name]) for name in _GUARD_COUNTS},
        )
        for (segment, arm), guard in sorted(merged.items())
    ]


_GUARD_COUNTS: Final = tuple(name for name in ArmGuard.__struct_fields__ if name.startswith(("num_", "value_")))


def _weight_micro(propensity: float) -> int:
    """Weight of what was drawn, from the same millionths as those in the token, so that outcomes have that weight."""
    return round(MICRO * MICRO / in_millionths(propensity)) if propensity > 0.0 else 0


def _request_id(record: RankingResult) -> str:
    return record.request_id
