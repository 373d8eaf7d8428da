"""From the sums of a range and the measured gains to a report, with what is not known. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from ops.report.capacity import idle, spend
from ops.report.gains import effect_of, segments, whole_cells
from ops.report.headline import headline
from ops.report.latency import NUM_AFTER, latencies, phase_counts
from ops.report.model import Idle, NotKnown, Report, Row, SegmentGains
from ops.report.tally import Tally
from ops.status.words import plural
from schemas.records.uplift import Contrast

_MAIN_CONTRASTS: Final[tuple[Contrast, ...]] = ("rma_alone", "sbm_alone", "both", "interaction")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What was read beside the windows: the gains, why some are missing, and what could not be read."""

    namespace: str
    gains: list[SegmentGains]
    gains_missing: str = ""
    num_unreadable: int = 0
    num_deleted: int = 0


def build_report(tally: Tally, reading: Reading) -> Report:
    """The report; ``tally`` has been closed."""
    idle_use, balance = idle(tally.cells), tally.balance.balance()
    preemptions = tally.sizes.preemptions(tally.cells)
    latency, phases = latencies(tally.histograms), phase_counts(tally.phase_counts)
    report = Report(
        version=1,
        headline=headline(reading.gains, idle=idle_use, preemptions=preemptions, latency=latency, phases=phases),
        covered=tally.covered(namespace=reading.namespace, num_unreadable=reading.num_unreadable),
        gains=reading.gains,
        idle=idle_use,
        preemptions=preemptions,
        balance=balance,
        latency=latency,
        phases=phases,
        arms=tally.arms.arms(),
        shedding=tally.shedding.shedding(),
        budget=spend(tally.cells),
        series=tally.series.series(),
        not_known=[],
    )
    missing = [NotKnown(row=row, reason=reason) for row, reason in _not_known(report, reading)]
    return replace(report, not_known=missing)


def _not_known(report: Report, reading: Reading) -> Iterator[tuple[Row, str]]:
    """Every row that is empty, and every part of one that the logs cannot tell."""
    yield from _of_range(report, reading)
    yield from _of_gains(report, reading)
    yield from _of_capacity(report)
    yield from _of_serving(report)


def _of_range(report: Report, reading: Reading) -> Iterator[tuple[Row, str]]:
    covered = report.covered
    if not covered.num_windows:
        yield "range", "control.windows holds no window of this range and these cells"
    if reading.num_deleted:
        yield "range", f"{plural(reading.num_deleted, 'record')} deleted by retention before they were read"
    if reading.num_unreadable:
        yield "range", f"{plural(reading.num_unreadable, 'record')} that could not be read or believed, and passed over"
    if not covered.num_outcomes:
        yield "outcomes", "no window of outcomes is in the range"
    elif covered.num_expired_outcomes:
        expired = plural(covered.num_expired_outcomes, "outcome")
        yield "outcomes", f"{expired} came after the attribution window of their request: not counted"


def _of_gains(report: Report, reading: Reading) -> Iterator[tuple[Row, str]]:
    cells = whole_cells(report.gains)
    if not cells:
        yield "gains", reading.gains_missing or "no uplift of a whole cell was measured by the end of the range"
    for row in cells:
        unsure = [name for name in _MAIN_CONTRASTS if effect_of(row, name, "value") is None]
        if unsure:
            yield "gains", f"{row.cell}: value of {', '.join(unsure)}: too few requests with outcomes for an interval"
        if row.pending_requests:
            yield (
                "gains",
                f"{row.cell}: {plural(row.pending_requests, 'request')} not counted yet: attribution windows are open",
            )
        if row.num_late_outcomes:
            yield "gains", f"{row.cell}: {plural(row.num_late_outcomes, 'outcome')} came too late to be summed"
    if len(cells) > 1:
        yield "gains", "one interval over all cells: each cell has its own, and the mean at the top has none"
    if not segments(report.gains):
        yield "gains_by_segment", reading.gains_missing or "no segment was measured by the end of the range"
    if not any(row.sample_ratio for row in report.gains):
        yield "sample_ratio", "no check of the split was published by the end of the range"
    if not any(row.guardrails for row in report.gains):
        yield "guardrails", "no guardrail was published by the end of the range"
    if not any(row.optional_share for row in segments(report.gains)):
        yield "fairness", "no segment's share of optional work was published by the end of the range"


def _of_capacity(report: Report) -> Iterator[tuple[Row, str]]:
    if report.idle is None:
        yield "idle", "no capacity window of the range has an idle unit"
        yield "idle_by_cause", "no capacity window of the range has an idle unit"
    else:
        yield from _of_idle(report.idle)
    if report.preemptions is None:
        yield "preemptions", "no capacity window is in the range"
        yield "preemption_sizes", "no capacity window is in the range"
    elif not report.preemptions.num_windows:
        yield "preemption_sizes", "no usable unit was taken back in the range"
    if report.balance is None:
        yield "balance", "no window of the range has idle accelerators, only CPU or nothing"
    elif not report.balance.num_with_need:
        yield "balance", "whether CPU was left over: the terms of RMA name no cores a unit for these accelerators"
    if not report.budget:
        yield "budget", "no lever had a pool to run on, and no replica was busy for one"


def _of_idle(idle_use: Idle) -> Iterator[tuple[Row, str]]:
    if idle_use.total.used_unit_h is None:
        yield "idle", "what was put to work: replicas were busy for a lever that has no usable pool in the range"
    elif (idle_use.total.used_share or 0.0) > 1.0:
        yield "idle", "what was put to work: replicas were busy for longer than units were idle"
    if any(use.is_estimate for use in idle_use.by_cause):
        yield (
            "idle_by_cause",
            "what of each cause was usable and put to work: hosts say both of whole pools, shared out in proportion",
        )
    yield "idle", "between the ends of windows: what is idle at a window's end stands for the whole of it"


def _of_serving(report: Report) -> Iterator[tuple[Row, str]]:
    groups = {(row.group, row.phase) for row in report.latency}
    for group, of in (("without", "arms without optional work"), ("with", "arms with optional work")):
        if (group, "all") not in groups:
            yield "latency_by_arm", f"no result of {of} is in the range"
        for phase in ("before", "during"):
            if (group, phase) not in groups:
                yield (
                    "latency_in_reclaims",
                    f"no result of {of} fell {phase} a reclaim (its windows, and {NUM_AFTER} after it)"
                    if phase == "during"
                    else f"no result of {of} fell into the windows before a reclaim",
                )
    if not report.shedding:
        yield "shedding", "no optional work was offered in the range"
    elif not any(row.offered_value for row in report.shedding):
        yield "shedding", "value lost: routers expected no value of any optional item"
