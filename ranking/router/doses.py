"""How many of the extra candidates that a target asks for a request is assigned: a few depths, drawn by chance. Pure.

What more extras earn can only be learned where equal requests have different numbers of them. Most requests get all
that the target asks for; a small share gets none, or half, whatever their value. The draw is a hash of the request's
id: whoever takes the request over draws the same, a replay too.
"""

import math
from dataclasses import dataclass
from itertools import accumulate

from ranking.router.draws import uniform

_DOSE = b"dose"
# Depths in the order in which the numbers from 0 on are given to them; the explored share is split evenly between all
# but the last, which has the rest.
DEPTHS = (0.0, 0.5, 1.0)


@dataclass(frozen=True, kw_only=True)
class Dose:
    """Extra candidates assigned, of how many asked for, and the probability that just so many were drawn.

    ``depths`` are all amounts that might have been drawn, each with its probability.
    """

    num_extra: int
    num_full: int
    propensity: float
    depths: tuple[tuple[int, float], ...] = ()

    def reach(self, num_extra: int) -> float:
        """Probability that at least so many were drawn: that of an item which ends there."""
        return math.fsum(share for amount, share in self.depths if amount >= num_extra)


NO_DOSE = Dose(num_extra=0, num_full=0, propensity=1.0)


def dose_of(request_id: str, *, num_full: int, explored_share: float) -> Dose:
    """Dose of one request whose arm allows extras and whose target asks for ``num_full`` of them.

    Depths that come to the same number of candidates count together.
    """
    if num_full <= 0:
        return NO_DOSE
    explored = explored_share / (len(DEPTHS) - 1)
    probabilities = [*([explored] * (len(DEPTHS) - 1)), 1.0 - explored_share]
    amounts = [int(depth * num_full) for depth in DEPTHS]
    drawn = uniform(request_id, purpose=_DOSE)
    ends = accumulate(probabilities[:-1])
    amount = next((amount for amount, end in zip(amounts, ends, strict=False) if drawn < end), amounts[-1])
    propensity = sum(share for share, other in zip(probabilities, amounts, strict=True) if other == amount)
    depths = tuple(zip(amounts, probabilities, strict=True))
    return Dose(num_extra=amount, num_full=num_full, propensity=propensity, depths=depths)
