"""What one shown item becomes: a result and its outcomes in each cell. Pure.

    cells     CAMPAIGN, its segments are positions; CAMPAIGN.user_feature_N, its segments are the values of that
    arm       none: chosen by the random policy; sbm: by Bernoulli Thompson sampling
    upgrade   no, yes: the same, drawn with the logged propensity of the shown item (``drawn_micro``)

Contrast ``sbm`` then is the difference of the policies' mean rewards as they were logged. In ``upgrade`` each row
counts 1 / propensity, which makes both policies choose uniformly: what is left of the difference is no gain of a
policy, but shows how far the logged propensities can be trusted.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Final, Literal

from ops.bandit_import.files import ARM_OF, LogFile
from ops.replay.said import Said
from ranking.models.training.open_bandit_rows import USER_FEATURES, BanditRow
from schemas.attribution import MICRO, Attribution
from schemas.records import RankingOutcome, RankingResult
from schemas.records.fields import Route
from schemas.records.measurement import DrawnUpgrade
from schemas.topics import RANKING_OUTCOMES, RANKING_RESULTS

_ROUTE_OF: Final[dict[str, Route]] = {"none": "baseline", "sbm": "powerful"}
_INT64: Final = 8


def cells_of(campaign: str) -> list[str]:
    """The cells of a campaign: the whole, and one for each user feature."""
    return [campaign, *(f"{campaign}.{feature}" for feature in USER_FEATURES)]


def time_ms(moment: datetime) -> int:
    """Milliseconds since the Unix epoch, cut off: a log keeps no event before it happened."""
    return int(moment.timestamp() * 1_000)


def drawn_micro(propensity: float, *, min_propensity: float) -> int:
    """Propensity in millionths as it is counted: not below the floor, and short of certainty, which is no draw."""
    return min(MICRO - 1, max(1, round(max(propensity, min_propensity) * MICRO)))


def records_of(file: LogFile, line: int, row: BanditRow, *, min_propensity: float) -> Iterator[Said]:
    """The records of one row, in all cells. There are no users in the log: each row is one of its own."""
    user_id = f"{file.name}:{line}"
    for cell, segment in zip(cells_of(file.campaign), (row.position, *row.user_features), strict=True):
        yield from _in_cell(
            file, user_id, row, cell, segment, micro=drawn_micro(row.propensity, min_propensity=min_propensity)
        )


def _in_cell(file: LogFile, user_id: str, row: BanditRow, cell: str, segment: str, *, micro: int) -> Iterator[Said]:
    arm = ARM_OF[file.policy]
    upgrade: DrawnUpgrade = "yes" if arm == "sbm" else "no"
    at_ms = time_ms(row.time)
    request_id = f"{cell}/{user_id}"
    token = Attribution(
        cell=cell, segment=segment, arm=arm, intake_ms=at_ms, upgrade=upgrade, upgrade_micro=micro
    ).token(request_id=request_id, user_id=user_id)
    result = RankingResult(
        request_id=request_id,
        user_id=user_id,
        cell=cell,
        status="ok",
        error="",
        late=False,
        degraded=False,
        takeover=False,
        intake_ms=at_ms,
        deadline_ms=at_ms,
        completed_ms=at_ms,
        base_latency_us=None,
        latency_us=0,
        num_base_attempts=0,
        num_base_candidates=1,
        num_candidates_offered=1,
        num_candidates_ranked=1,
        ad_ids=row.item.to_bytes(_INT64, "little"),
        scores=bytes(4),
        routes=[_ROUTE_OF[arm]],
        model_versions=[file.policy],
        arm=arm,
        dose=0,
        target_window_index=None,
        optional=[],
        router="import",
        attribution_token=token,
        segment=segment,
        # With which probability a row was of which policy the log does not say.
        arm_propensity=0.0,
        upgrade_assigned=upgrade == "yes",
        upgrade_propensity=(micro if upgrade == "yes" else MICRO - micro) / MICRO,
    )
    yield Said(RANKING_RESULTS.name, user_id.encode(), result, at_ms)
    kinds: tuple[Literal["view", "click"], ...] = ("view", "click") if row.clicked else ("view",)
    for kind in kinds:
        outcome = RankingOutcome(
            outcome_id=f"{request_id}/{kind}",
            attribution_token=token,
            request_id=request_id,
            user_id=user_id,
            cell=cell,
            ad_id=row.item,
            kind=kind,
            value=0.0,
            exposure_time_ms=at_ms,
            event_time_ms=at_ms,
        )
        yield Said(RANKING_OUTCOMES.name, user_id.encode(), outcome, at_ms)
