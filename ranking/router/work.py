"""Records of work made from a request. Base work is made from the request alone."""

from schemas.records import RankingRequest, RankingWork
from schemas.records.fields import FLOAT32_BYTES, INT64_BYTES


def base_work(
    request: RankingRequest, *, router: str, reply_partition: int, attempt: int, deadline_ms: int, chunk_size: int
) -> RankingWork:
    """Base work of a request: no target, pool or dose enters it."""
    num_base = request.num_base_candidates
    return RankingWork(
        request_id=request.request_id,
        attempt=attempt,
        route="baseline",
        cell=request.cell,
        lever=None,
        router=router,
        reply_partition=reply_partition,
        intake_ms=request.intake_ms,
        deadline_ms=deadline_ms,
        user_id=request.user_id,
        user_features=request.user_features,
        history_ids=request.history_ids,
        ad_ids=request.ad_ids[: num_base * INT64_BYTES],
        bids=request.bids[: num_base * FLOAT32_BYTES],
        retrieval_scores=request.retrieval_scores[: num_base * FLOAT32_BYTES],
        first_position=0,
        chunk_size=chunk_size,
        chunk_values_micro=[0] * -(-num_base // chunk_size),
        platform=request.platform,
        advertiser_segment=request.advertiser_segment,
    )


def extra_work(
    request: RankingRequest,
    spans: list[tuple[int, int, int]],
    *,
    router: str,
    reply_partition: int,
    deadline_ms: int,
    chunk_size: int,
) -> RankingWork:
    """Work on extra candidates: ``spans`` are (first position, end, value in micro-units) of its chunks, rising.

    Only the last span may be shorter than ``chunk_size``. Spans need not adjoin: a chunk that was held back leaves a
    gap, which the router fills in by its own list.
    """
    return RankingWork(
        request_id=request.request_id,
        attempt=0,
        route="wide",
        cell=request.cell,
        lever="rma",
        router=router,
        reply_partition=reply_partition,
        intake_ms=request.intake_ms,
        deadline_ms=deadline_ms,
        user_id=request.user_id,
        user_features=request.user_features,
        history_ids=request.history_ids,
        ad_ids=_cut(request.ad_ids, spans, INT64_BYTES),
        bids=_cut(request.bids, spans, FLOAT32_BYTES),
        retrieval_scores=_cut(request.retrieval_scores, spans, FLOAT32_BYTES),
        first_position=spans[0][0],
        chunk_size=chunk_size,
        chunk_values_micro=[value_micro for _, _, value_micro in spans],
        platform=request.platform,
        advertiser_segment=request.advertiser_segment,
    )


def _cut(packed: bytes, spans: list[tuple[int, int, int]], item_bytes: int) -> bytes:
    return b"".join(packed[first * item_bytes : end * item_bytes] for first, end, _ in spans)
