"""Stands where the router stands: sends work to replicas at a steady rate, and times their answers."""

import time
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import numpy as np
from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from benchmarks.stage import Stage
from ops.simulator.world import DrawnRequest, World, WorldConfig
from schemas.framing import decode_as, encode
from schemas.kafka.config import consumer_config, producer_config
from schemas.records import RankingAnswer, RankingWork
from schemas.records.fields import Route
from schemas.topics import RANKING_ANSWERS, WORK_BY_ROUTE

CHUNK_SIZE = 100
# Optional work lives as long as in a request of so long a deadline; what cannot be done by then is shed.
DEADLINE_MS = 500
START_LIMIT_S = 120.0
SEED = 1


@dataclass(frozen=True, slots=True)
class Answered:
    """When an answer was read, and what it says: by this process's clock in s, by the broker's in ms, scoring in us."""

    at_s: float
    append_ms: int
    busy_us: int


@dataclass
class WorkSender:
    """Sends base work of ``num_base`` candidates and optional work of ``num_optional``, in one thread."""

    stage: Stage
    num_base: int
    num_optional: int
    answered: dict[str, Answered] = field(default_factory=dict)

    def __post_init__(self) -> None:
        base = self.stage.config("bench-work")
        topic = self.stage.namespace.topic(RANKING_ANSWERS)
        self._producer = Producer(producer_config(base))
        self._consumer = Consumer(consumer_config(base, f"{topic}.bench"))
        self._consumer.assign([TopicPartition(topic, n, OFFSET_END) for n in range(RANKING_ANSWERS.num_partitions)])
        world = World(WorldConfig())
        self._drawn: dict[Route, DrawnRequest] = {
            "baseline": world.draw_request(np.random.default_rng(SEED), self.num_base),
            "wide": world.draw_request(np.random.default_rng(SEED), self.num_optional),
        }
        self._num_sent = 0

    def run(self, duration_s: float, *, work_per_s: float, optional_per_work: int = 0) -> list[float]:
        """Times of all base work of that long, ms. Raises RuntimeError when some stays without an answer."""
        sent_s: dict[str, float] = {}
        start_s = time.perf_counter()
        for number in range(round(duration_s * work_per_s)):
            self.receive(until_s=start_s + number / work_per_s)
            for _ in range(optional_per_work):
                self.send("wide")
            name, at_s = self.send("baseline")
            sent_s[name] = at_s
        self.await_answers(sent_s.keys(), limit_s=10.0)
        # What is left of the optional work belongs to this turn, not to the next one.
        self.receive(until_s=time.perf_counter() + 2.0 * DEADLINE_MS / 1e3)
        return [1e3 * (self.answered[name].at_s - at_s) for name, at_s in sent_s.items()]

    def await_first(self, *routes: Route) -> None:
        """Return once these routes are answered; replicas that import PyTorch take a while to start."""
        limit_s = time.monotonic() + START_LIMIT_S
        probes: dict[Route, list[str]] = {route: [] for route in routes}
        while time.monotonic() < limit_s:
            for route in routes:
                probes[route].append(self.send(route)[0])
            self.receive(until_s=time.perf_counter() + 1.0)
            if all(self.answered.keys() & names for names in probes.values()):
                self.receive(until_s=time.perf_counter() + 2.0)
                return
        raise RuntimeError(f"the replicas do not answer within {START_LIMIT_S:g} s")

    def await_answers(self, names: AbstractSet[str], *, limit_s: float) -> None:
        """Return once these are answered. Raises RuntimeError where some are not within the limit."""
        end_s = time.perf_counter() + limit_s
        while (missing := names - self.answered.keys()) and time.perf_counter() < end_s:
            self.receive(until_s=time.perf_counter() + 0.05)
        if missing:
            raise RuntimeError(f"{len(missing)} of {len(names)} pieces of base work without answer")

    def send(self, route: Route, *, deadline_ms: int = DEADLINE_MS) -> tuple[str, float]:
        """Send one piece of work; returns its name and when it was handed to the client."""
        self._num_sent += 1
        name = f"{route}-{self._num_sent}"
        topic = WORK_BY_ROUTE[route]
        work = _work(
            name,
            route,
            self._drawn[route],
            reply_partition=self._num_sent % RANKING_ANSWERS.num_partitions,
            deadline_ms=deadline_ms,
        )
        value = encode(work)
        at_s = time.perf_counter()
        self._producer.produce(
            self.stage.namespace.topic(topic), value, partition=self._num_sent % topic.num_partitions
        )
        self._producer.poll(0.0)
        return name, at_s

    def receive(self, *, until_s: float) -> None:
        """Take answers in until then."""
        while (wait_s := until_s - time.perf_counter()) > 0.0:
            message = self._consumer.poll(wait_s)
            if message is not None and message.error() is None:
                at_s = time.perf_counter()
                answer = decode_as(message.value(), RankingAnswer)
                found = Answered(at_s, message.timestamp()[1], answer.busy_us)
                self.answered.setdefault(answer.request_id, found)


def _work(name: str, route: Route, drawn: DrawnRequest, *, reply_partition: int, deadline_ms: int) -> RankingWork:
    is_base = route == "baseline"
    num_chunks = -(-len(drawn.ad_ids_N) // CHUNK_SIZE)
    now_ms = time.time_ns() // 1_000_000
    return RankingWork(
        request_id=name,
        attempt=0,
        route=route,
        cell="us-east",
        lever=None if is_base else "rma",
        router="bench",
        reply_partition=reply_partition,
        intake_ms=now_ms,
        deadline_ms=now_ms + deadline_ms,
        user_id=name,
        user_features=drawn.user_features_F.tobytes(),
        history_ids=drawn.history_ids_H.astype("<i8").tobytes(),
        ad_ids=drawn.ad_ids_N.astype("<i8").tobytes(),
        bids=drawn.bids_N.tobytes(),
        retrieval_scores=drawn.retrieval_scores_N.tobytes(),
        first_position=0,
        chunk_size=CHUNK_SIZE,
        chunk_values_micro=[0 if is_base else 1_000 - chunk for chunk in range(num_chunks)],
    )
