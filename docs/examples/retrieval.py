"""A retrieval service in front of Intertidal: ask how many candidates to fetch now, fetch them, send the request.

KAFKA_BOOTSTRAP=127.0.0.1:9092 python docs/examples/retrieval.py us-east

What to keep in mind:

- `candidates_to_fetch` reads a table in memory that a thread keeps up to date: it costs a microsecond and never waits.
  While no target is valid (no controller, no broker, not started yet) it says base, so a stale view fetches no more.
- The first `BASE_CANDIDATES` are always ranked; the others only where there is idle capacity. The better come first.
- Say what retrieval and features took (`upstream_us`): the controller asks for less where they are what is slow.
- The deadline is the caller's. It is told in the caller's own time, and counts from the moment the broker has it.
"""

import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ranking.client.requests import RequestProducer
from ranking.client.targets import TargetsView
from schemas.records import RankingRequest
from schemas.topics import Namespace

BASE_CANDIDATES = 64
NUM_RESULTS = 10
DEADLINE_MS = 200


@dataclass(frozen=True, kw_only=True)
class Retrieved:
    """Candidates of one user, best first: int64 and float32 arrays of one length."""

    ad_ids_N: NDArray[np.int64]
    bids_N: NDArray[np.float32]
    scores_N: NDArray[np.float32]
    user_features_F: NDArray[np.float32]


def ask(
    user_id: str,
    *,
    cell: str,
    candidates_to_fetch: Callable[[str], int],
    retrieve: Callable[[str, int], Retrieved],
    now_ms: Callable[[], float] = lambda: time.time() * 1_000,
) -> RankingRequest:
    """The request for one user, with as many candidates as the cell wants now."""
    intake_ms = now_ms()
    found = retrieve(user_id, candidates_to_fetch(cell))
    return RankingRequest(
        request_id=uuid.uuid4().hex,
        user_id=user_id,
        cell=cell,
        intake_ms=int(intake_ms),
        deadline_ms=int(intake_ms) + DEADLINE_MS,
        # Retrieval may find fewer than it was asked for.
        num_base_candidates=min(BASE_CANDIDATES, len(found.ad_ids_N)),
        num_results=NUM_RESULTS,
        ad_ids=found.ad_ids_N.astype("<i8").tobytes(),
        bids=found.bids_N.astype("<f4").tobytes(),
        retrieval_scores=found.scores_N.astype("<f4").tobytes(),
        user_features=found.user_features_F.astype("<f4").tobytes(),
        upstream_us=max(0, int((now_ms() - intake_ms) * 1_000)),
    )


def made_up(user_id: str, num_candidates: int) -> Retrieved:
    """Stands for a retrieval service of yours."""
    rng = np.random.default_rng(list(user_id.encode()))
    return Retrieved(
        ad_ids_N=rng.integers(1, 10_000, num_candidates),
        bids_N=rng.uniform(0.1, 2.0, num_candidates).astype(np.float32),
        scores_N=np.linspace(1.0, 0.0, num_candidates, dtype=np.float32),
        user_features_F=np.zeros(15, dtype=np.float32),
    )


def main(cell: str) -> None:
    """Ten requests, one a tenth of a second."""
    requests = RequestProducer(Namespace())
    with TargetsView(Namespace(), default_base_candidates=BASE_CANDIDATES) as targets:
        targets.wait_until_caught_up(timeout_s=10.0)
        for number in range(10):
            request = ask(
                f"user-{number}", cell=cell, candidates_to_fetch=targets.candidates_to_fetch, retrieve=made_up
            )
            requests.send(request)
            print(f"{request.request_id} with {len(request.ad_ids) // 8} candidates")
            time.sleep(0.1)
    requests.drain()


if __name__ == "__main__":
    main(*sys.argv[1:2] or ["us-east"])
