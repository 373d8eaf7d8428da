"""What happened, as the topics tell it: records in, facts out. No part's own counters are believed. Pure."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from msgspec import Struct

from schemas.records import (
    CandidateTarget,
    CapacityEvent,
    LatencyInterval,
    RankingAnswer,
    RankingOutcome,
    RankingRequest,
    RankingResult,
    ReclaimTiming,
)
from schemas.records.fields import Lever

# Partitions are read in batches: a result may be taken in this much after a younger one.
_DISORDER_MS = 2_000


@dataclass(frozen=True, kw_only=True)
class SeenRequest:
    """A request in the log: when the broker took it, and how long its caller waits."""

    append_ms: int
    budget_ms: int


@dataclass(frozen=True, kw_only=True)
class SeenResult:
    """The first result of a request."""

    append_ms: int
    record: RankingResult


@dataclass(frozen=True, kw_only=True)
class OfferChange:
    """From ``time_ms`` on a host offers ``usable_units``; ``kind`` is that of the event."""

    time_ms: int
    kind: str
    usable_units: float


@dataclass
class LateAnswers:
    """What replicas said about the optional chunks of one request, whenever they said it."""

    scored: set[int] = field(default_factory=set)
    shed: dict[int, str] = field(default_factory=dict)


class Ledger:
    """Facts of one pipeline, gathered record by record in any order of topics."""

    def __init__(self) -> None:
        self.requests: dict[str, SeenRequest] = {}
        self.results: dict[str, SeenResult] = {}
        self.num_results = 0
        self.answers: dict[tuple[str, Lever], LateAnswers] = defaultdict(LateAnswers)
        self.offers: dict[tuple[str, str], list[OfferChange]] = defaultdict(list)
        self.reclaims: dict[tuple[str, str, int, str], ReclaimTiming] = {}
        self.targets: dict[str, dict[int, CandidateTarget]] = defaultdict(dict)
        self.optional_busy_us = 0
        self.dead_letters: Counter[str] = Counter()
        self.num_outcomes = 0
        self.last_time_ms = 0
        self._intervals: set[tuple[str, str, int, int]] = set()

    def add(self, record: Struct, *, append_ms: int) -> None:
        """Take in one record of any topic; kinds that tell nothing of interest are passed over."""
        self.last_time_ms = max(self.last_time_ms, append_ms)
        match record:
            case RankingRequest():
                budget_ms = record.deadline_ms - record.intake_ms
                self.requests.setdefault(record.request_id, SeenRequest(append_ms=append_ms, budget_ms=budget_ms))
            case RankingResult():
                self.num_results += 1
                self.results.setdefault(record.request_id, SeenResult(append_ms=append_ms, record=record))
            case RankingAnswer() if record.lever is not None:
                self._add_answer(record, record.lever)
            case CapacityEvent():
                self._add_capacity(record)
            case LatencyInterval() if record.part == "ranker":
                self._add_interval(record)
            case CandidateTarget():
                self.targets[record.cell].setdefault(record.window_index, record)
            case RankingOutcome():
                self.num_outcomes += 1
            case _:
                pass

    def recent_results(self, since_ms: int) -> list[SeenResult]:
        """Results appended at or after ``since_ms``; results come in nearly in order, so only the tail is looked at."""
        recent: list[SeenResult] = []
        for seen in reversed(self.results.values()):
            if seen.append_ms < since_ms - _DISORDER_MS:
                break
            if seen.append_ms >= since_ms:
                recent.append(seen)
        return recent

    def add_dead_letter(self, topic: str) -> None:
        """Take in one dead letter of ``topic``."""
        self.dead_letters[topic] += 1

    def _add_answer(self, answer: RankingAnswer, lever: Lever) -> None:
        known = self.answers[answer.request_id, lever]
        known.scored.update(answer.scored_chunks)
        for shed in answer.sheds:
            known.shed.setdefault(shed.chunk, shed.reason)

    def _add_capacity(self, event: CapacityEvent) -> None:
        usable = sum(offer.units for offer in event.offers if offer.unusable is None)
        self.offers[event.cell, event.host].append(
            OfferChange(time_ms=event.event_time_ms, kind=event.kind, usable_units=usable)
        )
        for timing in event.reclaims:
            self.reclaims[event.cell, event.host, timing.flipped_ms, timing.accelerator] = timing

    def _add_interval(self, interval: LatencyInterval) -> None:
        identity = (interval.cell, interval.source, interval.epoch_ms, interval.seq)
        if identity in self._intervals:
            return
        self._intervals.add(identity)
        self.optional_busy_us += sum(route.busy_us for route in interval.routes if route.route != "baseline")
