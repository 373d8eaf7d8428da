"""What a controller remembers of reporters that were off. Pure.

Each has a score: two more for a tick in which it is off, one less for any other, at most MAX_SCORE. At EXCLUDE_AT, the
third tick in a row or the tenth of one that is off every second tick, it is excluded, until its score is used up: as
many ticks of sense as it has points. Who is never off is not remembered.
"""

from collections.abc import Collection

from msgspec import Struct

from schemas.records.fields import Count, Label, Name

OFF_STEP = 2
SANE_STEP = 1
EXCLUDE_AT = 6
MAX_SCORE = 12
# Far more than can be off at once; whoever invents names pushes out the least suspect.
MAX_SUSPECTS = 256

# Which figure, and whose.
Case = tuple[str, str]


class Suspect(Struct, frozen=True, kw_only=True):
    """One figure of one reporter that was off of late."""

    figure: Label
    source: Name
    score: Count
    is_excluded: bool = False

    @property
    def case(self) -> Case:
        """Which figure, and whose."""
        return self.figure, self.source


class Suspects(Struct, frozen=True, kw_only=True):
    """All that are remembered, in the order of figures and names."""

    known: tuple[Suspect, ...] = ()

    def excluded(self, figure: str) -> frozenset[str]:
        """Reporters whose figure is not to be counted."""
        return frozenset(known.source for known in self.known if known.figure == figure and known.is_excluded)

    def scores(self, figure: str) -> dict[str, int]:
        """Scores by reporter."""
        return {known.source: known.score for known in self.known if known.figure == figure}


def updated(suspects: Suspects, off: Collection[Case]) -> Suspects:
    """What is remembered after one more tick in which ``off`` were off."""
    before = {known.case: known for known in suspects.known}
    after = []
    for figure, source in sorted({*before, *off}):
        known = before.get((figure, source)) or Suspect(figure=figure, source=source, score=0)
        is_off = (figure, source) in off
        score = min(MAX_SCORE, known.score + OFF_STEP) if is_off else known.score - SANE_STEP
        if score > 0:
            is_excluded = known.is_excluded or score >= EXCLUDE_AT
            after.append(Suspect(figure=figure, source=source, score=score, is_excluded=is_excluded))
    if len(after) > MAX_SUSPECTS:
        after = sorted(after, key=lambda known: (-known.score, known.case))[:MAX_SUSPECTS]
    return Suspects(known=tuple(sorted(after, key=lambda known: known.case)))
