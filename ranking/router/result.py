"""The one result of a request: merged scores, best first, with everything that explains them.

A score is a calibrated expected value, so scores of different routes compare. Shape legend: M merged candidates.
"""

import numpy as np
from numpy.typing import NDArray

from ranking.models.topk import top_k
from ranking.router.assignment import attribution_of
from ranking.router.open_request import Item, OpenRequest
from schemas.attribution_keys import UNSIGNED, AttributionKeys
from schemas.records import OptionalItem, RankingRequest, RankingResult
from schemas.records.fields import INT64_BYTES, MAX_TIME_MS, Route


def merged_ranking(
    open_request: OpenRequest, *, is_upgraded: bool
) -> tuple[NDArray[np.int64], NDArray[np.float32], int]:
    """Ad ids and scores of the results, best first, and how many candidates were ranked.

    Base candidates by the scores of the base answer, or by those of the upgrade; extras the same in both. A score that
    is no finite number is none: its candidate is left out.
    """
    if open_request.base_scores is None:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32), 0
    ad_ids = np.frombuffer(open_request.request.ad_ids, dtype="<i8")
    base = open_request.upgrade.scored if is_upgraded else [(0, open_request.base_scores)]
    scored = [*base, *open_request.extras.scored]
    ids_M = np.concatenate([ad_ids[first : first + len(scores)] for first, scores in scored])
    scores_M = np.concatenate([scores for _, scores in scored])
    is_finite_M = np.isfinite(scores_M)
    num_finite = int(np.count_nonzero(is_finite_M))
    if num_finite < len(scores_M):
        scores_M = np.where(is_finite_M, scores_M, np.float32(np.nan))
    best = top_k(scores_M, ids_M, open_request.request.num_results)
    return ids_M[best], scores_M[best], num_finite


def flipped(open_request: OpenRequest, ad_ids: NDArray[np.int64]) -> bool:
    """Whether other ads are shown than base scores would have led to. Which, not in which order: it is the decision."""
    base_ids, _, _ = merged_ranking(open_request, is_upgraded=False)
    return not np.array_equal(np.sort(ad_ids), np.sort(base_ids))


def result_of(
    open_request: OpenRequest, *, router: str, now_ms: float, keys: AttributionKeys = UNSIGNED
) -> RankingResult:
    """The result as it stands now. ``deadline_ms`` and ``completed_ms`` are on the broker's clock."""
    request, assigned = open_request.request, open_request.assignment
    has_base = open_request.base_scores is not None
    is_upgraded = has_base and bool(open_request.upgrade.scored)
    ad_ids, scores, num_ranked = merged_ranking(open_request, is_upgraded=is_upgraded)
    contributions: list[tuple[Route, str]] = []
    if has_base:
        contributions.append(("baseline", open_request.base_model_version))
        if open_request.extras.scored:
            contributions.append(("wide", open_request.extras.model_version))
        if is_upgraded:
            contributions.append(("powerful", open_request.upgrade.model_version))
    base_latency_us = _span_us(open_request.base_received_ms - open_request.append_ms) if has_base else None
    return RankingResult(
        request_id=request.request_id,
        user_id=request.user_id,
        cell=request.cell,
        status="error" if open_request.mistake else "ok",
        error=open_request.mistake,
        late=now_ms > open_request.deadline_ms,
        degraded=not (has_base or open_request.mistake),
        takeover=open_request.is_takeover,
        intake_ms=request.intake_ms,
        deadline_ms=int(open_request.deadline_ms),
        completed_ms=int(now_ms),
        base_latency_us=base_latency_us,
        latency_us=_span_us(now_ms - open_request.append_ms),
        num_base_attempts=len(open_request.base_partitions),
        num_base_candidates=open_request.num_base,
        num_candidates_offered=len(request.ad_ids) // INT64_BYTES,
        num_candidates_ranked=num_ranked,
        ad_ids=ad_ids.astype("<i8").tobytes(),
        scores=scores.astype("<f4").tobytes(),
        routes=[route for route, _ in contributions],
        model_versions=[version for _, version in contributions if version],
        arm=assigned.arm.name,
        dose=assigned.dose.num_extra,
        target_window_index=assigned.target_window_index,
        optional=[_optional_item(item) for item in open_request.items],
        router=router,
        attribution_token=attribution_of(request, assigned).token(
            request_id=request.request_id, user_id=request.user_id, keys=keys
        ),
        platform=request.platform,
        advertiser_segment=request.advertiser_segment,
        provider=request.provider,
        segment=assigned.segment,
        arm_propensity=assigned.arm_propensity,
        full_dose=assigned.dose.num_full,
        dose_propensity=assigned.dose.propensity,
        upgrade_assigned=assigned.upgrade.is_assigned,
        upgrade_propensity=assigned.upgrade.probability,
        flipped=flipped(open_request, ad_ids) if is_upgraded else None,
        is_aa=assigned.is_aa,
    )


def error_result(
    request: RankingRequest, error: str, *, router: str, append_ms: int, now_ms: float, takeover: bool
) -> RankingResult:
    """The result of a request that its caller got wrong."""
    return RankingResult(
        request_id=request.request_id,
        user_id=request.user_id,
        cell=request.cell,
        status="error",
        error=error,
        late=False,
        degraded=False,
        takeover=takeover,
        intake_ms=request.intake_ms,
        deadline_ms=min(max(0, append_ms + request.deadline_ms - request.intake_ms), MAX_TIME_MS),
        completed_ms=int(now_ms),
        base_latency_us=None,
        latency_us=_span_us(now_ms - append_ms),
        num_base_attempts=0,
        num_base_candidates=request.num_base_candidates,
        num_candidates_offered=len(request.ad_ids) // INT64_BYTES,
        num_candidates_ranked=0,
        ad_ids=b"",
        scores=b"",
        routes=[],
        model_versions=[],
        arm="",
        dose=0,
        target_window_index=None,
        optional=[],
        router=router,
        attribution_token="",
        platform=request.platform,
        advertiser_segment=request.advertiser_segment,
        provider=request.provider,
    )


def _optional_item(item: Item) -> OptionalItem:
    assert item.state in ("admitted", "shed", "pending"), "late and lost come after the result"
    return OptionalItem(
        lever=item.lever,
        route=item.route,
        chunk=item.chunk,
        units=item.units,
        cost_units=item.num_candidates,
        value_micro=item.value_micro,
        propensity=item.propensity,
        state=item.state,
        reason=item.reason,
    )


def _span_us(span_ms: float) -> int:
    return max(0, round(span_ms * 1000))
