"""What the router knows of a request between its intake and the closing of its accounts."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ranking.router.assignment import UNASSIGNED, Assignment
from ranking.router.partitions import WorkKey
from schemas.records import RankingRequest
from schemas.records.fields import Lever, Route
from schemas.tracing import TraceContext


@dataclass(slots=True, kw_only=True)
class Item:
    """One optional item: candidates ``first`` to ``end`` of a request, one chunk of the work on its route.

    ``units`` counts by dose: candidates for RMA, requests for SBM. ``state`` leaves ``pending`` once and never returns.
    """

    lever: Lever
    route: Route
    chunk: int
    units: int
    first: int
    end: int
    value_micro: int
    propensity: float = 1.0
    state: Literal["pending", "admitted", "shed", "late", "lost"] = "pending"
    reason: str = ""
    is_accounted: bool = False

    @property
    def num_candidates(self) -> int:
        return self.end - self.first


@dataclass(slots=True, kw_only=True)
class LeverWork:
    """Optional work of one lever assigned to a request. ``sent`` are the items in the order of the work's chunks."""

    items: list[Item] = field(default_factory=list)
    sent: list[Item] = field(default_factory=list)
    is_answered: bool = True
    model_version: str = ""
    # (first position, scores) of each item that was scored in time.
    scored: list[tuple[int, NDArray[np.float32]]] = field(default_factory=list)

    def shed(self, reason: str) -> None:
        """Drop what is pending."""
        for item in self.items:
            if item.state == "pending":
                item.state = "shed"
                item.reason = reason

    def withdraw(self, state: Literal["shed", "lost"], reason: str = "") -> None:
        """Take back what was admitted: there is no ranking that it could be part of."""
        self.scored.clear()
        for item in self.items:
            if item.state == "admitted":
                item.state = state
                item.reason = reason


@dataclass(slots=True, kw_only=True)
class OpenRequest:
    """One request; times in milliseconds of the broker's clock.

    ``deadline_ms`` is the caller's. ``wait_until_ms`` differs from it where the request was taken in too late: then
    its base work has a new deadline. With its base answer in hand it waits for optional work until ``optional_by_ms``.
    """

    partition: int
    offset: int
    request: RankingRequest
    trace: TraceContext | None
    append_ms: int
    deadline_ms: float
    wait_until_ms: float
    answer_by_ms: float
    optional_by_ms: float
    overdue_ms: float
    is_takeover: bool
    assignment: Assignment = UNASSIGNED
    extras: LeverWork = field(default_factory=LeverWork)
    upgrade: LeverWork = field(default_factory=LeverWork)
    # Base attempts sent, as partitions; and how many of them came back unusable.
    base_partitions: list[int] = field(default_factory=list)
    num_base_failed: int = 0
    # What the caller did wrong, as a replica found it; empty where nothing.
    mistake: str = ""
    base_scores: NDArray[np.float32] | None = None
    base_received_ms: float = 0.0
    base_model_version: str = ""
    last_wanted_ms: float = 0.0
    is_published: bool = False
    is_latency_noted: bool = False
    # Work sent and neither answered nor given up.
    waiting: set[WorkKey] = field(default_factory=set)

    @property
    def is_ranked(self) -> bool:
        """Whether base work and extras are answered: the time to then is what the candidate target is steered by.

        An upgrade has a route of its own, with a tail and a loop of its own: a slow one must not cost extras.
        """
        return self.base_scores is not None and self.extras.is_answered

    @property
    def is_complete(self) -> bool:
        """Whether every answer that a result may wait for is in."""
        return self.is_ranked and self.upgrade.is_answered

    @property
    def num_base(self) -> int:
        return self.request.num_base_candidates

    @property
    def levers(self) -> tuple[LeverWork, LeverWork]:
        """Optional work of both levers."""
        return self.extras, self.upgrade

    @property
    def items(self) -> list[Item]:
        """All optional items."""
        return [*self.extras.items, *self.upgrade.items]

    def work_on(self, route: Route) -> LeverWork:
        """Optional work of the lever that a route serves."""
        return self.upgrade if route == "powerful" else self.extras
