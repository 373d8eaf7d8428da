"""The request path: requests, work, answers, results and outcomes. Arrays are packed little-endian."""

from typing import Literal

from msgspec import Struct

from schemas.records.fields import (
    FLOAT32_BYTES,
    INT64_BYTES,
    CellName,
    Count,
    Label,
    Lever,
    Money,
    Name,
    Packed,
    Partition,
    Route,
    Share,
    Text,
    TimeMs,
    packed_length,
    require_length,
)

# More candidates than this in one request are a mistake, and are refused before memory is taken for them.
MAX_CANDIDATES = 4_096


class RankingRequest(Struct, frozen=True, kw_only=True):
    """One request for a ranking; candidates in the caller's retrieval order, best first.

    ``ad_ids`` int64 [N], ``bids`` float32 [N] (value per click), ``retrieval_scores`` float32 [N]. The first
    ``num_base_candidates`` are base work; the others are ranked only where idle capacity allows it. The answer is
    wanted by ``deadline_ms``. ``upstream_us`` is what the caller already spent on retrieval and features.
    """

    request_id: Name
    user_id: Name
    cell: CellName
    intake_ms: TimeMs
    deadline_ms: TimeMs
    num_base_candidates: Count
    num_results: Count
    ad_ids: Packed
    bids: Packed
    retrieval_scores: Packed
    user_features: Packed
    history_ids: Packed = b""
    platform: Label = ""
    advertiser_segment: Label = ""
    provider: Label = ""
    upstream_us: Count = 0

    def __post_init__(self) -> None:
        num_candidates = packed_length(self.ad_ids, INT64_BYTES, field="ad_ids")
        require_length(self.bids, FLOAT32_BYTES, num_candidates, field="bids")
        require_length(self.retrieval_scores, FLOAT32_BYTES, num_candidates, field="retrieval_scores")
        packed_length(self.user_features, FLOAT32_BYTES, field="user_features")
        packed_length(self.history_ids, INT64_BYTES, field="history_ids")


class RankingWork(Struct, frozen=True, kw_only=True):
    """Work for one replica: candidates of one request, in chunks of ``chunk_size`` (the last may be shorter).

    ``chunk_values_micro`` holds the expected value of each chunk (0 for base work, which is never weighed). The
    answer goes to partition ``reply_partition`` of the answers by ``deadline_ms``. ``lever`` is None for base work.
    ``first_position`` is the place of the first candidate in the request's retrieval order.
    """

    request_id: Name
    attempt: Count
    route: Route
    cell: CellName
    lever: Lever | None
    router: Name
    reply_partition: Partition
    intake_ms: TimeMs
    deadline_ms: TimeMs
    user_id: Name
    user_features: Packed
    history_ids: Packed
    ad_ids: Packed
    bids: Packed
    retrieval_scores: Packed
    first_position: Count
    chunk_size: Count
    chunk_values_micro: list[Count]
    propensity: Share = 1.0
    platform: Label = ""
    advertiser_segment: Label = ""

    def __post_init__(self) -> None:
        num_candidates = packed_length(self.ad_ids, INT64_BYTES, field="ad_ids")
        require_length(self.bids, FLOAT32_BYTES, num_candidates, field="bids")
        require_length(self.retrieval_scores, FLOAT32_BYTES, num_candidates, field="retrieval_scores")
        packed_length(self.user_features, FLOAT32_BYTES, field="user_features")
        packed_length(self.history_ids, INT64_BYTES, field="history_ids")
        if num_candidates == 0:
            raise ValueError("ad_ids: work needs at least one candidate")
        if self.chunk_size == 0:
            raise ValueError("chunk_size: work needs a positive one")
        num_chunks = -(-num_candidates // self.chunk_size)
        if len(self.chunk_values_micro) != num_chunks:
            raise ValueError(f"chunk_values_micro: {len(self.chunk_values_micro)} values for {num_chunks} chunks")


class ChunkShed(Struct, frozen=True, kw_only=True):
    """One chunk of optional work that a replica dropped, and why."""

    chunk: Count
    reason: Name
    num_candidates: Count
    value_micro: Count


class RankingAnswer(Struct, frozen=True, kw_only=True):
    """What one replica says to one piece of work.

    ``scored_chunks`` lists the chunks that were scored, rising; ``scores`` float32 [sum of their sizes] holds their
    expected values in that order. Each other chunk stands in ``sheds``. ``error`` is empty unless scoring failed.
    ``pressure`` in [0, 1] is the replica's own: 0 idle, 1 nothing more can be met in time.
    """

    request_id: Name
    attempt: Count
    route: Route
    cell: CellName
    lever: Lever | None
    ranker: Name
    ranker_epoch_ms: TimeMs
    work_partition: Partition
    model_version: Label
    scored_chunks: list[Count]
    scores: Packed
    sheds: list[ChunkShed]
    queue_wait_us: Count
    busy_us: Count
    pressure: Share
    error: Text = ""

    def __post_init__(self) -> None:
        packed_length(self.scores, FLOAT32_BYTES, field="scores")


class OptionalItem(Struct, frozen=True, kw_only=True):
    """What became of one optional item of a request by the time its result was published.

    ``units`` by assigned dose (candidates for RMA, requests for SBM); ``cost_units`` in candidates scored. A pending
    item closes later, as late or lost, in the router's interval record. ``propensity`` is the probability with which it
    was assigned where its user's arm allows the lever.
    """

    lever: Lever
    route: Route
    chunk: Count
    units: Count
    cost_units: Count
    value_micro: Count
    propensity: Share
    state: Literal["admitted", "shed", "pending"]
    reason: Label = ""


class RankingResult(Struct, frozen=True, kw_only=True):
    """The final ranking of one request: one per request, with everything needed to explain it.

    ``ad_ids`` int64 [K] and ``scores`` float32 [K] are best first. ``late`` says that it was published after the
    deadline, ``degraded`` that the base ranking is missing from it, ``takeover`` that another router finished it.
    ``status`` is ``error`` for a caller's mistake, named in ``error``. ``routes`` names those whose answers it was made
    of: where ``powerful`` is among them, base candidates are ranked by its scores.

    What was assigned, whatever became of it: ``arm`` by the user, with probability ``arm_propensity``; within it
    ``dose`` extra candidates of the ``full_dose`` that the target asked for, with probability ``dose_propensity``; and
    the stronger model (``upgrade_assigned``) with probability ``upgrade_propensity``. What was not drawn by chance has
    probability 1 or 0.

    ``flipped`` says whether the stronger model changed which ads are shown: against the ranking that base scores would
    have given with the same extras. None where there was nothing to compare. ``is_aa`` says that arm and draws stand
    here and nothing followed from them: the request was served by base work alone.
    """

    request_id: Name
    user_id: Name
    cell: CellName
    status: Literal["ok", "error"]
    error: Text
    late: bool
    degraded: bool
    takeover: bool
    intake_ms: TimeMs
    deadline_ms: TimeMs
    completed_ms: TimeMs
    base_latency_us: Count | None
    latency_us: Count
    num_base_attempts: Count
    num_base_candidates: Count
    num_candidates_offered: Count
    num_candidates_ranked: Count
    ad_ids: Packed
    scores: Packed
    routes: list[Route]
    model_versions: list[Name]
    arm: Label
    dose: Count
    target_window_index: Count | None
    optional: list[OptionalItem]
    router: Name
    attribution_token: Label
    platform: Label = ""
    advertiser_segment: Label = ""
    provider: Label = ""
    segment: Label = ""
    arm_propensity: Share = 1.0
    full_dose: Count = 0
    dose_propensity: Share = 1.0
    upgrade_assigned: bool = False
    upgrade_propensity: Share = 0.0
    flipped: bool | None = None
    is_aa: bool = False

    def __post_init__(self) -> None:
        require_length(
            self.scores, FLOAT32_BYTES, packed_length(self.ad_ids, INT64_BYTES, field="ad_ids"), field="scores"
        )


class RankingOutcome(Struct, frozen=True, kw_only=True):
    """What a user did with a shown ad; echoes the attribution token of the result, so that nothing need be joined."""

    outcome_id: Name
    attribution_token: Label
    request_id: Name
    user_id: Name
    cell: CellName
    ad_id: int
    kind: Literal["view", "click", "conversion"]
    value: Money
    exposure_time_ms: TimeMs
    event_time_ms: TimeMs
    platform: Label = ""
    advertiser_segment: Label = ""
