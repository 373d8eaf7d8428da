"""Which of two controllers of one cell is heard. Pure.

A controller that was stopped, swapped out or cut off may wake up and speak for cells that another has taken over. Its
targets carry the lower epoch. A lower epoch than the highest heard is shut out while the last target of that one is
valid: with each of its targets the fence holds on. Once that has run out nobody speaks with the higher epoch any more,
and who does speak is heard again, so that no epoch, however wrong the clock that it came from, can silence a cell for
good. A target of the window that ends just then is sent after it: were it shut out too, the cell would stay at base for
one window more.
"""

from schemas.epochs import NO_EPOCH
from schemas.records import CandidateTarget


class ShutOutError(Exception):
    """A target of a controller that another has taken over from; the message names the cell and both epochs."""

    def __init__(self, cell: str, *, epoch: int, highest: int) -> None:
        super().__init__(f"a controller of epoch {epoch} speaks for {cell} beside one of epoch {highest}")
        self.cell = cell
        self.epoch = epoch
        self.highest = highest


class Fence:
    """The highest epoch heard of each cell."""

    def __init__(self) -> None:
        self._epochs: dict[str, int] = {}

    def check(self, target: CandidateTarget, *, epoch: int, held: CandidateTarget | None) -> None:
        """Hear a target after ``held``, the last one of its cell; raises ShutOutError where it must not be heard."""
        highest = self._epochs.get(target.cell, NO_EPOCH)
        if epoch < highest and held is not None and target.window_end_ms < held.valid_until_ms:
            raise ShutOutError(target.cell, epoch=epoch, highest=highest)
        self._epochs[target.cell] = epoch
