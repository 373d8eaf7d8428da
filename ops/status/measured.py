"""What is measured of a cell, as it is shown. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from ops.status.model import MeasuredStatus, Trouble
from ops.status.parts import at_time
from ops.status.words import number, plural
from schemas.records import SegmentUplift
from streams.control.uplift.state import ALL

_NAMED = 6


def measured_of(uplift: Mapping[str, SegmentUplift]) -> MeasuredStatus | None:
    """Status of what was last said of each segment; None before anything was said of the whole."""
    whole = uplift.get(ALL)
    if whole is None:
        return None
    return MeasuredStatus(
        segments=sorted(uplift.keys() - {ALL}),
        window_end=at_time(whole.window_end_ms),
        baseline_version=whole.baseline_version,
        powerful_version=whole.powerful_version,
        num_requests=whole.num_requests,
        pending_requests=whole.pending_requests,
        num_late_outcomes=whole.num_late_outcomes,
        split_p_value=whole.sample_ratio.p_value if whole.sample_ratio is not None else None,
        mismatched=mismatched(uplift.values()),
        guardrails=[
            f"{name}: {each.name} of {each.lever} {number(each.figure)}, limit {number(each.limit)}"
            for name, said in sorted(uplift.items())
            for each in said.guardrails
            if each.is_crossed
        ],
        is_aa=whole.is_aa,
    )


def mismatched(uplift: Iterable[SegmentUplift]) -> list[str]:
    """Segments in which the sample-ratio check fails, in order of names."""
    return sorted(said.segment for said in uplift if said.sample_ratio is not None and said.sample_ratio.is_mismatch)


def measured_troubles(cell: str, measured: MeasuredStatus) -> Iterator[Trouble]:
    """A split that cannot be trusted, and levers that are back at base."""
    if measured.mismatched:
        named = ", ".join(measured.mismatched[:_NAMED])
        yield Trouble(
            kind="split_mismatch",
            subject=cell,
            detail=f"the arms have not the shares that they were drawn with in {named}: no effect can be trusted",
        )
    if measured.guardrails:
        detail = f"{plural(len(measured.guardrails), 'guardrail')} crossed: {'; '.join(measured.guardrails[:_NAMED])}"
        yield Trouble(kind="guardrail_crossed", subject=cell, detail=detail)
