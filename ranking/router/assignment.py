"""What one request is assigned, from its user's arm, its segment and its cell's target. Pure.

A function of the request, the target and the settings alone: each router, restart, replay and takeover comes to the
same. What then becomes of it (shed, late, lost) is no part of it, as analysis is by what was assigned.
"""

from dataclasses import dataclass

from ranking.router.arms import NO_ARM, Arm, arm_of, arm_propensity
from ranking.router.doses import NO_DOSE, Dose, dose_of
from ranking.router.experiment import Experiment
from ranking.router.upgrades import NO_UPGRADE, Upgrade, upgrade_of
from schemas.attribution import MICRO, Attribution
from schemas.drawn import drawn_depth, drawn_upgrade, in_millionths, upgrade_propensity
from schemas.records import CandidateTarget, RankingRequest
from schemas.records.fields import INT64_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Arm, dose of extras and upgrade of one request; ``target_window_index`` names the target that was applied.

    ``is_upgradable`` says that its arm allows an upgrade, and that one piece of work can hold its base candidates.
    ``is_aa`` says that nothing is to follow from it.
    """

    segment: str = ""
    arm: Arm = NO_ARM
    arm_propensity: float = 1.0
    dose: Dose = NO_DOSE
    upgrade: Upgrade = NO_UPGRADE
    is_upgradable: bool = False
    target_window_index: int | None = None
    is_aa: bool = False


UNASSIGNED = Assignment()


def assignment_of(
    request: RankingRequest, *, target: CandidateTarget | None, experiment: Experiment, max_upgrade_candidates: int
) -> Assignment:
    """Assignment by the target that is valid now; None where none may be applied, which means base work alone."""
    arm = arm_of(request.user_id, settings=experiment.arms)
    segment = experiment.segments.of(request)
    is_upgradable = arm.allows_sbm and request.num_base_candidates <= max_upgrade_candidates
    dose = NO_DOSE
    if target is not None and arm.allows_rma and segment not in target.segments_at_base:
        num_wanted = min(target.candidate_target, len(request.ad_ids) // INT64_BYTES)
        dose = dose_of(
            request.request_id,
            num_full=num_wanted - request.num_base_candidates,
            explored_share=experiment.explored_share,
        )
    upgrade = upgrade_of(request.request_id, segment=segment, arm=arm, target=target) if is_upgradable else NO_UPGRADE
    return Assignment(
        segment=segment,
        arm=arm,
        arm_propensity=arm_propensity(arm, settings=experiment.arms),
        dose=dose,
        upgrade=upgrade,
        is_upgradable=is_upgradable,
        target_window_index=None if target is None else target.window_index,
        is_aa=experiment.is_aa,
    )


def attribution_of(request: RankingRequest, assigned: Assignment) -> Attribution:
    """What outcomes of a request are counted under."""
    dose, upgrade = assigned.dose, assigned.upgrade
    depth = drawn_depth(dose.num_extra, full_dose=dose.num_full, propensity=dose.propensity)
    drawn = drawn_upgrade(is_assigned=upgrade.is_assigned, probability=upgrade.probability)
    propensity = upgrade_propensity(is_assigned=upgrade.is_assigned, probability=upgrade.probability)
    return Attribution(
        cell=request.cell,
        segment=assigned.segment,
        arm=assigned.arm.name,
        intake_ms=request.intake_ms,
        depth=depth,
        upgrade=drawn,
        depth_micro=in_millionths(dose.propensity) if depth else MICRO,
        upgrade_micro=in_millionths(propensity) if drawn else MICRO,
        is_aa=assigned.is_aa,
    )
