"""Base work: sent for every request at once, and once more elsewhere when it is overdue."""

import random

import numpy as np

from ranking.callers_mistake import mistake_in
from ranking.router.events import SendWork
from ranking.router.open_request import OpenRequest
from ranking.router.partitions import PartitionBook, WorkKey
from ranking.router.policy import RouterPolicy
from ranking.router.retries import RetryBudget
from ranking.router.tail import LearnedTail, overdue_after_ms
from ranking.router.work import base_work
from schemas.records import RankingAnswer


class BaseSender:
    """Sends base work and judges its answers. Nothing here knows of targets, pools or other routes."""

    def __init__(self, policy: RouterPolicy, *, router: str, num_partitions: int, rng: random.Random) -> None:
        self._policy = policy
        self._router = router
        self.book = PartitionBook(num_partitions, rng=rng, probe_interval_ms=policy.probe_interval_ms)
        self._budget = RetryBudget(
            share=policy.retry_share,
            burst=policy.retry_burst,
            max_overdue_ms=policy.overdue_high_share * policy.max_budget_ms,
        )
        self._tail = LearnedTail(0.99)

    def overdue_ms(self, budget_ms: float, now_ms: float) -> float:
        """How long base work of a request may be out before it is sent elsewhere."""
        return overdue_after_ms(
            self._tail.value(now_ms),
            budget_ms,
            factor=self._policy.overdue_factor,
            low_share=self._policy.overdue_low_share,
            high_share=self._policy.overdue_high_share,
        )

    def first(self, open_request: OpenRequest, now_ms: float) -> SendWork:
        """The first attempt, for every request."""
        self._budget.request(now_ms)
        partition = self.book.choose(now_ms)
        return self._send(open_request, self.book.choose_any() if partition is None else partition, now_ms)

    def again(self, open_request: OpenRequest, now_ms: float) -> SendWork | None:
        """The second and last attempt, at another owner; None when there is no other, or no budget for it now."""
        assert len(open_request.base_partitions) == 1, "base work is retried once"
        partition = self.book.choose_elsewhere(open_request.base_partitions[0])
        if partition is None or not self._budget.take(now_ms, overdue_ms=open_request.overdue_ms):
            return None
        return self._send(open_request, partition, now_ms)

    def answered(self, answer: RankingAnswer, now_ms: float) -> float | None:
        """Note an answer; returns its latency in milliseconds, None for work that is not outstanding."""
        key: WorkKey = (answer.request_id, "baseline", answer.attempt)
        # What the caller got wrong is no fault of the replica's.
        is_usable = not answer.error or bool(mistake_in(answer.error))
        sent_ms = self.book.answered(key, partition=answer.work_partition, owner=answer.ranker, is_usable=is_usable)
        if sent_ms is None:
            return None
        if is_usable:
            self._tail.record(now_ms - sent_ms, now_ms)
        return now_ms - sent_ms

    def _send(self, open_request: OpenRequest, partition: int, now_ms: float) -> SendWork:
        attempt = len(open_request.base_partitions)
        key: WorkKey = (open_request.request.request_id, "baseline", attempt)
        open_request.base_partitions.append(partition)
        open_request.waiting.add(key)
        self.book.sent(key, partition, now_ms)
        work = base_work(
            open_request.request,
            router=self._router,
            reply_partition=open_request.partition,
            attempt=attempt,
            deadline_ms=int(open_request.wait_until_ms),
            chunk_size=self._policy.chunk_size,
        )
        return SendWork(route="baseline", partition=partition, work=work, trace=open_request.trace)


def take_base_answer(open_request: OpenRequest, answer: RankingAnswer, now_ms: float) -> bool:
    """Keep the first usable base answer; False when this one is of no use: an error, or not a score for each candidate.

    Whose attempt it answers does not matter: base work is made from the request alone.
    """
    scores = np.frombuffer(answer.scores, dtype="<f4")
    if answer.error or len(scores) != open_request.num_base:
        return False
    if open_request.base_scores is None:
        open_request.base_scores = scores
        open_request.base_received_ms = now_ms
        open_request.base_model_version = answer.model_version
        open_request.last_wanted_ms = now_ms
    return True
