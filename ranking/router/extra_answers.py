"""What an answer of the wide route means for a request's optional items."""

import numpy as np

from ranking.router.extras import ExtrasPlanner
from ranking.router.open_request import Item, OpenRequest
from schemas.records import RankingAnswer


def take_extra_answer(
    open_request: OpenRequest, answer: RankingAnswer, planner: ExtrasPlanner, now_ms: float
) -> list[Item]:
    """Close or mark each item that the answer covers, and keep the scores that still count; returns the items closed.

    Scored before the result: admitted, merged. Scored after it: late. Dropped by the replica: shed for its reason.
    Neither, or scores that do not fit the chunks: shed as ``error``.
    """
    extras = open_request.extras
    extras.is_answered = True
    scored = [chunk for chunk in answer.scored_chunks if 0 <= chunk < len(extras.sent)]
    scores = np.frombuffer(answer.scores, dtype="<f4")
    fits = (
        not answer.error
        and len(scored) == len(answer.scored_chunks) == len(set(scored))
        and sum(extras.sent[chunk].units for chunk in scored) == len(scores)
    )
    reasons = {shed.chunk: shed.reason for shed in answer.sheds}
    first_score = 0
    if fits:
        for chunk in scored:
            item = extras.sent[chunk]
            chunk_scores = scores[first_score : first_score + item.units]
            first_score += item.units
            if open_request.is_published:
                item.state = "late"
            else:
                item.state = "admitted"
                extras.scored.append((planner.span(open_request, item)[0], chunk_scores))
        extras.model_version = answer.model_version if scored else extras.model_version
    for chunk, item in enumerate(extras.sent):
        if item.state == "pending":
            item.state = "shed"
            item.reason = reasons.get(chunk, "error")
    open_request.last_wanted_ms = max(open_request.last_wanted_ms, now_ms)
    return extras.sent
