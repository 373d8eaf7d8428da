"""Which holds of operators are in force, from what a pipeline's logs say. Pure.

A controller's snapshot says what was in force at its tick, the commands behind it in the log what came after; the last
word counts. Whether it is applied is the target's to say: where no capacity is left, for one, base counts for more.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from ops.status.parts import MS_PER_S, at_time
from schemas.records import CandidateTarget, OperatorCommand
from streams.control.hold import Hold, commanded, in_force

OPERATOR = "operator"
Time = Annotated[datetime, Meta(tz=True)]


class HoldStatus(Struct, frozen=True, kw_only=True):
    """One hold in force. ``target`` is what the cell's controller asked for last and why, null where it never spoke.

    ``is_applied``: that target is still valid and follows the hold in all that the hold names.
    """

    cell: str
    action: str
    operator: str
    reason: str
    candidates: int | None
    coverage: float | None
    expires: Time | None
    left_s: float | None
    target: int | None
    target_reason: str | None
    coverage_reason: str | None
    is_target_expired: bool
    is_applied: bool


class CellFacts(Struct, kw_only=True):
    """What the logs say of one cell: the hold of the last snapshot, the last command, the last target."""

    snapshot_hold: Hold | None = None
    command: OperatorCommand | None = None
    target: CandidateTarget | None = None


def holds(facts: Mapping[str, CellFacts], *, now_ms: int) -> list[HoldStatus]:
    """Holds in force at a time of the event clock, in order of cells."""
    return list(_holds(facts, now_ms=now_ms))


def _holds(facts: Mapping[str, CellFacts], *, now_ms: int) -> Iterable[HoldStatus]:
    for cell, known in sorted(facts.items()):
        said = known.snapshot_hold if known.command is None else commanded(known.command)
        hold = in_force(said, end_ms=now_ms)
        if hold is None:
            continue
        target = known.target
        yield HoldStatus(
            cell=cell,
            action=hold.action,
            operator=hold.operator,
            reason=hold.reason,
            candidates=hold.candidate_target,
            coverage=hold.coverage,
            expires=at_time(hold.expires_ms) if hold.expires_ms is not None else None,
            left_s=(hold.expires_ms - now_ms) / MS_PER_S if hold.expires_ms is not None else None,
            target=target.candidate_target if target is not None else None,
            target_reason=target.reason if target is not None else None,
            coverage_reason=target.coverage_reason if target is not None else None,
            is_target_expired=target is not None and _is_expired(target, now_ms=now_ms),
            is_applied=target is not None and not _is_expired(target, now_ms=now_ms) and _follows(target, hold),
        )


def _is_expired(target: CandidateTarget, *, now_ms: int) -> bool:
    # As whoever applies it judges: up to that millisecond it counts.
    return now_ms > target.valid_until_ms


def _follows(target: CandidateTarget, hold: Hold) -> bool:
    if hold.holds_candidates:
        held = hold.candidate_target
        if target.reason != OPERATOR or (held is not None and target.candidate_target != held):
            return False
    # Without a stronger model there is no coverage that a freeze could hold.
    has_nothing_to_hold = hold.action == "freeze" and not target.coverage_reason
    return not hold.holds_coverage or has_nothing_to_hold or target.coverage_reason == OPERATOR


def line_of(hold: HoldStatus) -> str:
    """One hold in one line."""
    what = [f"{hold.candidates} candidates"] if hold.candidates is not None else []
    what += [f"coverage {hold.coverage:g}"] if hold.coverage is not None else []
    until = f" until {hold.expires.isoformat(timespec='seconds')}" if hold.expires is not None else ""
    if hold.is_applied:
        now = f"applied, target {hold.target}"
    elif hold.target is None:
        now = "no target yet"
    elif hold.is_target_expired:
        now = "not applied, target expired"
    else:
        coverage = f", coverage: {hold.coverage_reason}" if hold.coverage_reason else ""
        now = f"not applied, target {hold.target} ({hold.target_reason}{coverage})"
    held = f" {' and '.join(what)}" if what else ""
    return f"{hold.cell:<24} {hold.action}{held}{until} by {hold.operator}: {hold.reason} [{now}]"
