"""From the records of measured uplift to the rows of a report, and to its main result. Pure."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, Literal

from ops.report.capacity import MS_PER_H
from ops.report.model import SegmentGains
from schemas.records import Effect, SegmentUplift
from schemas.records.uplift import Contrast, Measure

WHOLE_CELL: Final = "(all)"
Origin = Literal["segment.uplift", "control.windows"]


class LatestUplift:
    """The last record of each segment of each cell whose window ends by ``until_ms``."""

    def __init__(self, *, until_ms: int | None, cells: frozenset[str] = frozenset()) -> None:
        self._until_ms = until_ms
        self._cells = cells
        self._latest: dict[tuple[str, str], SegmentUplift] = {}
        self._num_after = 0

    def add(self, record: SegmentUplift) -> None:
        """Take in a record; of two of one window the later one counts."""
        if self._cells and record.cell not in self._cells:
            return
        if self._until_ms is not None and record.window_end_ms > self._until_ms:
            self._num_after += 1
            return
        key = record.cell, record.segment
        held = self._latest.get(key)
        if held is None or record.window_index >= held.window_index:
            self._latest[key] = record

    def missing(self) -> str:
        """Why there are no records, as far as it is known; empty where nothing more is to be said."""
        if self._latest or not self._num_after:
            return ""
        return "segment.uplift keeps the newest record of a segment alone, and those are of after the range's end"

    def cells(self) -> frozenset[str]:
        """Cells of which a record is there."""
        return frozenset(cell for cell, _ in self._latest)

    def records(self) -> list[SegmentUplift]:
        """By cell and segment, the whole cell first."""
        return sorted(
            self._latest.values(), key=lambda record: (record.cell, record.segment != WHOLE_CELL, record.segment)
        )


def segment_gains(records: Iterable[SegmentUplift], *, origin: Origin) -> list[SegmentGains]:
    """Rows of the report."""
    return [
        SegmentGains(
            cell=record.cell,
            segment=record.segment,
            origin=origin,
            since=_time(record.since_ms),
            until=_time(record.window_end_ms),
            hours=max(0, record.window_end_ms - record.since_ms) / MS_PER_H,
            baseline_version=record.baseline_version,
            powerful_version=record.powerful_version,
            is_aa=record.is_aa,
            num_requests=record.num_requests,
            pending_requests=record.pending_requests,
            num_late_outcomes=record.num_late_outcomes,
            request_share=record.request_share,
            optional_share=record.optional_share,
            effects=list(record.effects),
            sample_ratio=record.sample_ratio,
            guardrails=list(record.guardrails),
        )
        for record in records
    ]


def effect_of(gains: SegmentGains, contrast: Contrast, measure: Measure) -> Effect | None:
    """One effect; None where it was not measured, or not surely enough for bounds."""
    for effect in gains.effects:
        if (effect.contrast, effect.measure) == (contrast, measure):
            is_bounded = None not in (effect.effect, effect.lower, effect.upper)
            return effect if is_bounded else None
    return None


def whole_cells(gains: Sequence[SegmentGains]) -> list[SegmentGains]:
    """The rows that are of whole cells."""
    return [row for row in gains if row.segment == WHOLE_CELL]


def segments(gains: Sequence[SegmentGains]) -> list[SegmentGains]:
    """The rows that are of a segment."""
    return [row for row in gains if row.segment != WHOLE_CELL]


def _time(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1e3, UTC)
