"""A mixed replica: how long base work waits, with ten times as much optional work on top of it and without.

One replica process serves ``baseline,wide`` with the baseline bundle. It is given base work at a steady rate all the
time, and in every other turn optional work as well: ten times as many candidates. What base work may wait for is one
optional chunk, as no answer begins before the call in flight has ended; how long these took is in the replica's trace.
Times are wall-clock times, from handing the work to the client to having the answer.
"""

import json
import time
from dataclasses import dataclass, field

import numpy as np
from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from benchmarks.measurement import Measurement
from benchmarks.plan import Plan, alternate
from benchmarks.stage import Stage, on_kafka
from ops.simulator.world import DrawnRequest, World, WorldConfig
from ranking.models.load import BASELINE_WORLD_BUNDLE
from schemas.framing import decode_as, encode
from schemas.kafka.config import consumer_config, producer_config
from schemas.records import RankingAnswer, RankingWork
from schemas.records.fields import Route
from schemas.topics import RANKING_ANSWERS, WORK_BY_ROUTE

NAME = "mixed"

NUM_BASE, NUM_OPTIONAL, CHUNK_SIZE = 100, 1_000, 100
WORK_PER_S = 40
# Optional work lives as long as in a request of so long a deadline; what cannot be done by then is shed.
DEADLINE_MS = 500
TURN_S, TURN_S_QUICK = 5.0, 2.0
START_LIMIT_S = 120.0
SEED = 1


def measure(plan: Plan) -> list[Measurement]:
    """p50 and p99 of base answers with optional load beside those without, in ms, and the time of optional calls."""
    if plan.tiny:
        return []
    with on_kafka() as stage:
        return _measure(stage, plan)


def _measure(stage: Stage, plan: Plan) -> list[Measurement]:
    trace = stage.folder / "trace"
    stage.start("ranker", "benchmarks.mixed_replica", stage.namespace.prefix, str(BASELINE_WORLD_BUNDLE), str(trace))
    sender = _Sender(stage)
    sender.await_first()
    turn_s = plan.choose(TURN_S, TURN_S_QUICK, 0.0)
    loaded_ms: list[list[float]] = []
    quiet_ms: list[list[float]] = []

    def p99_ms(turns_ms: list[list[float]], *, with_optional: bool) -> float:
        turns_ms.append(sender.run(turn_s, with_optional=with_optional))
        return float(np.percentile(turns_ms[-1], 99))

    p99s_ms, quiet_p99s_ms = alternate(
        lambda: p99_ms(loaded_ms, with_optional=True),
        lambda: p99_ms(quiet_ms, with_optional=False),
        num_turns=plan.num_turns,
        name=NAME,
    )
    calls = [json.loads(line) for line in trace.read_text().splitlines()]
    calls_ms = [(call["end_ns"] - call["looked_ns"]) / 1e6 for call in calls]
    what = f"base work in a mixed replica with {NUM_OPTIONAL // NUM_BASE} times as much optional work"
    return [
        Measurement(
            name=f"{what}, p50",
            unit="ms",
            values=[float(np.median(turn)) for turn in loaded_ms],
            reference="without optional work",
            reference_values=[float(np.median(turn)) for turn in quiet_ms],
        ),
        Measurement(
            name=f"{what}, p99",
            unit="ms",
            values=p99s_ms,
            reference="without optional work",
            reference_values=quiet_p99s_ms,
            goal="one optional call more",
        ),
        Measurement(name="optional calls in it, p50", unit="ms", values=[float(np.median(calls_ms))]),
        Measurement(name="optional calls in it, p99", unit="ms", values=[float(np.percentile(calls_ms, 99))]),
    ]


@dataclass
class _Sender:
    """Stands where the router stands, in one thread."""

    stage: Stage
    _answered_s: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        base = self.stage.config("bench-mixed")
        topic = self.stage.namespace.topic(RANKING_ANSWERS)
        self._producer = Producer(producer_config(base))
        self._consumer = Consumer(consumer_config(base, f"{topic}.bench"))
        self._consumer.assign([TopicPartition(topic, n, OFFSET_END) for n in range(RANKING_ANSWERS.num_partitions)])
        world = World(WorldConfig())
        self._base = world.draw_request(np.random.default_rng(SEED), NUM_BASE)
        self._optional = world.draw_request(np.random.default_rng(SEED), NUM_OPTIONAL)
        self._num_sent = 0

    def run(self, duration_s: float, *, with_optional: bool) -> list[float]:
        """Times of all base work of that long, ms. Raises RuntimeError when some stays without an answer."""
        sent_s: dict[str, float] = {}
        start_s = time.perf_counter()
        for number in range(round(duration_s * WORK_PER_S)):
            self._receive(until_s=start_s + number / WORK_PER_S)
            if with_optional:
                self._send("wide", self._optional)
            name, at_s = self._send("baseline", self._base)
            sent_s[name] = at_s
        limit_s = time.perf_counter() + 10.0
        while not sent_s.keys() <= self._answered_s.keys() and time.perf_counter() < limit_s:
            self._receive(until_s=time.perf_counter() + 0.05)
        missing = sent_s.keys() - self._answered_s.keys()
        if missing:
            raise RuntimeError(f"{len(missing)} of {len(sent_s)} pieces of base work without answer")
        # What is left of the optional work belongs to this turn, not to the next one.
        self._receive(until_s=time.perf_counter() + 2.0 * DEADLINE_MS / 1e3)
        return [1e3 * (self._answered_s[name] - at_s) for name, at_s in sent_s.items()]

    def await_first(self) -> None:
        """Return once both routes are answered."""
        limit_s = time.monotonic() + START_LIMIT_S
        probes: dict[Route, list[str]] = {"baseline": [], "wide": []}
        while time.monotonic() < limit_s:
            probes["baseline"].append(self._send("baseline", self._base)[0])
            probes["wide"].append(self._send("wide", self._optional)[0])
            self._receive(until_s=time.perf_counter() + 1.0)
            if all(self._answered_s.keys() & names for names in probes.values()):
                self._receive(until_s=time.perf_counter() + 2.0)
                return
        raise RuntimeError(f"the replica does not answer within {START_LIMIT_S:g} s")

    def _send(self, route: Route, drawn: DrawnRequest) -> tuple[str, float]:
        self._num_sent += 1
        name = f"{route}-{self._num_sent}"
        topic = WORK_BY_ROUTE[route]
        value = encode(_work(name, route, drawn, reply_partition=self._num_sent % RANKING_ANSWERS.num_partitions))
        at_s = time.perf_counter()
        self._producer.produce(
            self.stage.namespace.topic(topic), value, partition=self._num_sent % topic.num_partitions
        )
        self._producer.poll(0.0)
        return name, at_s

    def _receive(self, *, until_s: float) -> None:
        while (wait_s := until_s - time.perf_counter()) > 0.0:
            message = self._consumer.poll(wait_s)
            if message is not None and message.error() is None:
                at_s = time.perf_counter()
                self._answered_s.setdefault(decode_as(message.value(), RankingAnswer).request_id, at_s)


def _work(name: str, route: Route, drawn: DrawnRequest, *, reply_partition: int) -> RankingWork:
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
        deadline_ms=now_ms + DEADLINE_MS,
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
