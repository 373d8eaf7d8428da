"""One request through router and ranker, beside a bare relay of as many bytes over the same topics.

    request ─▶ router ─▶ work ─▶ ranker ─▶ answer ─▶ router ─▶ result

Router and ranker are the real processes, the ranker with the baseline bundle; without targets there is base work alone.
The relay is two processes as well, with clients of the same settings, that send messages of the same sizes through
topics of the same layout, and do nothing else. Both run all the time and are given requests by turns, at a steady rate.
Times are wall-clock times at the caller, from handing the request to its client to having the result.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from benchmarks.measurement import Measurement
from benchmarks.plan import Plan, alternate
from benchmarks.stage import Stage, on_kafka
from ops.simulator.world import DrawnRequest, World, WorldConfig
from ranking.models.load import BASELINE_WORLD_BUNDLE
from schemas.framing import decode_as, encode
from schemas.kafka.admin import TopicAdmin
from schemas.kafka.config import consumer_config, producer_config
from schemas.records import RankingRequest, RankingResult
from schemas.topics import (
    RANKING_ANSWERS,
    RANKING_REQUESTS,
    RANKING_RESULTS,
    WORK_BY_ROUTE,
    Namespace,
)

NAME = "pipeline"

NUM_CANDIDATES = 100
REQUESTS_PER_S = 100
DEADLINE_MS = 1_000
TURN_S, TURN_S_QUICK = 6.0, 2.0
# Parts that import PyTorch take a while to start where cores are shared.
START_LIMIT_S = 120.0
LAST_RESULT_S = 10.0
SEED = 1

MakeValue = Callable[[str], bytes]
IdOf = Callable[[bytes, bytes], str]


def measure(plan: Plan) -> list[Measurement]:
    """p50 and p99 of both, in ms; nothing in a tiny plan, which has no broker."""
    if plan.tiny:
        return []
    with on_kafka() as stage:
        return _measure(stage, plan)


def _measure(stage: Stage, plan: Plan) -> list[Measurement]:
    real = _start_pipeline(stage)
    relay = _start_relay(stage, real)
    turn_s = plan.choose(TURN_S, TURN_S_QUICK, 0.0)
    times_ms: dict[str, list[list[float]]] = {"pipeline": [], "relay": []}

    def p50_ms(name: str, caller: "_Caller") -> float:
        times_ms[name].append(caller.run(turn_s))
        return float(np.median(times_ms[name][-1]))

    p50s_ms, relay_p50s_ms = alternate(
        lambda: p50_ms("pipeline", real), lambda: p50_ms("relay", relay), num_turns=plan.num_turns, name=NAME
    )
    p99s_ms, relay_p99s_ms = (
        [float(np.percentile(turn, 99)) for turn in times_ms[name]] for name in ("pipeline", "relay")
    )
    what = f"request to result, {REQUESTS_PER_S} requests/s of {NUM_CANDIDATES} candidates"
    return [
        Measurement(
            name=f"{what}, p50",
            unit="ms",
            values=p50s_ms,
            reference="bare relay of the same bytes",
            reference_values=relay_p50s_ms,
            goal="at most 3 times",
        ),
        Measurement(
            name=f"{what}, p99",
            unit="ms",
            values=p99s_ms,
            reference="bare relay of the same bytes",
            reference_values=relay_p99s_ms,
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class _Caller:
    """Sends requests at a steady rate and waits for their results, in one thread."""

    producer: Producer
    consumer: Consumer
    requests: str
    value_of: MakeValue
    id_of: IdOf
    label: str

    def run(self, duration_s: float) -> list[float]:
        """Times of all requests of that long, ms. Raises RuntimeError when one stays without a result."""
        sent_s: dict[str, float] = {}
        results: list[tuple[float, bytes, bytes]] = []
        num_requests = round(duration_s * REQUESTS_PER_S)
        start_s = time.perf_counter()
        limit_s = start_s + duration_s + LAST_RESULT_S
        for number in range(num_requests):
            self._receive(results, until_s=start_s + number / REQUESTS_PER_S)
            name = f"{self.label}-{time.time_ns()}"
            value = self.value_of(name)
            sent_s[name] = time.perf_counter()
            self.producer.produce(self.requests, value, name.encode())
            self.producer.poll(0.0)
        while len(results) < num_requests and time.perf_counter() < limit_s:
            self._receive(results, until_s=min(limit_s, time.perf_counter() + 0.1), at_most=1)
        times_ms = [
            1e3 * (received_s - sent_s[name])
            for received_s, name in ((at_s, self.id_of(key, value)) for at_s, key, value in results)
            if name in sent_s
        ]
        if len(times_ms) < num_requests:
            raise RuntimeError(
                f"{self.label}: {num_requests - len(times_ms)} of {num_requests} requests without result"
            )
        return times_ms

    def _receive(self, results: list[tuple[float, bytes, bytes]], *, until_s: float, at_most: int = 1 << 30) -> None:
        while at_most and (wait_s := until_s - time.perf_counter()) > 0.0:
            message = self.consumer.poll(wait_s)
            if message is not None and message.error() is None:
                results.append((time.perf_counter(), message.key() or b"", message.value() or b""))
                at_most -= 1

    def await_first(self) -> None:
        """Return once a request gets its result; the parts take their time to start."""
        limit_s = time.monotonic() + START_LIMIT_S
        while time.monotonic() < limit_s:
            results: list[tuple[float, bytes, bytes]] = []
            name = f"{self.label}-probe-{time.time_ns()}"
            self.producer.produce(self.requests, self.value_of(name), name.encode())
            self._receive(results, until_s=time.perf_counter() + 1.0, at_most=1)
            if any(self.id_of(key, value).startswith(f"{self.label}-probe-") for _, key, value in results):
                # What other probes have left on the way.
                self._receive(results, until_s=time.perf_counter() + 2.0)
                return
        raise RuntimeError(f"{self.label}: no result within {START_LIMIT_S:g} s")


def _start_pipeline(stage: Stage) -> _Caller:
    stage.start("router", "ops.cli", "run", "router", "--id", "router")
    stage.start(
        "ranker",
        *("ops.cli", "run", "ranker", "--id", "ranker", "--route", "baseline", "--cell", "us-east"),
        *("--bundle", str(BASELINE_WORLD_BUNDLE)),
    )
    drawn = World(WorldConfig()).draw_request(np.random.default_rng(SEED), NUM_CANDIDATES)
    caller = _caller(
        stage,
        stage.namespace,
        value_of=lambda name: encode(_request(name, drawn)),
        id_of=_ranked,
        label="pipeline",
    )
    caller.await_first()
    return caller


def _ranked(_key: bytes, value: bytes) -> str:
    """Request id of a result that holds a ranking; what was answered before the parts had started holds none."""
    result = decode_as(value, RankingResult)
    return result.request_id if result.ad_ids and not result.degraded else ""


def _start_relay(stage: Stage, real: _Caller) -> _Caller:
    """The relay, with messages of the sizes that the pipeline's last request had at each of its stations."""
    namespace = Namespace(f"{stage.namespace.prefix}relay.")
    TopicAdmin(stage.config("bench")).create(namespace)
    stations = (RANKING_REQUESTS, WORK_BY_ROUTE["baseline"], RANKING_ANSWERS, RANKING_RESULTS)
    names = [namespace.topic(topic) for topic in stations]
    sizes = [_last_size(stage, stage.namespace.topic(topic)) for topic in stations]
    requests, work, answers, results = names
    stage.start(
        "relay-router",
        "benchmarks.relay",
        f"{requests}:{work}:{sizes[1]}",
        f"{answers}:{results}:{sizes[3]}",
    )
    stage.start("relay-ranker", "benchmarks.relay", f"{work}:{answers}:{sizes[2]}")
    value = real.value_of("relay")
    caller = _caller(
        stage, namespace, value_of=lambda _name: value, id_of=lambda key, _value: key.decode(), label="relay"
    )
    caller.await_first()
    return caller


def _caller(stage: Stage, namespace: Namespace, *, value_of: MakeValue, id_of: IdOf, label: str) -> _Caller:
    base = stage.config(label)
    consumer = Consumer(consumer_config(base, f"{namespace.prefix}bench"))
    results = namespace.topic(RANKING_RESULTS)
    consumer.assign(
        [TopicPartition(results, partition, OFFSET_END) for partition in range(RANKING_RESULTS.num_partitions)]
    )
    return _Caller(
        producer=Producer(producer_config(base)),
        consumer=consumer,
        requests=namespace.topic(RANKING_REQUESTS),
        value_of=value_of,
        id_of=id_of,
        label=label,
    )


def _last_size(stage: Stage, topic: str) -> int:
    """Bytes of a topic's last record."""
    consumer = Consumer(consumer_config(stage.config("sizes"), f"{stage.namespace.prefix}sizes"))
    try:
        for partition in consumer.list_topics(topic, 10.0).topics[topic].partitions:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), 10.0)
            if end:
                consumer.assign([TopicPartition(topic, partition, end - 1)])
                message = consumer.poll(10.0)
                if message is not None and message.error() is None:
                    return len(message.value() or b"")
    finally:
        consumer.close()
    raise RuntimeError(f"{topic} is empty")


def _request(name: str, drawn: DrawnRequest) -> RankingRequest:
    now_ms = time.time_ns() // 1_000_000
    return RankingRequest(
        request_id=name,
        user_id=name,
        cell="us-east",
        intake_ms=now_ms,
        deadline_ms=now_ms + DEADLINE_MS,
        num_base_candidates=NUM_CANDIDATES,
        num_results=8,
        ad_ids=drawn.ad_ids_N.astype("<i8").tobytes(),
        bids=drawn.bids_N.tobytes(),
        retrieval_scores=drawn.retrieval_scores_N.tobytes(),
        user_features=drawn.user_features_F.tobytes(),
        history_ids=drawn.history_ids_H.astype("<i8").tobytes(),
    )
