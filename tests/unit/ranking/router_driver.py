"""A router's core on a fake clock, for tests: requests and answers by hand, and what it did sorted by kind."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ranking.handover import Takeover
from ranking.router.arms import ArmSettings
from ranking.router.core import RouterCore
from ranking.router.events import Action, Commit, Intake, PublishInterval, PublishResult, RefuseRequest, SendWork
from ranking.router.experiment import Experiment
from ranking.router.policy import RouterPolicy
from ranking.router.progress import PartitionProgress
from schemas.kafka.offsets import OffsetTracker
from schemas.partition import partition_for
from schemas.records import (
    CandidateTarget,
    ChunkShed,
    LatencyInterval,
    RankingAnswer,
    RankingRequest,
    RankingResult,
    RankingWork,
)
from schemas.tracing import TraceContext

NUM_PARTITIONS = 4
START_MS = 1_000_000.0
BUDGET_MS = 300
# Everybody may have everything, and nothing is left to chance: for tests of what is no experiment.
ALL_ALLOWED = Experiment(arms=ArmSettings(holdout_share=0.0, rma_share=1.0, sbm_share=1.0), explored_share=0.0)
TRACE = TraceContext("ab" * 16, "cd" * 8)


def request_of(request_id="r1", *, user_id="u1", now_ms=START_MS, num_candidates=400, num_base=100, **changes):
    fields = {
        "request_id": request_id,
        "user_id": user_id,
        "cell": "us-east",
        "intake_ms": int(now_ms),
        "deadline_ms": int(now_ms) + BUDGET_MS,
        "num_base_candidates": num_base,
        "num_results": 10,
        "ad_ids": np.arange(num_candidates, dtype="<i8").tobytes(),
        "bids": np.ones(num_candidates, dtype="<f4").tobytes(),
        "retrieval_scores": np.linspace(1, 0, num_candidates, dtype="<f4").tobytes(),
        "user_features": np.ones(4, dtype="<f4").tobytes(),
    }
    return RankingRequest(**(fields | changes))


def target_of(candidate_target, *, end_ms=START_MS, valid_until_ms=START_MS + 60_000, cell="us-east", **changes):
    fields = {
        "cell": cell,
        "window_index": int(end_ms // 10_000),
        "window_end_ms": int(end_ms),
        "valid_until_ms": int(valid_until_ms),
        "base_candidates": 100,
        "max_candidates": 4000,
        "candidate_target": candidate_target,
        "extra_budget_units_s": 1e6,
        "coverage": 0.0,
        "segment_shares": [],
        "reason": "test",
        "detail": "",
        "manifest": [],
        "latency_limit_ms": 300.0,
        "latency_p99_ms": None,
        "request_rate_per_s": 1.0,
        "controller_version": "1",
        "powerful_budget_units_s": 1e6,
    }
    return CandidateTarget(**(fields | changes))


def answer_to(work: RankingWork, partition: int, *, scores=None, scored=None, sheds=(), pressure=0.0, **changes):
    """An answer that scores the chunks ``scored`` (all by default) of the work, or those not in ``sheds``."""
    num = len(work.ad_ids) // 8
    dropped = {shed.chunk for shed in sheds}
    chunks = [c for c in range(len(work.chunk_values_micro)) if c not in dropped] if scored is None else scored
    sizes = [min(work.chunk_size, num - chunk * work.chunk_size) for chunk in chunks]
    if scores is None:
        scores = np.full(sum(sizes), 0.5)
    fields = {
        "request_id": work.request_id,
        "attempt": work.attempt,
        "route": work.route,
        "cell": work.cell,
        "lever": work.lever,
        "ranker": f"{work.route}-{partition}",
        "ranker_epoch_ms": 1,
        "work_partition": partition,
        "model_version": "m1",
        "scored_chunks": chunks,
        "scores": np.asarray(scores, dtype="<f4").tobytes(),
        "sheds": list(sheds),
        "queue_wait_us": 0,
        "busy_us": 1,
        "pressure": pressure,
    }
    return RankingAnswer(**(fields | changes))


def all_shed(work: RankingWork, reason: str) -> list[ChunkShed]:
    return [
        ChunkShed(chunk=chunk, reason=reason, num_candidates=1, value_micro=0)
        for chunk in range(len(work.chunk_values_micro))
    ]


class Driver:
    """A core with every partition assigned; ``now_ms`` moves only when told.

    Every user may have everything unless ``experiment`` says otherwise.
    """

    def __init__(
        self,
        *,
        policy=None,
        num_partitions=NUM_PARTITIONS,
        horizon=0,
        answered=(),
        assign=True,
        cells=None,
        experiment=ALL_ALLOWED,
    ):
        self.now_ms = START_MS
        self.core = RouterCore(
            replace(policy or RouterPolicy(), experiment=experiment),
            router="router-1",
            num_partitions=dict.fromkeys(("baseline", "wide", "powerful"), num_partitions),
            num_request_partitions=NUM_PARTITIONS,
            cells=cells,
        )
        self.works: list[SendWork] = []
        self.published: list[PublishResult] = []
        self.refused: list[RefuseRequest] = []
        self.commits: list[Commit] = []
        self.intervals: list[LatencyInterval] = []
        self._next_offset: dict[int, int] = defaultdict(int)
        self._next_result = 0
        if assign:
            for partition in range(NUM_PARTITIONS):
                takeover = Takeover(start=0, floor=0, horizon=horizon, results_end=0)
                progress = PartitionProgress(OffsetTracker(), takeover)
                self.core.assign(partition, progress, answered=answered)

    def request(self, request=None, *, key=None, partition=None, append_ms=None, **fields):
        """Append a request and let the router read it; returns the works that were sent for it."""
        record = request if request is not None else request_of(now_ms=self.now_ms, **fields)
        own_key = record.user_id.encode() if isinstance(record, RankingRequest) else b"u1"
        key = own_key if key is None else key
        partition = partition_for(own_key, NUM_PARTITIONS) if partition is None else partition
        intake = Intake(
            partition=partition,
            offset=self._next_offset[partition],
            key=key,
            append_ms=int(self.now_ms if append_ms is None else append_ms),
            record=record,
            trace=TRACE,
        )
        self._next_offset[partition] += 1
        before = len(self.works)
        self.take(self.core.request(intake, self.now_ms))
        return self.works[before:]

    def answer(self, sent: SendWork, **changes):
        self.take(self.core.answer(answer_to(sent.work, sent.partition, **changes), self.now_ms))

    def advance(self, to_ms: float):
        """Move to a time, waking the core whenever it asked for it."""
        while self.core.next_due_ms <= to_ms:
            self.now_ms = max(self.now_ms, self.core.next_due_ms)
            self.take(self.core.tick(self.now_ms))
        self.now_ms = max(self.now_ms, to_ms)

    def acknowledge(self, published: PublishResult):
        self.core.published(published.partition, published.offset, self.now_ms, results_offset=self._next_result)
        self._next_result += 1

    def take(self, actions: Sequence[Action]):
        for action in actions:
            match action:
                case SendWork():
                    self.works.append(action)
                case PublishResult():
                    self.published.append(action)
                case RefuseRequest():
                    self.refused.append(action)
                case Commit():
                    self.commits.append(action)
                case PublishInterval():
                    self.intervals.append(action.interval)

    @property
    def results(self) -> list[RankingResult]:
        return [published.result for published in self.published]

    def on(self, route: str) -> list[SendWork]:
        return [work for work in self.works if work.route == route]

    def totals(self) -> dict[str, int]:
        """Units of all accounts closed so far, by how they ended; sheds as ``shed:<reason>``."""
        totals: dict[str, int] = defaultdict(int)
        for interval in self.intervals:
            for account in interval.accounts:
                for state in ("offered", "admitted", "late", "lost"):
                    totals[state] += getattr(account, state)
                for shed in account.sheds:
                    totals[f"shed:{shed.reason}"] += shed.units
        return {name: units for name, units in totals.items() if units}
