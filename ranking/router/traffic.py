"""What the router notes of a request when it takes it in: who asked, what was spent upstream, what was drawn for it."""

from ranking.intervals import IntervalRecorder
from ranking.router.arms import DEFAULT_ARMS, ArmSettings, arm_of
from ranking.router.upgrades import upgrade_of
from schemas.records import CandidateTarget, RankingRequest
from schemas.segments import segment_of


def note_intake(
    recorder: IntervalRecorder,
    request: RankingRequest,
    *,
    target: CandidateTarget | None,
    is_mistaken: bool,
    arms: ArmSettings = DEFAULT_ARMS,
) -> None:
    """Count a request once, in all and by segment. ``target`` is the one that is applied to it, None for base alone.

    A caller's mistake is a request as well, with nothing to be assigned to: coverage is a share of all requests.
    """
    recorder.count_request()
    recorder.record_upstream(request.upstream_us)
    segment = segment_of(request.advertiser_segment)
    if is_mistaken:
        recorder.count_segment(segment)
        return
    arm = arm_of(request.user_id, settings=arms)
    upgrade = upgrade_of(request.request_id, segment=segment, arm=arm, target=target)
    # No route serves upgrades yet, so that none is sent.
    recorder.count_segment(segment, is_allowed=arm.allows_sbm, probability=upgrade.probability, is_routed=False)
