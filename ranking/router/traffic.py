"""What the router notes of a request that it takes in: who asked, what was spent upstream, what was drawn for it."""

from ranking.intervals import IntervalRecorder
from ranking.router.assignment import Assignment
from schemas.records import RankingRequest


def note_intake(
    recorder: IntervalRecorder, request: RankingRequest, *, assignment: Assignment, is_routed: bool = False
) -> None:
    """Count a request once, in all and by segment; ``is_routed`` says that it was sent to the powerful route.

    A caller's mistake is a request as well, with nothing assigned to it: coverage is a share of all requests.
    """
    recorder.count_request()
    recorder.record_upstream(request.upstream_us)
    recorder.count_segment(
        assignment.segment,
        is_allowed=assignment.is_upgradable,
        probability=assignment.upgrade.probability,
        is_routed=is_routed,
    )
