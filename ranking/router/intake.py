"""Which requests are believed, and which are a caller's mistake."""

import numpy as np

from ranking.router.events import Intake
from ranking.router.policy import MAX_BID, RouterPolicy
from schemas.attribution import MAX_TOKEN_LENGTH, token_length
from schemas.errors import RecordError
from schemas.partition import partition_for
from schemas.records import RankingRequest
from schemas.records.fields import FLOAT32_BYTES, INT64_BYTES
from schemas.records.ranking import MAX_CANDIDATES

# A request may fill a record. Its work repeats the user beside up to MAX_CANDIDATES candidates (64 KiB) and names of
# its own, and must fit a record too: 64 KiB of features and 512 KiB of history leave room for all that.
MAX_USER_FEATURES = 16_384
MAX_HISTORY_IDS = 65_536


def refusal(intake: Intake, request: RankingRequest, *, num_partitions: int, skew_ms: int) -> RecordError | None:
    """Why a readable record cannot be believed, and so is dead-lettered; None when it can."""
    key = request.user_id.encode()
    if intake.key != key:
        return RecordError("key_mismatch", "the key is not the user", field="user_id")
    expected = partition_for(key, num_partitions)
    if intake.partition != expected:
        return RecordError(
            "wrong_partition", f"in partition {intake.partition}, the key leads to {expected}", field="user_id"
        )
    if request.intake_ms > intake.append_ms + skew_ms:
        ahead_ms = request.intake_ms - intake.append_ms
        return RecordError("future_event", f"{ahead_ms} ms ahead of its append time", field="intake_ms")
    bids = np.frombuffer(request.bids, dtype="<f4")
    # Comparisons with NaN are false, so this refuses it as well.
    if not ((bids >= 0.0) & (bids <= MAX_BID)).all():
        return RecordError("invalid_field", f"each bid must be in [0, {MAX_BID:g}]", field="bids")
    for field in ("retrieval_scores", "user_features"):
        if not np.isfinite(np.frombuffer(getattr(request, field), dtype="<f4")).all():
            return RecordError("invalid_field", "not a finite number", field=field)
    return None


def mistake(request: RankingRequest, *, segment: str, append_ms: int, policy: RouterPolicy) -> str:
    """What the caller did wrong, for the result to say; empty when nothing."""
    num_candidates = len(request.ad_ids) // INT64_BYTES
    num_features = len(request.user_features) // FLOAT32_BYTES
    num_past = len(request.history_ids) // INT64_BYTES
    budget_ms = request.deadline_ms - request.intake_ms
    reasons = (
        (num_candidates == 0, "no candidates"),
        (
            num_features > MAX_USER_FEATURES,
            f"user_features holds {num_features} values, at most {MAX_USER_FEATURES} are taken",
        ),
        (num_past > MAX_HISTORY_IDS, f"history_ids holds {num_past} ids, at most {MAX_HISTORY_IDS} are taken"),
        (
            num_candidates > MAX_CANDIDATES,
            f"ad_ids holds {num_candidates} candidates, at most {MAX_CANDIDATES} are ranked",
        ),
        (request.num_base_candidates == 0, "num_base_candidates is 0: every request has base work"),
        (
            request.num_base_candidates > num_candidates,
            f"num_base_candidates {request.num_base_candidates} exceeds the {num_candidates} candidates",
        ),
        (request.num_results == 0, "num_results is 0"),
        (budget_ms <= 0, "the deadline is not after the intake"),
        (budget_ms > policy.max_budget_ms, f"the deadline is {budget_ms} ms away, at most {policy.max_budget_ms}"),
        (request.deadline_ms < append_ms - policy.skew_ms, "the deadline had passed before the request was appended"),
        (
            token_length(cell=request.cell, segment=segment) > MAX_TOKEN_LENGTH,
            "cell and segment are too long together",
        ),
    )
    return next((reason for is_wrong, reason in reasons if is_wrong), "")
