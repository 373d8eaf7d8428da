"""Results and outcomes for the tests of what measurement rests on."""

from typing import Any

import msgspec

from schemas.attribution import Attribution
from schemas.attribution_keys import UNSIGNED, AttributionKeys
from schemas.partition import partition_for
from schemas.records import OptionalItem, RankingOutcome, RankingResult
from tests.unit.streams.ingest_makers import NUM_PARTITIONS

CELLS = ("us-east", "us-west")
# A partition, and users whose keys lead to it.
HOME = 1
USERS = [
    name for name in (f"user-{number}" for number in range(60)) if partition_for(name.encode(), NUM_PARTITIONS) == HOME
]


def result(number: int = 0, *, at_ms: int, user: str = USERS[0], cell: str = CELLS[0], **changes: Any) -> RankingResult:
    made = RankingResult(
        request_id=f"r-{number}",
        user_id=user,
        cell=cell,
        status="ok",
        error="",
        late=False,
        degraded=False,
        takeover=False,
        intake_ms=at_ms,
        deadline_ms=at_ms + 200,
        completed_ms=at_ms + 10,
        base_latency_us=9_000,
        latency_us=10_000,
        num_base_attempts=1,
        num_base_candidates=64,
        num_candidates_offered=300,
        num_candidates_ranked=64,
        ad_ids=b"",
        scores=b"",
        routes=["baseline", "powerful"],
        model_versions=["b-1", "p-1"],
        arm="both",
        dose=100,
        target_window_index=3,
        optional=[],
        router="router-1",
        attribution_token="",
        segment="games",
        arm_propensity=0.8,
        full_dose=200,
        dose_propensity=0.05,
        upgrade_assigned=True,
        upgrade_propensity=0.25,
    )
    return msgspec.structs.replace(made, **changes)


def outcome(
    number: int = 0, *, at_ms: int, user: str = USERS[0], keys: AttributionKeys = UNSIGNED, **changes: Any
) -> RankingOutcome:
    said: dict[str, Any] = {
        "cell": CELLS[0],
        "segment": "games",
        "arm": "both",
        "intake_ms": at_ms - 50,
        "depth": "half",
    }
    said |= {"depth_micro": 50_000, "upgrade": "no", "upgrade_micro": 750_000} | changes.pop("said", {})
    made = RankingOutcome(
        outcome_id=f"o-{number}",
        attribution_token=Attribution(**said).token(request_id="r-0", user_id=user, keys=keys),
        request_id="r-0",
        user_id=user,
        cell=said["cell"],
        ad_id=7,
        kind="click",
        value=3.0,
        exposure_time_ms=at_ms - 40,
        event_time_ms=at_ms,
    )
    return msgspec.structs.replace(made, **changes)


def item(lever: Any, *, units: int, state: Any, value_micro: int = 5) -> OptionalItem:
    return OptionalItem(
        lever=lever,
        route="wide" if lever == "rma" else "powerful",
        chunk=0,
        units=units,
        cost_units=units,
        value_micro=value_micro,
        propensity=1.0,
        state=state,
    )
