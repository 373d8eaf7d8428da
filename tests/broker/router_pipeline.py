"""The topics of one test on a real broker: a router as a process, stub replicas that answer at once, requests."""

import subprocess
import sys
import threading
import time

import numpy as np
from confluent_kafka import Consumer, Message, TopicPartition

from ranking.client.requests import RequestProducer
from schemas.framing import decode_as
from schemas.kafka.admin import TopicAdmin
from schemas.kafka.config import client_config, consumer_config, producer_config
from schemas.kafka.dead_letters import message_headers
from schemas.kafka.producer import DurableProducer
from schemas.records import (
    CandidateTarget,
    DeadLetter,
    RankingAnswer,
    RankingRequest,
    RankingResult,
    RankingWork,
)
from schemas.records.fields import Route
from schemas.settings import TimeSettings
from schemas.topics import (
    RANKING_ANSWERS,
    RANKING_RESULTS,
    WORK_BY_ROUTE,
    Namespace,
    Topic,
)
from schemas.tracing import TraceContext, trace_from

NUM_PARTITIONS = 8
# Generous: a machine that runs tests may be busy with other things.
DEADLINE_MS = 1_000
# As the bundle of the demo's world takes them; a stub takes any.
NUM_FEATURES = 15
ROUTER = """
import sys
from ops.telemetry.logs import set_up_logging
from ranking.router.worker import RouterOptions, run
from schemas.settings import TimeSettings
from schemas.topics import Namespace
set_up_logging("router")
run(RouterOptions(namespace=Namespace(sys.argv[1]), time=TimeSettings(), router_id=sys.argv[2]))
"""


class StubReplica:
    """Answers the work of some partitions of one route, each candidate scored by its place, until told otherwise."""

    def __init__(self, namespace: Namespace, name: str, route: Route, partitions: list[int]) -> None:
        self._name = name
        self._namespace = namespace
        self.is_silent = False
        self.works: list[RankingWork] = []
        self.traces: list[TraceContext | None] = []
        self._stopping = threading.Event()
        self._topic = namespace.topic(WORK_BY_ROUTE[route])
        self._consumer = Consumer(consumer_config(client_config(name), f"{namespace.prefix}{name}"))
        self._consumer.assign([TopicPartition(self._topic, number, 0) for number in partitions])
        self._producer = DurableProducer(producer_config(client_config(name)))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def _serve(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.05)
            self._producer.poll(0)
            if message is None or message.error() is not None or self.is_silent:
                continue
            work = decode_as(message.value(), RankingWork)
            self.works.append(work)
            self.traces.append(trace_from(message_headers(message)))
            num_candidates = len(work.ad_ids) // 8
            scores = 1.0 / (1.0 + work.first_position + np.arange(num_candidates))
            answer = RankingAnswer(
                request_id=work.request_id,
                attempt=work.attempt,
                route=work.route,
                cell=work.cell,
                lever=work.lever,
                ranker=self._name,
                ranker_epoch_ms=1,
                work_partition=message.partition() or 0,
                model_version="stub",
                scored_chunks=list(range(len(work.chunk_values_micro))),
                scores=scores.astype("<f4").tobytes(),
                sheds=[],
                queue_wait_us=0,
                busy_us=1,
                pressure=0.0,
            )
            self._producer.send(self._namespace.topic(RANKING_ANSWERS), answer, partition=work.reply_partition)


def request_of(number: int, *, num_candidates: int = 200, cell: str = "us-east") -> RankingRequest:
    now_ms = int(time.time() * 1000)
    return RankingRequest(
        request_id=f"request-{number}",
        user_id=f"user-{number % 97}",
        cell=cell,
        intake_ms=now_ms,
        deadline_ms=now_ms + DEADLINE_MS,
        num_base_candidates=min(64, num_candidates),
        num_results=10,
        ad_ids=np.arange(num_candidates, dtype="<i8").tobytes(),
        bids=np.ones(num_candidates, dtype="<f4").tobytes(),
        retrieval_scores=np.ones(num_candidates, dtype="<f4").tobytes(),
        user_features=np.ones(NUM_FEATURES, dtype="<f4").tobytes(),
    )


class Pipeline:
    """Topics of one test, with what reads and writes them."""

    def __init__(self, prefix: str) -> None:
        self.namespace = Namespace(prefix)
        TopicAdmin(client_config("test")).create(self.namespace)
        self.requests = RequestProducer(self.namespace)
        self.raw = DurableProducer(producer_config(client_config("raw")))
        self._routers: list[subprocess.Popen[bytes]] = []
        self._stubs: list[StubReplica] = []

    def start_router(self, router_id: str = "router-1") -> subprocess.Popen[bytes]:
        router = subprocess.Popen([sys.executable, "-c", ROUTER, self.namespace.prefix, router_id])
        self._routers.append(router)
        return router

    def stub(self, name: str, partitions: range, *, route: Route = "baseline") -> StubReplica:
        stub = StubReplica(self.namespace, name, route, list(partitions))
        self._stubs.append(stub)
        return stub

    def send(self, numbers: range, *, rate_per_s: float = 100.0) -> None:
        start = time.monotonic()
        for sent, number in enumerate(numbers):
            time.sleep(max(0.0, start + sent / rate_per_s - time.monotonic()))
            self.requests.send(request_of(number))
            self.requests.poll()
        self.requests.drain()

    def warm_up(self) -> None:
        """One request through the whole router, so that what follows meets it running."""
        self.send(range(-1, 0))
        self.results(1)

    def read(self, topic: str, num: int, *, timeout_s: float = 40.0, settle_s: float = 0.0) -> list[Message]:
        """Everything in a topic once there are ``num`` records, and after ``settle_s`` more without a new one."""
        consumer = Consumer(consumer_config(client_config("reader"), "reader"))
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found: list[Message] = []
        give_up = time.monotonic() + timeout_s
        last = time.monotonic()
        while time.monotonic() < give_up and (len(found) < num or time.monotonic() - last < settle_s):
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                found.append(message)
                last = time.monotonic()
        consumer.close()
        assert len(found) >= num, f"{len(found)} of {num} records in {topic}"
        return found

    def results(self, num: int, *, settle_s: float = 0.0) -> list[RankingResult]:
        messages = self.read(self.namespace.topic(RANKING_RESULTS), num, settle_s=settle_s)
        return [decode_as(message.value(), RankingResult) for message in messages]

    def dead_letters(self, topic: Topic, num: int) -> list[DeadLetter]:
        return [decode_as(m.value(), DeadLetter) for m in self.read(self.namespace.dead_letters(topic), num)]

    def close(self) -> None:
        for router in self._routers:
            if router.poll() is None:
                router.kill()
            router.wait()
        for stub in self._stubs:
            stub.close()


def target(*, valid_for_ms: int, candidates: int = 150, other_share: float = 0.0) -> CandidateTarget:
    now_ms = int(time.time() * 1000)
    return CandidateTarget(
        cell="us-east",
        window_index=now_ms // TimeSettings().window_ms,
        window_end_ms=now_ms,
        valid_until_ms=now_ms + valid_for_ms,
        base_candidates=64,
        max_candidates=1000,
        candidate_target=candidates,
        extra_budget_units_s=1e6,
        coverage=0.0,
        segment_shares=[],
        reason="test",
        detail="",
        manifest=[],
        latency_limit_ms=300.0,
        latency_p99_ms=None,
        request_rate_per_s=100.0,
        controller_version="1",
        other_share=other_share,
        powerful_budget_units_s=1e6,
    )


def wait_for(holds, timeout_s: float = 15.0) -> None:
    give_up = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < give_up, "waited in vain"
        time.sleep(0.02)
