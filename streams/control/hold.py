"""An operator's word in force."""

from typing import Literal

from msgspec import Struct

from schemas.records import OperatorCommand
from schemas.records.fields import Count, Name, Share, Text, TimeMs


class Hold(Struct, frozen=True, kw_only=True):
    """An operator's word in force until ``expires_ms``.

    A freeze keeps candidates and coverage as they are; an override holds those of the two that it names.
    """

    action: Literal["freeze", "override"]
    operator: Name
    reason: Text
    candidate_target: Count | None
    expires_ms: TimeMs | None
    coverage: Share | None = None

    @property
    def holds_candidates(self) -> bool:
        """Whether the candidate target is the operator's."""
        return self.action == "freeze" or self.candidate_target is not None

    @property
    def holds_coverage(self) -> bool:
        """Whether the coverage is the operator's."""
        return self.action == "freeze" or self.coverage is not None


def commanded(command: OperatorCommand) -> Hold | None:
    """What is in force after an operator's word, None after a resume: the last one counts, heard once or twice."""
    if command.action == "resume":
        return None
    return Hold(
        action=command.action,
        operator=command.operator,
        reason=command.reason,
        candidate_target=command.candidate_target,
        expires_ms=command.expires_ms,
        coverage=command.coverage,
    )


def in_force(hold: Hold | None, *, end_ms: TimeMs) -> Hold | None:
    """The hold while it has not run out at the end of a window."""
    return None if hold is None or (hold.expires_ms is not None and end_ms >= hold.expires_ms) else hold
