"""Records of work made from a request. Base work is made from the request alone."""

from collections.abc import Sequence

from ranking.router.open_request import Item
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


def optional_work(
    request: RankingRequest,
    items: Sequence[Item],
    *,
    router: str,
    reply_partition: int,
    deadline_ms: int,
    chunk_size: int,
) -> RankingWork:
    """Work on optional items of one lever, one chunk each, rising.

    Only the last item may be shorter than ``chunk_size``. Items need not adjoin: a chunk that was held back leaves a
    gap, which the router fills in by its own list.
    """
    spans = [(item.first, item.end) for item in items]
    return RankingWork(
        request_id=request.request_id,
        attempt=0,
        route=items[0].route,
        cell=request.cell,
        lever=items[0].lever,
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
        first_position=items[0].first,
        chunk_size=chunk_size,
        chunk_values_micro=[item.value_micro for item in items],
        propensity=items[0].propensity,
        platform=request.platform,
        advertiser_segment=request.advertiser_segment,
    )


def _cut(packed: bytes, spans: list[tuple[int, int]], item_bytes: int) -> bytes:
    return b"".join(packed[first * item_bytes : end * item_bytes] for first, end in spans)
