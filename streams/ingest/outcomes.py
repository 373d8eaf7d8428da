"""Outcomes of a cell: what users did with what they were shown, summed up by what their request was assigned. Pure."""

from typing import Any, Final, Literal

from msgspec import Struct

from schemas.attribution import MICRO, Attribution, parse_token
from schemas.attribution_keys import AttributionKeys
from schemas.buckets import bucket_of
from schemas.errors import RecordError
from schemas.framing import Decoder
from schemas.records import CellLimits, OutcomesWindow, RankingOutcome
from schemas.records.measurement import OUTCOME_SUMS
from schemas.settings import MeasurementSettings, TimeSettings
from schemas.topics import RANKING_OUTCOMES
from streams.ingest.aggregate import Closed
from streams.ingest.seen_before import ByName, SeenBefore
from streams.ingest.strata import Segments, Strata, Stratum

_PLACES: Final = {"view": 0, "click": 1, "conversion": 2}
_NO_MEASURES: Final = (0, 0, 0, 0, 0)


class AttributedOutcome(Struct, frozen=True):
    """An outcome whose token was believed, and what the token says."""

    outcome: RankingOutcome
    attribution: Any

    @property
    def cell(self) -> str:
        return self.outcome.cell

    @property
    def user_id(self) -> str:
        return self.outcome.user_id


class OutcomeDecoder:
    """Reads outcomes with their tokens."""

    def __init__(self, decoder: Decoder, keys: AttributionKeys) -> None:
        self._decoder = decoder
        self._keys = keys

    def decode(self, value: bytes | None) -> Struct:
        """Outcome with its attribution; raises RecordError, also for a token that is not believed."""
        record = self._decoder.decode(value)
        if not isinstance(record, RankingOutcome):
            return record
        try:
            attribution = parse_token(
                record.attribution_token, request_id=record.request_id, user_id=record.user_id, keys=self._keys
            )
        except ValueError as error:
            raise RecordError("invalid_field", f"the token {error}", field="attribution_token") from error
        return AttributedOutcome(record, attribution)


class OutcomesKind:
    """Outcomes of ``ranking.outcomes``, in the window of their arrival; each outcome once."""

    name: Literal["outcomes"] = "outcomes"
    topic = RANKING_OUTCOMES
    is_of_users = True

    def __init__(self, measurement: MeasurementSettings, keys: AttributionKeys) -> None:
        self._measurement = measurement
        self._keys = keys
        self.settings = measurement.tag

    def decoder(self) -> OutcomeDecoder:
        return OutcomeDecoder(Decoder(self.topic.record_types), self._keys)

    def believe(self, record: AttributedOutcome, time: TimeSettings) -> None:
        said: Attribution = record.attribution
        if said.cell != record.cell:
            raise RecordError("invalid_field", f"its token is of {said.cell}, it says {record.cell}", field="cell")
        # Their clocks may differ by as much as is allowed to any other.
        early_ms = said.intake_ms - record.outcome.exposure_time_ms
        if early_ms > time.skew_ms:
            raise RecordError(
                "invalid_field", f"{early_ms} ms before its request was taken in", field="exposure_time_ms"
            )

    def event_ms(self, record: AttributedOutcome, append_ms: int) -> int:
        return append_ms

    def times(self, record: AttributedOutcome) -> tuple[tuple[str, int], ...]:
        outcome = record.outcome
        return ("event_time_ms", outcome.event_time_ms), ("exposure_time_ms", outcome.exposure_time_ms)

    def seen_before(self, time: TimeSettings) -> SeenBefore:
        return ByName(self._measurement.repeat_ms, _outcome_id)

    def horizon_ms(self, time: TimeSettings) -> int:
        return self._measurement.repeat_ms + time.skew_ms

    def aggregate(self, time: TimeSettings) -> "OutcomesCell":
        return OutcomesCell(self._measurement)


class _Open:
    """Sums of one open window."""

    def __init__(self) -> None:
        self.strata = Strata(len(OUTCOME_SUMS))
        self.segments = Segments()
        self.num_outcomes = 0
        self.num_duplicates = 0
        self.num_late = 0
        self.num_expired = 0


class OutcomesCell:
    """Windows of one cell's outcomes. One that happened after its attribution window had closed is counted alone."""

    def __init__(self, measurement: MeasurementSettings) -> None:
        self._measurement = measurement
        self._open: dict[int, _Open] = {}

    def accept(self, record: AttributedOutcome, *, window: int, append_ms: int, late: bool) -> None:
        sums = self._opened(window)
        outcome, said = record.outcome, record.attribution
        sums.num_outcomes += 1
        sums.num_late += late
        if outcome.event_time_ms - said.intake_ms > self._measurement.attribution_ms:
            sums.num_expired += 1
            return
        stratum = Stratum(
            sums.segments.name(said.segment),
            said.arm,
            said.depth,
            said.upgrade,
            said.intake_ms // self._measurement.cohort_ms,
            said.is_aa,
        )
        value_micro = round(outcome.value * MICRO)
        cap_micro = self._measurement.value_cap_micro
        counts = [0, 0, 0]
        counts[_PLACES[outcome.kind]] = 1
        measures = (*counts, value_micro, max(-cap_micro, min(value_micro, cap_micro)))
        row = (
            *measures,
            *(_weighted(measures, said.depth_micro) if said.depth else _NO_MEASURES),
            *(_weighted(measures, said.upgrade_micro) if said.upgrade else _NO_MEASURES),
        )
        sums.strata.add(stratum, bucket_of(outcome.user_id), row)

    def count_duplicate(self, window: int) -> None:
        self._opened(window).num_duplicates += 1

    def close(self, window: int, limits: CellLimits) -> Closed | None:
        sums = self._open.pop(window, None)
        if sums is None:
            return None
        _, told, note = sums.strata.fitted()
        outcomes = OutcomesWindow(
            strata=told,
            num_outcomes=sums.num_outcomes,
            num_duplicates=sums.num_duplicates,
            num_late=sums.num_late,
            num_expired=sums.num_expired,
            cohort_ms=self._measurement.cohort_ms,
            attribution_ms=self._measurement.attribution_ms,
            value_cap_micro=self._measurement.value_cap_micro,
        )
        return Closed(outcomes=outcomes, note=note)

    def _opened(self, window: int) -> _Open:
        sums = self._open.get(window)
        if sums is None:
            sums = self._open[window] = _Open()
        return sums


def _weighted(measures: tuple[int, ...], propensity_micro: int) -> tuple[int, ...]:
    """Measures over the probability of what was drawn: counts in millionths, money in micro-units."""
    weight = MICRO / propensity_micro
    return *(round(count * weight * MICRO) for count in measures[:3]), *(
        round(micro * weight) for micro in measures[3:]
    )


def _outcome_id(record: AttributedOutcome) -> str:
    return record.outcome.outcome_id
