"""Which model versions are in force: those of the majority of the results of a cohort. Pure.

Estimates belong to a model version. While one replaces another, cohorts hold results of both; the new one is in force
from the first cohort on in which it has more than two thirds of the results of its route, so that a release that is
tried on half of the replicas for a day does not start the sums anew each minute.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from schemas.records import VersionTally
from streams.control.uplift.state import NONE_YET, Era, MeasurementState

_MAJORITY_OF_3: Final = 2
MAX_ERAS: Final = 64


def era_at(eras: Sequence[Era], cohort: int) -> int:
    """Number of the era of a cohort: the first cohort of it; NONE_YET before any version was seen."""
    return max((era.from_cohort for era in eras if era.from_cohort <= cohort), default=NONE_YET)


def era_of(eras: Sequence[Era], number: int) -> Era:
    """Versions of an era by its number."""
    return next((era for era in eras if era.from_cohort == number), Era(from_cohort=max(0, number)))


def counted(state: MeasurementState, tallies: Sequence[VersionTally], *, cohort: int) -> MeasurementState:
    """State after the tallies of a window of a cohort. A cohort's majority is settled when a later one begins."""
    if cohort < state.tally_cohort:
        return state
    if cohort > state.tally_cohort:
        state = msgspec.structs.replace(state, eras=_settled(state), tally_cohort=cohort, tally=())
    sums = Counter({(each.route, each.model_version): each.num_results for each in state.tally})
    for each in tallies:
        sums[each.route, each.model_version] += each.num_results
    return msgspec.structs.replace(
        state,
        tally=tuple(
            VersionTally(route=route, model_version=version, num_results=num)
            for (route, version), num in sorted(sums.items())
        ),
    )


def _settled(state: MeasurementState) -> tuple[Era, ...]:
    """Eras after the cohort that was counted; a version that was never known before starts nothing anew."""
    if not state.tally:
        return state.eras
    known = state.eras[-1] if state.eras else Era(from_cohort=0)
    baseline = _majority(state.tally, "baseline") or known.baseline_version
    powerful = _majority(state.tally, "powerful") or known.powerful_version
    if (baseline, powerful) == (known.baseline_version, known.powerful_version):
        return state.eras or (known,)
    is_new = (known.baseline_version not in ("", baseline)) or (known.powerful_version not in ("", powerful))
    era = Era(
        from_cohort=max(0, state.tally_cohort) if is_new else known.from_cohort,
        baseline_version=baseline,
        powerful_version=powerful,
    )
    return (*(state.eras if is_new else state.eras[:-1]), era)[-MAX_ERAS:]


def _majority(tally: Sequence[VersionTally], route: str) -> str:
    """Version that clearly more than the others answered on a route; empty where there is none."""
    found = {each.model_version: each.num_results for each in tally if each.route == route}
    num_results = sum(found.values())
    return next((name for name, num in sorted(found.items()) if 3 * num > _MAJORITY_OF_3 * num_results), "")
