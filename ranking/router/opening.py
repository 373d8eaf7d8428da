"""How long a request may be waited for, settled when it is taken in."""

from ranking.router.events import Intake
from ranking.router.open_request import OpenRequest
from ranking.router.policy import RouterPolicy
from schemas.records import RankingRequest


def budget_ms_of(request: RankingRequest) -> int:
    """The time that a caller gives; it counts from the request's append."""
    return request.deadline_ms - request.intake_ms


def opened(
    intake: Intake,
    request: RankingRequest,
    *,
    policy: RouterPolicy,
    publishing_ms: float,
    overdue_ms: float,
    is_takeover: bool,
    now_ms: float,
) -> OpenRequest:
    """A request that is believed. ``publishing_ms`` is the tail of publishing, ``overdue_ms`` that of base work.

    answer by = deadline - margin; optional by = deadline - the larger of the margin and what patience leaves.
    """
    budget_ms = budget_ms_of(request)
    margin_ms = min(max(2.0 * publishing_ms, policy.publish_margin_ms), policy.publish_margin_share * budget_ms)
    deadline_ms = wait_until_ms = float(intake.append_ms + budget_ms)
    if now_ms >= deadline_ms - margin_ms:
        # Taken in too late: its base work gets a new deadline, and the result will say that it is late.
        wait_until_ms = now_ms + budget_ms
    return OpenRequest(
        partition=intake.partition,
        offset=intake.offset,
        request=request,
        trace=intake.trace,
        append_ms=intake.append_ms,
        deadline_ms=deadline_ms,
        wait_until_ms=wait_until_ms,
        answer_by_ms=wait_until_ms - margin_ms,
        optional_by_ms=wait_until_ms - max(margin_ms, (1.0 - policy.patience_share) * budget_ms),
        overdue_ms=overdue_ms,
        is_takeover=is_takeover,
    )
