"""What a controller's records say, as metrics."""

from collections.abc import Iterable

from msgspec import Struct

from ops.telemetry.metrics import Metrics
from schemas.records import CandidateTarget, SegmentUplift


def show(metrics: Metrics, records: Iterable[Struct]) -> None:
    """Note what was said of a window."""
    for said in records:
        match said:
            case CandidateTarget():
                metrics.counter("intertidal_ticks_total").labels(said.cell).inc()
                metrics.gauge("intertidal_candidate_target").labels(said.cell).set(said.candidate_target)
            case SegmentUplift():
                is_off = said.sample_ratio is not None and said.sample_ratio.is_mismatch
                metrics.gauge("intertidal_split_mismatch").labels(said.cell, said.segment).set(is_off)
                num_crossed = sum(each.is_crossed for each in said.guardrails)
                metrics.gauge("intertidal_guardrails_crossed").labels(said.cell, said.segment).set(num_crossed)
            case _:
                pass
