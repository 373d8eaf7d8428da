"""What an answer of an optional route means for a request's items."""

import numpy as np
from numpy.typing import NDArray

from ranking.router.open_request import Item, OpenRequest
from schemas.records import RankingAnswer


def take_optional_answer(open_request: OpenRequest, answer: RankingAnswer, now_ms: float) -> list[Item]:
    """Close or mark each item that the answer covers, and keep the scores that still count; returns the items closed.

    Scored before the result: admitted. Scored after it: late. Dropped by the replica: shed for its reason. Neither, or
    scores that do not fit the chunks: shed as ``error``; so is an upgrade with a score that is no finite number, as it
    would take a base candidate's place in the ranking away.
    """
    work = open_request.work_on(answer.route)
    work.is_answered = True
    scores_by_chunk = _scores_by_chunk(work.sent, answer)
    if answer.route == "powerful" and not all(np.isfinite(scores).all() for scores in scores_by_chunk.values()):
        scores_by_chunk = {}
    for chunk, scores in scores_by_chunk.items():
        item = work.sent[chunk]
        if open_request.is_published:
            item.state = "late"
        else:
            item.state = "admitted"
            work.scored.append((item.first, scores))
            work.model_version = answer.model_version
    reasons = {shed.chunk: shed.reason for shed in answer.sheds}
    for chunk, item in enumerate(work.sent):
        if item.state == "pending":
            item.state = "shed"
            item.reason = reasons.get(chunk, "error")
    if answer.route == "wide":
        open_request.last_wanted_ms = max(open_request.last_wanted_ms, now_ms)
    return work.sent


def _scores_by_chunk(sent: list[Item], answer: RankingAnswer) -> dict[int, NDArray[np.float32]]:
    """Scores of each chunk that was scored; nothing where they do not fit the work."""
    scored = [chunk for chunk in answer.scored_chunks if 0 <= chunk < len(sent)]
    scores = np.frombuffer(answer.scores, dtype="<f4")
    fits = (
        not answer.error
        and len(scored) == len(answer.scored_chunks) == len(set(scored))
        and sum(sent[chunk].num_candidates for chunk in scored) == len(scores)
    )
    if not fits:
        return {}
    ends = np.cumsum([sent[chunk].num_candidates for chunk in scored])
    return dict(zip(scored, np.split(scores, ends[:-1]), strict=True)) if scored else {}
