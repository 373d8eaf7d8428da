"""The ranking consumer as a process of its own: real model, real Kafka, a real gate, no controller anywhere."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from confluent_kafka import Consumer, TopicPartition

from ranking.models.baseline import BaselineConfig, BaselineModel
from ranking.models.load import save_model
from schemas.framing import decode_as
from schemas.gate_drain import RankerDrain
from schemas.gate_writer import GateWriter
from schemas.kafka.admin import TopicAdmin
from schemas.kafka.config import consumer_config, producer_config
from schemas.kafka.producer import DurableProducer
from schemas.records import DeadLetter, LatencyInterval, RankingAnswer, RankingWork
from schemas.records.fields import Route
from schemas.topics import RANKING_ANSWERS, SERVING_LATENCY, WORK_BY_ROUTE, Namespace

# A process imports PyTorch before it serves: seconds of CPU time, many more where cores are shared.
pytestmark = pytest.mark.timeout(300)

NUM_FEATURES = 16
CHUNK_SIZE = 128
NUM_CHUNKS = 8
POOL = "demo-gpu"

BACKLOG_MS = 2_000

RANKER = """
import sys
from pathlib import Path
from ops.telemetry.logs import set_up_logging
from ranking.consumer.worker import RankerOptions, run
from schemas.settings import TimeSettings
from schemas.topics import Namespace

prefix, ranker_id, routes, pool, bundle, trace, static, backlog_ms = sys.argv[1:]
set_up_logging("ranker")
run(
    RankerOptions(
        namespace=Namespace(prefix),
        time=TimeSettings(interval_ms=200),
        ranker_id=ranker_id,
        cell="us-east",
        routes=tuple(routes.split(",")),
        pool=pool or None,
        bundle=Path(bundle),
        static_member=static == "static",
        backlog_ms=int(backlog_ms),
        trace_path=Path(trace) if trace else None,
    )
)
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real model with weights of no meaning: its speed is what counts here."""
    torch.manual_seed(5)
    config = BaselineConfig(
        num_features=NUM_FEATURES, bucket_bits=14, embedding_dim=16, tower_width=64, meeting_width=64, last_width=32
    )
    folder = tmp_path_factory.mktemp("bundle")
    save_model(BaselineModel(config, "test-1"), folder)
    return folder


class Rig:
    """Stands where the router and the host's agent stand: sends work, takes answers in, starts and ends replicas."""

    def __init__(self, bootstrap: str, prefix: str, *, bundle: Path, folder: Path) -> None:
        self.namespace = Namespace(prefix)
        self.base = {"bootstrap.servers": bootstrap}
        self.bundle = bundle
        self.folder = folder
        self.runtime = folder / "runtime"
        self.runtime.mkdir(mode=0o700)
        TopicAdmin(self.base).create(self.namespace)
        self.producer = DurableProducer(producer_config(self.base))
        self.processes: list[subprocess.Popen[bytes]] = []
        self.random = np.random.default_rng(7)
        self.num_sent = 0

    def start(self, ranker_id: str, routes: str, *, pool: str = "", static: bool = False) -> subprocess.Popen[bytes]:
        """Start a replica; its log and trace are named after it."""
        environment = {
            **os.environ,
            "KAFKA_BOOTSTRAP": self.base["bootstrap.servers"],
            "INTERTIDAL_RUNTIME_DIR": str(self.runtime),
        }
        arguments = [
            self.namespace.prefix,
            ranker_id,
            routes,
            pool,
            str(self.bundle),
            str(self.trace_path(ranker_id)),
            "static" if static else "",
            str(BACKLOG_MS),
        ]
        with (self.folder / f"{ranker_id}.log").open("ab") as log:
            process = subprocess.Popen([sys.executable, "-c", RANKER, *arguments], stderr=log, env=environment)
        self.processes.append(process)
        return process

    def trace_path(self, ranker_id: str) -> Path:
        return self.folder / f"{ranker_id}.trace"

    def log(self, ranker_id: str) -> str:
        return (self.folder / f"{ranker_id}.log").read_text()

    def send(self, route: Route, *, partition: int, deadline_ms: float = 150.0, **fields) -> RankingWork:
        """Send work of one made-up request."""
        num_candidates = fields.pop("num_candidates", CHUNK_SIZE * NUM_CHUNKS if route == "wide" else CHUNK_SIZE)
        num_chunks = -(-num_candidates // CHUNK_SIZE)
        now_ms = int(time.time() * 1e3)
        self.num_sent += 1
        values = {
            "request_id": f"request-{self.num_sent:06}",
            "attempt": 0,
            "route": route,
            "cell": "us-east",
            "lever": "rma" if route == "wide" else None,
            "router": "router-1",
            "reply_partition": self.num_sent % RANKING_ANSWERS.num_partitions,
            "intake_ms": now_ms,
            "deadline_ms": now_ms + int(deadline_ms),
            "user_id": "user",
            "user_features": self.random.standard_normal(NUM_FEATURES).astype("<f4").tobytes(),
            "history_ids": b"",
            "ad_ids": np.arange(num_candidates, dtype="<i8").tobytes(),
            "bids": np.ones(num_candidates, dtype="<f4").tobytes(),
            "retrieval_scores": self.random.standard_normal(num_candidates).astype("<f4").tobytes(),
            "first_position": 0,
            "chunk_size": CHUNK_SIZE,
            "chunk_values_micro": [0] * num_chunks if route == "baseline" else list(range(num_chunks, 0, -1)),
        }
        work = RankingWork(**{**values, **fields})
        self.producer.send(self.namespace.topic(WORK_BY_ROUTE[route]), work, partition=partition)
        self.producer.poll()
        return work

    def read(self, topic: str, record_type, *, until, timeout_s: float = 40.0) -> list[Any]:
        """Read a topic from its start until ``until(records)`` holds; the records in the order read."""
        consumer = Consumer(consumer_config(self.base, f"{self.namespace.prefix}test.{uuid.uuid4().hex[:8]}"))
        consumer.subscribe([topic])
        records: list[Any] = []
        end_s = time.monotonic() + timeout_s
        try:
            while not until(records) and time.monotonic() < end_s:
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    records.append(decode_as(message.value(), record_type))
        finally:
            consumer.close()
        assert until(records), f"{len(records)} records of {topic} after {timeout_s:g} s"
        return records

    def answers(self, works: list[RankingWork], *, timeout_s: float = 40.0) -> dict[str, list[RankingAnswer]]:
        """The answers to the works, each at least once."""
        wanted = {work.request_id for work in works}
        records = self.read(
            self.namespace.topic(RANKING_ANSWERS),
            RankingAnswer,
            until=lambda answers: wanted <= {answer.request_id for answer in answers},
            timeout_s=timeout_s,
        )
        by_request = defaultdict(list)
        for answer in records:
            by_request[answer.request_id].append(answer)
        return by_request

    def num_answers(self) -> int:
        """Answers in the log now, repeats included."""
        consumer = Consumer(consumer_config(self.base, f"{self.namespace.prefix}test.count"))
        topic = self.namespace.topic(RANKING_ANSWERS)
        try:
            ends = [
                consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10.0)[1]
                for partition in range(RANKING_ANSWERS.num_partitions)
            ]
        finally:
            consumer.close()
        return sum(ends)

    def await_serving(self, ranker_id: str, *, timeout_s: float = 100.0) -> None:
        """Wait until a replica has got its partitions."""
        end_s = time.monotonic() + timeout_s
        while "partitions assigned" not in self.log(ranker_id):
            assert time.monotonic() < end_s, self.log(ranker_id)
            time.sleep(0.05)

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.producer.drain()


@pytest.fixture
def rig(kafka, topic_prefix, bundle, tmp_path):
    rig = Rig(kafka, topic_prefix, bundle=bundle, folder=tmp_path)
    yield rig
    rig.close()


def assert_each_chunk_ended_once(work: RankingWork, answer: RankingAnswer) -> None:
    ends = sorted([*answer.scored_chunks, *(shed.chunk for shed in answer.sheds)])
    assert ends == list(range(len(work.chunk_values_micro))), answer
    assert len(answer.scores) == 4 * len(answer.scored_chunks) * CHUNK_SIZE


class Load(threading.Thread):
    """Sends optional work at a steady rate until stopped."""

    def __init__(self, rig: Rig, *, per_s: float) -> None:
        super().__init__(daemon=True)
        self.rig = rig
        self.period_s = 1.0 / per_s
        self.stopped = threading.Event()
        self.works: list[RankingWork] = []

    def run(self) -> None:
        while not self.stopped.wait(self.period_s):
            self.works.append(self.rig.send("wide", partition=len(self.works) % 8, deadline_ms=1_500))

    def stop(self) -> list[RankingWork]:
        self.stopped.set()
        self.join()
        return self.works


def test_no_optional_chunk_starts_behind_a_closed_gate(rig):
    flips = random.Random(11)
    with GateWriter(POOL, folder=rig.runtime) as gate:
        ranker = rig.start("wide-1", "wide", pool=POOL)
        rig.await_serving("wide-1")
        load = Load(rig, per_s=60)
        load.start()
        closed_spans: list[tuple[int, int]] = []
        drains: list[RankerDrain] = []
        closed_since_ns = time.monotonic_ns()
        for _ in range(20):
            time.sleep(flips.uniform(0.02, 0.1))
            opening_ns = time.monotonic_ns()
            gate.open(lease_s=10.0)
            closed_spans.append((closed_since_ns, opening_ns))
            time.sleep(flips.uniform(0.1, 0.4))
            gate.close()
            report = gate.wait_drained(2.0)
            closed_since_ns = report.closed_ns
            assert not report.pending_pids
            assert not report.dead_pids
            drains += report.drained
        time.sleep(0.2)
        closed_spans.append((closed_since_ns, time.monotonic_ns()))
        works = load.stop()
        answers = rig.answers(works)
        ranker.send_signal(signal.SIGTERM)
        assert ranker.wait(10.0) == 0, rig.log("wide-1")
        assert gate.rankers() == (), "the slot was not given back"

    calls = [json.loads(line) for line in rig.trace_path("wide-1").read_text().splitlines()]
    behind = [call for call in calls for start_ns, end_ns in closed_spans if start_ns < call["looked_ns"] < end_ns]
    assert behind == []

    reasons: dict[str, int] = defaultdict(int)
    num_scored = 0
    for work in works:
        [answer] = answers[work.request_id]
        assert_each_chunk_ended_once(work, answer)
        num_scored += len(answer.scored_chunks)
        for shed in answer.sheds:
            reasons[shed.reason] += 1
            assert shed.reason != "gate_closed" or answer.pressure == 1.0
    reactions_us = sorted(drain.reaction_ns // 1000 for drain in drains)
    drained_us = sorted(drain.drained_after_ns // 1000 for drain in drains)
    num_met = sum(reaction_us > 0 for reaction_us in reactions_us)
    print(f"\n{len(calls)} optional calls, {num_scored} chunks scored, sheds {dict(reasons)}")
    print(f"flip to the end of the last chunk: p50 {reactions_us[10]} max {reactions_us[-1]} us, {num_met} met one")
    print(f"flip to drained: p50 {drained_us[10]} max {drained_us[-1]} us")
    assert len(drains) == 20
    assert len(calls) > 50
    assert num_scored > 100
    assert reasons["gate_closed"] > 0


def test_base_work_survives_a_killed_replica(rig):
    process = rig.start("baseline-1", "baseline", static=True)
    rig.await_serving("baseline-1")
    works = [rig.send("baseline", partition=number % 8, deadline_ms=20_000) for number in range(50)]
    rig.answers(works)
    # More than it can do before it is killed: some of it is taken and unanswered, some not even taken.
    works += [
        rig.send("baseline", partition=number % 8, deadline_ms=20_000, num_candidates=32 * CHUNK_SIZE)
        for number in range(200)
    ]
    rig.answers(works[50:52])
    process.kill()
    process.wait()
    answered = rig.num_answers()
    process = rig.start("baseline-1", "baseline", static=True)
    answers = rig.answers(works, timeout_s=100.0)
    assert answered < len(works), "it was killed too late to prove anything"
    for work in works:
        first, *repeats = answers[work.request_id]
        assert first.error == ""
        assert_each_chunk_ended_once(work, first)
        for repeat in repeats:
            assert (repeat.scored_chunks, repeat.sheds) == (first.scored_chunks, [])
            np.testing.assert_allclose(
                np.frombuffer(repeat.scores, "<f4"), np.frombuffer(first.scores, "<f4"), rtol=1e-4
            )
    assert {answer.ranker for given in answers.values() for answer in given} == {"baseline-1"}
    process.send_signal(signal.SIGTERM)
    assert process.wait(10.0) == 0, rig.log("baseline-1")


def test_a_mixed_replica_with_its_gate_closed_does_base_work_and_sheds_the_rest(rig):
    with GateWriter(POOL, folder=rig.runtime) as gate:
        rig.start("mixed-1", "baseline,wide", pool=POOL)
        rig.await_serving("mixed-1")
        # The second topic's assignment may come a moment later.
        shut = [rig.send("wide", partition=number, deadline_ms=20_000) for number in range(8)]
        base = [rig.send("baseline", partition=number, deadline_ms=20_000) for number in range(8)]
        answers = rig.answers([*shut, *base])
        for work in base:
            assert (answers[work.request_id][0].error, answers[work.request_id][0].scored_chunks) == ("", [0])
        for work in shut:
            [answer] = answers[work.request_id]
            assert {shed.reason for shed in answer.sheds} == {"gate_closed"}
            assert (answer.scored_chunks, answer.pressure) == ([], 1.0)
            assert_each_chunk_ended_once(work, answer)
        gate.open(lease_s=30.0)
        # Sent once the ranker can have attached; what is shed for another reason would show here.
        time.sleep(0.5)
        offered = [rig.send("wide", partition=number, deadline_ms=20_000) for number in range(8)]
        answers = rig.answers(offered)
        for work in offered:
            assert answers[work.request_id][0].scored_chunks == list(range(NUM_CHUNKS))


def test_what_cannot_be_believed_is_dead_lettered_and_the_rest_is_answered(rig):
    topic = rig.namespace.topic(WORK_BY_ROUTE["baseline"])
    rig.producer.send(topic, b"not a record", partition=0)
    rig.send("baseline", partition=0, deadline_ms=20_000, lever="rma")
    rig.send("baseline", partition=0, deadline_ms=20_000, reply_partition=99)
    rig.send("baseline", partition=0, deadline_ms=20_000, num_candidates=5_000)
    lame = rig.send("baseline", partition=0, deadline_ms=20_000, user_features=b"\0" * 4)
    good = rig.send("baseline", partition=0, deadline_ms=20_000)
    process = rig.start("baseline-1", "baseline")
    rig.await_serving("baseline-1")
    answers = rig.answers([lame, good])
    assert answers[good.request_id][0].error == ""
    assert answers[good.request_id][0].scored_chunks == [0]
    assert answers[lame.request_id][0].error
    assert answers[lame.request_id][0].scored_chunks == []
    letters = rig.read(
        rig.namespace.dead_letters(WORK_BY_ROUTE["baseline"]), DeadLetter, until=lambda found: len(found) >= 4
    )
    assert sorted((letter.reason, letter.field) for letter in letters) == [
        ("bad_framing", ""),
        ("invalid_field", "lever"),
        ("invalid_field", "reply_partition"),
        ("too_large", "ad_ids"),
    ]
    intervals = rig.read(
        rig.namespace.topic(SERVING_LATENCY),
        LatencyInterval,
        until=lambda found: sum(route.num_answered for record in found for route in record.routes) >= 2,
    )
    assert [record.seq for record in intervals] == list(range(len(intervals)))
    assert {record.part for record in intervals} == {"ranker"}
    assert sum(route.units_done for record in intervals for route in record.routes) == CHUNK_SIZE
    process.send_signal(signal.SIGTERM)
    assert process.wait(10.0) == 0, rig.log("baseline-1")


def test_an_opportunistic_backlog_is_dropped_and_not_caught_up(rig):
    ancient = [rig.send("wide", partition=0, deadline_ms=50) for _ in range(100)]
    time.sleep(BACKLOG_MS / 1e3)
    with GateWriter(POOL, folder=rig.runtime) as gate:
        gate.open(lease_s=60.0)
        ranker = rig.start("wide-1", "wide", pool=POOL)
        rig.await_serving("wide-1")
        # A replica that was held up for a moment: what is too late by then is shed unscored, what is not is done.
        ranker.send_signal(signal.SIGSTOP)
        backlog = [rig.send("wide", partition=0, deadline_ms=50) for _ in range(100)]
        fresh = rig.send("wide", partition=0, deadline_ms=20_000)
        time.sleep(0.3)
        ranker.send_signal(signal.SIGCONT)
        answers = rig.answers([*backlog, fresh])
    for work in backlog:
        [answer] = answers[work.request_id]
        assert {shed.reason for shed in answer.sheds} == {"backlog"}
        assert_each_chunk_ended_once(work, answer)
    assert answers[fresh.request_id][0].scored_chunks == list(range(NUM_CHUNKS))
    # What was that old when the replica came was not even read: its routers have long closed it as lost.
    assert not answers.keys() & {work.request_id for work in ancient}
