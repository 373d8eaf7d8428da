"""Optional work of both levers: from what a request is assigned to items that are sent, and from answers to their ends.

| lever | route | item | value | its scores |
|---|---|---|---|---|
| RMA | `wide` | each chunk of the extra candidates | by depth and bids | are merged with those of base candidates |
| SBM | `powerful` | all base candidates, or none | by segment | replace those of base candidates |
"""

import random
from collections.abc import Mapping

import numpy as np

from ranking.router.events import SendWork
from ranking.router.open_request import Item, LeverWork, OpenRequest
from ranking.router.optional_route import OptionalRoute
from ranking.router.policy import RouterPolicy
from ranking.router.value import Values, chunk_values_micro
from schemas.records import CandidateTarget, RankingAnswer
from schemas.records.fields import Route

ROUTES: tuple[Route, ...] = ("wide", "powerful")


class OptionalWork:
    """Sends what is assigned, and closes it. Accounts stay with the request."""

    def __init__(
        self, policy: RouterPolicy, *, router: str, num_partitions: Mapping[Route, int], seed: int, values: Values
    ) -> None:
        self._policy = policy
        self._values = values
        # A generator per route: what is drawn for one must not depend on what is sent elsewhere.
        self.routes: dict[Route, OptionalRoute] = {
            route: OptionalRoute(
                policy,
                route=route,
                router=router,
                num_partitions=num_partitions[route],
                rng=random.Random(f"{seed} {route}"),
            )
            for route in ROUTES
        }

    def plan(self, open_request: OpenRequest, target: CandidateTarget, now_ms: float) -> list[SendWork]:
        """Items of what is assigned by ``target``, and the work to send for them; what is not sent is shed."""
        assigned = open_request.assignment
        planned: list[tuple[LeverWork, Route, int]] = []
        if assigned.dose.num_extra:
            open_request.extras.items = self._extra_items(open_request, target)
            planned.append((open_request.extras, "wide", self._policy.extra_chunk_size))
        if assigned.upgrade.is_assigned:
            open_request.upgrade.items = [self._upgrade_item(open_request, target)]
            planned.append((open_request.upgrade, "powerful", open_request.num_base))
        deadline_ms = open_request.optional_by_ms - self._policy.optional_margin_ms
        works = [
            self.routes[route].send(open_request, work, chunk_size=chunk_size, deadline_ms=deadline_ms, now_ms=now_ms)
            for work, route, chunk_size in planned
        ]
        return [work for work in works if work is not None]

    def is_too_late(self, open_request: OpenRequest, now_ms: float) -> bool:
        """Whether no answer could come in time any more."""
        too_late_ms = open_request.optional_by_ms - self._policy.optional_margin_ms
        return now_ms >= too_late_ms or open_request.wait_until_ms > open_request.deadline_ms

    def answered(self, answer: RankingAnswer, now_ms: float) -> float | None:
        """Heed an answer, whoever asked; returns its latency, None for work that is not outstanding."""
        return self.routes[answer.route].answered(answer, now_ms)

    def overdue(self, request_id: str) -> None:
        """Optional work of a request could not count any more."""
        for route in self.routes.values():
            route.overdue(request_id)

    def _extra_items(self, open_request: OpenRequest, target: CandidateTarget) -> list[Item]:
        size, first, dose = self._policy.extra_chunk_size, open_request.num_base, open_request.assignment.dose
        end = first + dose.num_extra
        bids_X = np.frombuffer(open_request.request.bids, dtype="<f4")[first:end]
        curve = self._values.curve(target)
        values_C = chunk_values_micro(bids_X, first_position=first, chunk_size=size, curve=curve)
        return [
            Item(
                lever="rma",
                route="wide",
                chunk=chunk,
                units=min(size, end - start),
                first=start,
                end=min(start + size, end),
                value_micro=int(value),
                propensity=dose.reach(min(start + size, end) - first),
            )
            for chunk, (start, value) in enumerate(zip(range(first, end, size), values_C, strict=True))
        ]

    def _upgrade_item(self, open_request: OpenRequest, target: CandidateTarget) -> Item:
        assigned = open_request.assignment
        return Item(
            lever="sbm",
            route="powerful",
            chunk=0,
            units=1,
            first=0,
            end=open_request.num_base,
            value_micro=self._values.upgrade_micro(target, assigned.segment),
            propensity=assigned.upgrade.probability,
        )
