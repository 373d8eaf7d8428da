"""One route of optional work: where it is sent, and what is held back. Every lever's route is of this kind.

What says that a replica is overloaded is its pressure (`ranking.consumer.pressure`): the share of its time that work
has used up waiting or surely will, as answers carry it. It is the queue wait of DAGOR (H. Zhou et al., "Overload
Control for Scaling WeChat Microservices", 2018) put in proportion to the deadline. Not the time to the answer, which
also grows where the broker or this host is slow and sending less would help nobody; not the load of the processor,
which says nothing of a wait; not the share of refusals, which comes only when work has been lost already. It is heeded
with the answer that brings it: within milliseconds.

A closed gate is no pressure: nothing may run there at all, however little is sent. A replica that says so is left
altogether, and tried again by one piece of work after `gate_probe_interval_ms`, then after twice that, and so on up to
eight times, until it answers anything else. So the work goes to the replicas that are open, and comes back without a
stampede: each router finds out at a time of its own, and two choices level what they send. One whose model fails is
left and tried again in the same way: it answers at once, and two choices alone would send it the most.
"""

import random
from dataclasses import dataclass

import numpy as np

from ranking.router.events import SendWork
from ranking.router.open_request import Item, LeverWork, OpenRequest
from ranking.router.partitions import PartitionBook, WorkKey
from ranking.router.policy import RouterPolicy
from ranking.router.pressure import Throttle, ValueGate
from ranking.router.work import optional_work
from schemas.records import RankingAnswer
from schemas.records.fields import Route

_MAX_REPLICAS = 1024
# The longest wait between two tries of a closed replica, in intervals: an owner keeps its capacity for minutes, and
# each try costs a request its optional work.
_MAX_PROBE_INTERVALS = 8
# What a replica answers that will run nothing optional for now, or never again.
_CLOSED = frozenset({"gate_closed", "draining"})
# What one answers whose model fails: at once and at no pressure, so that it looks like the one to send the most to.
_FAILING = frozenset({"model_error", "out_of_memory"})


@dataclass(slots=True)
class _Replica:
    throttle: Throttle
    is_closed: bool = False
    is_failing: bool = False
    probe_at_ms: float = 0.0
    probe_wait_ms: float = 0.0


class OptionalRoute:
    """Partitions and replicas of one route."""

    def __init__(
        self, policy: RouterPolicy, *, route: Route, router: str, num_partitions: int, rng: random.Random
    ) -> None:
        self._policy = policy
        self._route: Route = route
        self._router = router
        self.book = PartitionBook(num_partitions, rng=rng, probe_interval_ms=policy.probe_interval_ms)
        self._gate = ValueGate()
        # By replica, so that the first answer of a pressed one holds for all its partitions at once; of a partition
        # that never answered there is none.
        self._replicas: dict[str, _Replica] = {}
        self._num_closed = 0

    def send(
        self, open_request: OpenRequest, work: LeverWork, *, chunk_size: int, deadline_ms: float, now_ms: float
    ) -> SendWork | None:
        """Work on the items, those of the highest value per cost where only a share may be sent; the rest is shed."""
        partition = self._choose(now_ms)
        if partition is None:
            work.shed(self._why_nobody())
            return None
        admitted = self._gate.admit(
            np.array([item.value_micro for item in work.items], dtype=np.int64),
            np.array([item.num_candidates for item in work.items], dtype=np.int64),
            self._replica(partition).throttle,
            now_ms,
        )
        work.sent = [item for item, is_sent in zip(work.items, admitted, strict=True) if is_sent]
        _shed([item for item, is_sent in zip(work.items, admitted, strict=True) if not is_sent], "pressure")
        if not work.sent:
            return None
        work.is_answered = False
        key = self.key(open_request.request.request_id)
        self.book.sent(key, partition, now_ms)
        open_request.waiting.add(key)
        record = optional_work(
            open_request.request,
            work.sent,
            router=self._router,
            reply_partition=open_request.partition,
            deadline_ms=int(deadline_ms),
            chunk_size=chunk_size,
        )
        return SendWork(route=self._route, partition=partition, work=record, trace=open_request.trace)

    def answered(self, answer: RankingAnswer, now_ms: float) -> float | None:
        """Heed an answer; returns its latency in milliseconds, None for work that is not outstanding."""
        replica = self._named(answer.ranker)
        reasons = {shed.reason for shed in answer.sheds}
        is_failing = not answer.scored_chunks and not reasons.isdisjoint(_FAILING)
        is_closed = is_failing or not reasons.isdisjoint(_CLOSED)
        if is_closed and not replica.is_closed:
            replica.probe_wait_ms = self._policy.gate_probe_interval_ms
            replica.probe_at_ms = now_ms + replica.probe_wait_ms
        elif not is_closed:
            replica.throttle.answer(answer.pressure, now_ms)
        self._num_closed += is_closed - replica.is_closed
        replica.is_closed, replica.is_failing = is_closed, is_failing
        sent_ms = self.book.answered(self.key(answer.request_id), partition=answer.work_partition, owner=answer.ranker)
        self._forget()
        return None if sent_ms is None else now_ms - sent_ms

    def overdue(self, request_id: str) -> None:
        """An answer could not count any more: suspect the partition that owes it."""
        self.book.suspect(self.key(request_id))

    def key(self, request_id: str) -> WorkKey:
        """What optional work of a request is known by: it is sent once."""
        return (request_id, self._route, 0)

    def _choose(self, now_ms: float) -> int | None:
        if not self._num_closed:
            return self.book.choose(now_ms, weight=lambda number: self._weight(number, now_ms))
        avoided: set[int] = set()
        for name in [name for name, replica in self._replicas.items() if replica.is_closed]:
            replica = self._replicas[name]
            owned = self.book.owned_by(name)
            if not owned:
                # Others have answered from all its partitions since.
                del self._replicas[name]
                self._num_closed -= 1
            elif now_ms >= replica.probe_at_ms:
                longest_ms = _MAX_PROBE_INTERVALS * self._policy.gate_probe_interval_ms
                replica.probe_wait_ms = min(2.0 * replica.probe_wait_ms, longest_ms)
                replica.probe_at_ms = now_ms + replica.probe_wait_ms
                # In turn: a partition that went to another replica meanwhile is found again as well.
                return owned[0]
            avoided.update(owned)
        return self.book.choose(now_ms, weight=lambda number: self._weight(number, now_ms), avoided=avoided)

    def _why_nobody(self) -> str:
        """Reason of what is shed unsent: no owner, or none that would run it."""
        if not self._num_closed:
            return "route_silent"
        is_gate = any(replica.is_closed and not replica.is_failing for replica in self._replicas.values())
        return "gate_closed" if is_gate else "model_error"

    def _weight(self, partition: int, now_ms: float) -> float:
        owner = self.book.owner(partition)
        replica = None if owner is None else self._replicas.get(owner)
        return 1.0 if replica is None else 1.0 / max(0.01, replica.throttle.quota(now_ms))

    def _replica(self, partition: int) -> _Replica:
        return self._named(self.book.owner(partition) or f"partition {partition}")

    def _named(self, name: str) -> _Replica:
        replica = self._replicas.get(name)
        if replica is None:
            policy = self._policy
            replica = _Replica(Throttle(knee=policy.pressure_knee, recovery_per_s=policy.recovery_per_s))
            self._replicas[name] = replica
        return replica

    def _forget(self) -> None:
        """Opportunistic replicas come and go under new names."""
        if len(self._replicas) > _MAX_REPLICAS:
            owners = self.book.owners
            self._replicas = {name: replica for name, replica in self._replicas.items() if name in owners}
            self._num_closed = sum(replica.is_closed for replica in self._replicas.values())


def _shed(items: list[Item], reason: str) -> None:
    for item in items:
        item.state = "shed"
        item.reason = reason
