"""Which requests the stronger model serves: drawn by the probability that the cell's target gives. Pure.

The draw is a hash of the request's id: whoever takes the request over draws the same, a replay too, and a higher
probability only adds requests to those upgraded before.
"""

from dataclasses import dataclass

from ranking.router.arms import Arm
from ranking.router.draws import uniform
from schemas.records import CandidateTarget

_UPGRADE = b"upgrade"


@dataclass(frozen=True, kw_only=True)
class Upgrade:
    """Probability with which a request is assigned to the powerful model, and whether it is."""

    probability: float
    is_assigned: bool


NO_UPGRADE = Upgrade(probability=0.0, is_assigned=False)


def upgrade_of(request_id: str, *, segment: str, arm: Arm, target: CandidateTarget | None) -> Upgrade:
    """Assignment of one request by the target that is valid now, None where there is none (blind means base)."""
    if target is None or not arm.allows_sbm:
        return NO_UPGRADE
    probability = share_of(target, segment)
    return Upgrade(
        probability=probability, is_assigned=probability > 0.0 and uniform(request_id, purpose=_UPGRADE) < probability
    )


def share_of(target: CandidateTarget, segment: str) -> float:
    """Probability of a segment's requests whose arm allows it: its own share, or that of all segments not listed.

    0 where the powerful pool can pay for nothing: it has no unit, and nobody would answer.
    """
    if target.powerful_budget_units_s <= 0.0:
        return 0.0
    return next((listed.share for listed in target.segment_shares if listed.segment == segment), target.other_share)
