"""What requests of a segment met lately, arm by arm: the last cohorts of intake, merged. Pure."""

from collections.abc import Iterable
from typing import Final

import msgspec

from schemas.histogram import ExponentialHistogram
from schemas.records import ArmGuard, HistogramFields
from schemas.records.measurement import ARMS
from streams.control.uplift.state import GuardCohort, SegmentSums

# Guardrails speak of the last minutes; effects are measured over all.
MAX_COHORTS: Final = 8
MAX_COUNT: Final = 2**62
_COUNTS: Final = tuple(name for name in ArmGuard.__struct_fields__ if name.startswith(("num_", "value_")))


def with_guards(sums: SegmentSums, guards: Iterable[ArmGuard], *, cohort: int) -> SegmentSums:
    """Sums of a segment with what its requests of one cohort met."""
    held = {each.cohort: each.arms for each in sums.guards}
    found = [*held.get(cohort, ()), *guards]
    if not found:
        return sums
    held[cohort] = merged(found, segment=sums.segment)
    kept = sorted(held)[-MAX_COHORTS:]
    return msgspec.structs.replace(sums, guards=tuple(GuardCohort(cohort=at, arms=held[at]) for at in kept))


def recent_guards(sums: SegmentSums) -> tuple[ArmGuard, ...]:
    """What requests of the last cohorts met, one record for each arm that had any."""
    return merged((guard for each in sums.guards for guard in each.arms), segment=sums.segment)


def merged(guards: Iterable[ArmGuard], *, segment: str) -> tuple[ArmGuard, ...]:
    """One record for each arm."""
    by_arm: dict[str, list[ArmGuard]] = {}
    for guard in guards:
        by_arm.setdefault(guard.arm, []).append(guard)
    return tuple(_one(by_arm[arm], segment) for arm in ARMS if arm in by_arm)


def _one(guards: list[ArmGuard], segment: str) -> ArmGuard:
    latency = ExponentialHistogram()
    for guard in guards:
        latency.add(ExponentialHistogram.from_fields(**msgspec.structs.asdict(guard.latency)))
    return ArmGuard(
        segment=segment,
        arm=guards[0].arm,
        latency=HistogramFields(**latency.to_fields()),
        **{name: min(MAX_COUNT, sum(getattr(guard, name) for guard in guards)) for name in _COUNTS},
    )
