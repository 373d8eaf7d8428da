"""Extra candidates for the wide route: how many, in which chunks, and which of them are sent."""

import random
from collections import defaultdict

import numpy as np

from ranking.client.target_table import TargetTable
from ranking.router.events import SendWork
from ranking.router.open_request import Extras, Item, OpenRequest
from ranking.router.partitions import PartitionBook, WorkKey
from ranking.router.policy import RouterPolicy
from ranking.router.pressure import Throttle, ValueGate
from ranking.router.value import MarginalValueCurve, chunk_values_micro
from ranking.router.work import extra_work
from schemas.records.fields import INT64_BYTES

_MAX_THROTTLES = 1024


class ExtrasPlanner:
    """Assigns and sends optional work of the lever RMA."""

    def __init__(
        self,
        policy: RouterPolicy,
        *,
        router: str,
        targets: TargetTable,
        curve: MarginalValueCurve,
        num_partitions: int,
        rng: random.Random,
    ) -> None:
        self._policy = policy
        self._router = router
        self._targets = targets
        self._curve = curve
        self.book = PartitionBook(num_partitions, rng=rng, probe_interval_ms=policy.probe_interval_ms)
        self._gate = ValueGate()
        self._throttles: dict[str, Throttle] = defaultdict(
            lambda: Throttle(knee=policy.pressure_knee, recovery_per_s=policy.recovery_per_s)
        )

    def plan(self, open_request: OpenRequest, now_ms: float) -> SendWork | None:
        """Assign extras as the cell's target asks; returns the work to send, or None. Sheds what is not sent."""
        target = self._targets.valid(open_request.request.cell, now_ms)
        deadline_ms = open_request.extras_by_ms - self._policy.optional_margin_ms
        is_too_late = now_ms >= deadline_ms or open_request.wait_until_ms > open_request.deadline_ms
        if target is None or open_request.is_takeover or is_too_late:
            return None
        num_candidates = len(open_request.request.ad_ids) // INT64_BYTES
        open_request.target_window_index = target.window_index
        open_request.dose = max(0, min(target.candidate_target, num_candidates) - open_request.num_base)
        if open_request.dose == 0:
            return None
        open_request.extras = Extras(items=self._items(open_request))
        partition = self.book.choose(now_ms, weight=lambda number: 1.0 / max(0.01, self._quota(number, now_ms)))
        if partition is None:
            _shed(open_request.extras.items, "route_silent")
            return None
        admitted = self._gate.admit(
            np.array([item.value_micro for item in open_request.extras.items], dtype=np.int64),
            np.array([item.units for item in open_request.extras.items], dtype=np.int64),
            self._throttle(partition),
            now_ms,
        )
        _shed(
            [item for item, is_sent in zip(open_request.extras.items, admitted, strict=True) if not is_sent], "pressure"
        )
        sent = [item for item, is_sent in zip(open_request.extras.items, admitted, strict=True) if is_sent]
        if not sent:
            return None
        open_request.extras.sent = sent
        open_request.extras.is_answered = False
        key: WorkKey = (open_request.request.request_id, "wide", 0)
        self.book.sent(key, partition, now_ms)
        open_request.waiting.add(key)
        work = extra_work(
            open_request.request,
            [(*self.span(open_request, item), item.value_micro) for item in sent],
            router=self._router,
            reply_partition=open_request.partition,
            deadline_ms=int(deadline_ms),
            chunk_size=self._policy.extra_chunk_size,
        )
        return SendWork(route="wide", partition=partition, work=work, trace=open_request.trace)

    def span(self, open_request: OpenRequest, item: Item) -> tuple[int, int]:
        """First and end position of an item's candidates in the request."""
        first = open_request.num_base + item.chunk * self._policy.extra_chunk_size
        return first, first + item.units

    def pressed(self, ranker: str, pressure: float, now_ms: float) -> None:
        """Note a replica's pressure."""
        self._throttles[ranker].answer(pressure, now_ms)
        if len(self._throttles) > _MAX_THROTTLES:
            # Opportunistic replicas come and go under new names.
            owners = self.book.owners | {ranker}
            for name in [name for name in self._throttles if name not in owners]:
                del self._throttles[name]

    def _items(self, open_request: OpenRequest) -> list[Item]:
        size = self._policy.extra_chunk_size
        first, dose = open_request.num_base, open_request.dose
        bids_X = np.frombuffer(open_request.request.bids, dtype="<f4")[first : first + dose]
        values_C = chunk_values_micro(bids_X, first_position=first, chunk_size=size, curve=self._curve)
        return [
            Item(lever="rma", route="wide", chunk=chunk, units=min(size, dose - chunk * size), value_micro=int(value))
            for chunk, value in enumerate(values_C)
        ]

    def _throttle(self, partition: int) -> Throttle:
        # By replica, so that the first answer of a closing gate holds for all its partitions at once.
        return self._throttles[self.book.owner(partition) or f"partition {partition}"]

    def _quota(self, partition: int, now_ms: float) -> float:
        return self._throttle(partition).quota(now_ms)


def _shed(items: list[Item], reason: str) -> None:
    for item in items:
        item.state = "shed"
        item.reason = reason
