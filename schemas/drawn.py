"""What chance has drawn of each lever for one request, as results say it and tokens and sums keep it. Pure."""

from schemas.attribution import MICRO
from schemas.records.measurement import DrawnDepth, DrawnUpgrade


def drawn_depth(dose: int, *, full_dose: int, propensity: float) -> DrawnDepth:
    """Depth that was drawn; empty where there was but one possibility."""
    if full_dose <= 0 or propensity >= 1.0:
        return ""
    if dose <= 0:
        return "none"
    return "full" if dose >= full_dose else "half"


def drawn_upgrade(*, is_assigned: bool, probability: float) -> DrawnUpgrade:
    """Whether an upgrade was drawn; empty where it was certain, or out of the question."""
    if not 0.0 < probability < 1.0:
        return ""
    return "yes" if is_assigned else "no"


def upgrade_propensity(*, is_assigned: bool, probability: float) -> float:
    """Probability of what was drawn, of which ``probability`` is that of an upgrade."""
    return probability if is_assigned else 1.0 - probability


def in_millionths(propensity: float) -> int:
    """Probability of what was drawn in whole millionths: at least one, for it was drawn."""
    return max(1, round(propensity * MICRO))
