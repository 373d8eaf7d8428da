"""Which levers a user may meet: a permanent holdout, and beside it four arms, by hashed user. Pure.

The three draws of a user are independent, so that each lever's effect is seen with and without the other. A larger
share only adds users to what it is a share of: nobody changes sides because a setting moved, and who is held out today
is held out as long as the share does not shrink.
"""

from dataclasses import dataclass, fields
from typing import Literal

from ranking.router.draws import uniform

ArmName = Literal["holdout", "none", "rma", "sbm", "both"]

_HOLDOUT = b"holdout"
_RMA = b"arm rma"
_SBM = b"arm sbm"


@dataclass(frozen=True, kw_only=True)
class ArmSettings:
    """Share of users held out for good, and shares of the others who may meet each lever.

    Raises ValueError for a share outside [0, 1].
    """

    holdout_share: float = 0.01
    rma_share: float = 0.9
    sbm_share: float = 0.9

    def __post_init__(self) -> None:
        for setting in fields(self):
            # So written that NaN is refused as well.
            if not 0.0 <= getattr(self, setting.name) <= 1.0:
                raise ValueError(f"{setting.name} must be in [0, 1], is {getattr(self, setting.name)}")


DEFAULT_ARMS = ArmSettings()


@dataclass(frozen=True, kw_only=True)
class Arm:
    """What one user may meet."""

    name: ArmName
    allows_rma: bool
    allows_sbm: bool


# Of a request that is assigned to nothing: a caller's mistake.
NO_ARM = Arm(name="none", allows_rma=False, allows_sbm=False)
_HELD_OUT = Arm(name="holdout", allows_rma=False, allows_sbm=False)
_ARMS: dict[tuple[bool, bool], Arm] = {
    (False, False): Arm(name="none", allows_rma=False, allows_sbm=False),
    (True, False): Arm(name="rma", allows_rma=True, allows_sbm=False),
    (False, True): Arm(name="sbm", allows_rma=False, allows_sbm=True),
    (True, True): Arm(name="both", allows_rma=True, allows_sbm=True),
}


def arm_of(user_id: str, *, settings: ArmSettings = DEFAULT_ARMS) -> Arm:
    """Arm of a user, the same for each of the user's requests at every router."""
    if uniform(user_id, purpose=_HOLDOUT) < settings.holdout_share:
        return _HELD_OUT
    allows_rma = uniform(user_id, purpose=_RMA) < settings.rma_share
    allows_sbm = uniform(user_id, purpose=_SBM) < settings.sbm_share
    return _ARMS[allows_rma, allows_sbm]


def arm_propensity(arm: Arm, *, settings: ArmSettings = DEFAULT_ARMS) -> float:
    """Probability with which a user comes into an arm."""
    if arm.name == "holdout":
        return settings.holdout_share
    rma = settings.rma_share if arm.allows_rma else 1.0 - settings.rma_share
    sbm = settings.sbm_share if arm.allows_sbm else 1.0 - settings.sbm_share
    return (1.0 - settings.holdout_share) * rma * sbm
