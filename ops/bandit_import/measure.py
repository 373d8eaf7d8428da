"""From the imported results and outcomes to windows and measured uplift, by the pipeline's own processors. Pure.

The log is over: its end is told to ingest by a clock record that stands in no topic, and to control by one empty window
of each kind, so late that every cohort has matured by then. There is one tick, at that window, so one look.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from ops.bandit_import.names import MEASUREMENT, NUM_PARTITIONS, TIME, declaration
from ops.replay.said import Said
from schemas.attribution_keys import UNSIGNED
from schemas.framing import Decoder, encode
from schemas.records import ClockRecord, ControlWindow, OutcomesWindow, ResultsWindow
from schemas.topics import CONTROL_WINDOWS
from streams.control.outputs import destination
from streams.control.uplift.cohorts import GRACE_WINDOWS, matured
from streams.control.uplift.publish import uplift_records
from streams.control.uplift.state import MeasurementState
from streams.control.uplift.taking_in import take_in
from streams.ingest.aggregate import Kind
from streams.ingest.cells import Cells
from streams.ingest.outcomes import OutcomeDecoder, OutcomesKind
from streams.ingest.partition import PartitionProcessor, RawRecord
from streams.ingest.results import ResultsKind

# Two attribution windows: one has to close, and as long again a partition that is behind is waited for.
_WAIT_WINDOWS: Final = 2 * -(-MEASUREMENT.attribution_ms // TIME.window_ms)
_END: Final = "the log is over: an empty window, by which every cohort has matured"


class Counts(Struct, kw_only=True):
    """What ingest made of the records. Refused ones would be a fault of the import."""

    num_results: int = 0
    num_outcomes: int = 0
    num_late: int = 0
    num_duplicates: int = 0
    num_refused: int = 0
    num_windows: int = 0
    num_segments: int = 0


class _Results(ResultsKind):
    def decoder(self) -> Decoder:
        return Decoder((*self.topic.record_types, ClockRecord))


class _Outcomes(OutcomesKind):
    def decoder(self) -> OutcomeDecoder:
        return OutcomeDecoder(Decoder((*self.topic.record_types, ClockRecord)), UNSIGNED)


def kinds() -> tuple[Kind, Kind]:
    """The kinds of records of an import, whose decoders know the end of a log."""
    return _Results(MEASUREMENT), _Outcomes(MEASUREMENT, UNSIGNED)


class Ingest:
    """One kind of an import's records, in the order of their log."""

    def __init__(self, kind: Kind, cells: Sequence[str]) -> None:
        declared = Cells(window_ms=TIME.window_ms)
        for cell in cells:
            declared.declare(declaration(cell))
        self._processor = PartitionProcessor(kind, 0, num_partitions=NUM_PARTITIONS, time=TIME, cells=declared)
        self._windows: list[ControlWindow] = []
        self.num_refused = 0

    def take(self, batch: Sequence[RawRecord]) -> None:
        """Take in the next records."""
        processed = self._processor.process(batch)
        self._windows += processed.windows
        self.num_refused += len(processed.refusals)

    def windows(self) -> list[ControlWindow]:
        """All windows, once the log is over."""
        clock_ms = self._processor.clock_ms
        if clock_ms is not None:
            end_ms = clock_ms + TIME.window_ms + TIME.lateness_ms
            end = encode(ClockRecord(writer="import"))
            self.take([RawRecord(self._processor.position, end_ms, None, end)])
        return self._windows


def measured(windows: Iterable[ControlWindow], counts: Counts) -> list[Said]:
    """What an import says: its windows in order, then what is measured of each cell and segment."""
    ordered = sorted(windows, key=lambda window: (window.window_index, window.cell, window.kind))
    if not ordered:
        return []
    last = ordered[-1].window_index + 1 + GRACE_WINDOWS + _WAIT_WINDOWS
    ends = [end for cell in sorted({window.cell for window in ordered}) for end in _ends(cell, last)]
    states: dict[str, MeasurementState] = {}
    said = []
    for window in (*ordered, *ends):
        states[window.cell] = take_in(states.get(window.cell) or MeasurementState(cell=window.cell), window)
        said.append(Said(CONTROL_WINDOWS.name, window.cell.encode(), window, window.end_ms))
        for body in (window.results, window.outcomes):
            if body is not None:
                counts.num_late += body.num_late
                counts.num_duplicates += body.num_duplicates
        counts.num_results += window.results.num_results if window.results is not None else 0
        counts.num_outcomes += window.outcomes.num_outcomes if window.outcomes is not None else 0
    counts.num_windows = len(said)
    end_ms = (last + 1) * TIME.window_ms
    for _, state in sorted(states.items()):
        grown = matured(state, end_ms, window_index=last)
        for record in uplift_records(grown, window_index=last, window_end_ms=end_ms):
            topic, key = destination(record)
            said.append(Said(topic.name, key, record, end_ms))
            counts.num_segments += 1
    return said


def _ends(cell: str, index: int) -> tuple[ControlWindow, ControlWindow]:
    results = ResultsWindow(
        strata=[], guards=[], versions=[], num_results=0, num_duplicates=0, num_late=0, cohort_ms=MEASUREMENT.cohort_ms
    )
    outcomes = OutcomesWindow(
        strata=[],
        num_outcomes=0,
        num_duplicates=0,
        num_late=0,
        num_expired=0,
        cohort_ms=MEASUREMENT.cohort_ms,
        attribution_ms=MEASUREMENT.attribution_ms,
        value_cap_micro=MEASUREMENT.value_cap_micro,
    )
    empty = ControlWindow(
        cell=cell,
        kind="results",
        source_partition=0,
        window_index=index,
        start_ms=index * TIME.window_ms,
        end_ms=(index + 1) * TIME.window_ms,
        results=results,
        note=_END,
    )
    return empty, msgspec.structs.replace(empty, kind="outcomes", results=None, outcomes=outcomes)
