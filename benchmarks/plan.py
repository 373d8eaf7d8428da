"""How much is measured, and in which order: two things are compared only within one run, by turns.

So a neighbour on the machine, or a processor that changes its clock, slows both alike.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ops.telemetry.progress import progress

NUM_TURNS, NUM_TURNS_QUICK, NUM_TURNS_TINY = 5, 3, 1

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """``quick`` is for rougher figures in less time, ``tiny`` only shows that the code runs."""

    quick: bool = False
    tiny: bool = False

    @property
    def name(self) -> str:
        """What the figures are worth."""
        return self.choose("full", "quick", "tiny")

    @property
    def num_turns(self) -> int:
        """Turns of each side of a comparison."""
        return self.choose(NUM_TURNS, NUM_TURNS_QUICK, NUM_TURNS_TINY)

    def choose(self, full: T, quick: T, tiny: T) -> T:
        """The size that belongs to this plan."""
        return tiny if self.tiny else quick if self.quick else full


def alternate(
    one: Callable[[], float], other: Callable[[], float], *, num_turns: int, name: str
) -> tuple[list[float], list[float]]:
    """Measure both sides by turns, each first in every other turn; each call of a side measures it once."""
    values: list[float] = []
    other_values: list[float] = []
    with progress(name, total=num_turns) as advance:
        for turn in range(num_turns):
            if turn % 2:
                other_values.append(other())
                values.append(one())
            else:
                values.append(one())
                other_values.append(other())
            advance(1)
    return values, other_values
