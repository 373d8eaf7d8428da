"""The router as a process on a real broker, with stub replicas that answer at once."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from ranking.client.targets import TargetsView
from ranking.router.arms import arm_of
from ranking.router.doses import dose_of
from ranking.router.experiment import Experiment
from schemas.errors import RecordError
from schemas.framing import decode_as
from schemas.kafka.config import client_config, consumer_config
from schemas.records import (
    LatencyInterval,
    RankingRequest,
    RankingResult,
)
from schemas.topics import (
    CONTROL_TARGETS,
    RANKING_ANSWERS,
    RANKING_REQUESTS,
    SERVING_LATENCY,
)
from tests.broker.router_pipeline import NUM_PARTITIONS, Pipeline, request_of, target, wait_for


@pytest.fixture
def pipeline(kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipeline]:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", kafka)
    pipeline = Pipeline(topic_prefix)
    yield pipeline
    pipeline.close()


def test_kill_9_under_load_costs_no_result_and_makes_no_second_one(pipeline: Pipeline) -> None:
    pipeline.stub("ranker-1", range(NUM_PARTITIONS))
    router = pipeline.start_router()
    pipeline.warm_up()

    sender = threading.Thread(target=pipeline.send, args=(range(300),))
    sender.start()
    time.sleep(1.0)
    os.kill(router.pid, signal.SIGKILL)
    router.wait()
    pipeline.start_router()
    sender.join()
    # Sent again by their callers, as some were not answered in time: the new owner knows that they have a result.
    pipeline.results(301)
    pipeline.send(range(60, 90))

    results = pipeline.results(301, settle_s=2.0)
    counts = Counter(result.request_id for result in results)
    assert counts == Counter({f"request-{number}": 1 for number in range(-1, 300)})
    assert not any(result.degraded or result.status == "error" for result in results)
    assert any(result.takeover for result in results), "the kill caught nothing: the test proved nothing"
    late = [result for result in results if result.late and not result.takeover]
    assert late == []


@pytest.mark.chaos
@pytest.mark.timeout(180)
def test_a_router_stopped_past_its_session_makes_no_second_result(pipeline: Pipeline) -> None:
    pipeline.stub("ranker-1", range(NUM_PARTITIONS))
    stopped = pipeline.start_router("router-1")
    pipeline.start_router("router-2")
    pipeline.warm_up()
    time.sleep(3.0)

    num_stops, num_requests, num_first = 3, 3_000, 300
    # A broker that has only just started acknowledges slowly, and results wait in the client: not what is tested here.
    pipeline.send(range(num_first))
    pipeline.results(num_first + 1)
    sender = threading.Thread(
        target=pipeline.send, args=(range(num_first, num_requests),), kwargs={"rate_per_s": 120.0}
    )
    sender.start()
    for _ in range(num_stops):
        time.sleep(2.0)
        stopped.send_signal(signal.SIGSTOP)
        time.sleep(4.0)
        stopped.send_signal(signal.SIGCONT)
    sender.join()

    results = pipeline.results(num_requests + 1, settle_s=2.0)
    counts = Counter(result.request_id for result in results)
    print(f"{len(results) - len(counts)} of {len(results)} results twice, by {Counter(r.router for r in results)}")
    assert counts.keys() == {f"request-{number}" for number in range(-1, num_requests)}
    # One at most for each stop: the one that was between the last look at the clock and the broker.
    assert len(results) - len(counts) <= num_stops
    assert not any(result.degraded for result in results)
    assert any(result.takeover for result in results), "the stops caught nothing: the test proved nothing"
    assert stopped.poll() is None, "it ended instead of joining again"
    assert {result.router for result in results} == {"router-1", "router-2"}


def test_a_router_whose_name_another_process_has_taken_ends(pipeline: Pipeline) -> None:
    pipeline.stub("ranker-1", range(NUM_PARTITIONS))
    first = pipeline.start_router()
    pipeline.warm_up()
    second = pipeline.start_router()
    assert first.wait(timeout=60) != 0
    pipeline.send(range(20))
    results = pipeline.results(21, settle_s=1.0)
    assert Counter(result.request_id for result in results).most_common(1)[0][1] == 1
    assert second.poll() is None


def test_silent_partitions_are_left_and_their_work_is_done_elsewhere(pipeline: Pipeline) -> None:
    pipeline.stub("ranker-1", range(4))
    dying = pipeline.stub("ranker-2", range(4, 8))
    pipeline.start_router()
    pipeline.warm_up()
    pipeline.send(range(100))

    dying.is_silent = True
    pipeline.send(range(100, 300))

    results = pipeline.results(301, settle_s=1.0)
    assert len({result.request_id for result in results}) == len(results) == 301
    # The first request waited for the router to start.
    results = [result for result in results if not result.takeover]
    assert len(results) >= 300
    assert [result.request_id for result in results if result.late or result.degraded] == []
    retried = [result for result in results if result.num_base_attempts == 2]
    assert retried, "no work was caught by the silence: the test proved nothing"
    # Suspected at once, tried again once a second: of 200 requests a few are caught, not half.
    assert len(retried) < 60


def test_extras_are_merged_while_a_target_is_valid(pipeline: Pipeline) -> None:
    base = pipeline.stub("ranker-1", range(NUM_PARTITIONS))
    wide = pipeline.stub("ranker-2", range(NUM_PARTITIONS), route="wide")
    pipeline.start_router()
    pipeline.warm_up()
    with TargetsView(pipeline.namespace, default_base_candidates=7) as targets:
        assert targets.candidates_to_fetch("us-east") == 7
        pipeline.raw.send(pipeline.namespace.topic(CONTROL_TARGETS), target(valid_for_ms=3_000), key=b"us-east")
        pipeline.raw.drain()
        wait_for(lambda: targets.candidates_to_fetch("us-east") == 150)
        time.sleep(0.3)
        pipeline.send(range(50))
        with_extras = [result for result in pipeline.results(51) if result.request_id != "request--1"]
        wait_for(lambda: targets.candidates_to_fetch("us-east") == 64)
    pipeline.send(range(50, 60))
    without = [result for result in pipeline.results(61) if int(result.request_id.split("-")[1] or -1) >= 50]

    # Whichever process draws: as anyone can work out from the names of the user and the request.
    assert {result.request_id: (result.arm, result.dose) for result in with_extras} == {
        result.request_id: (arm_of(result.user_id).name, _dose(result)) for result in with_extras
    }
    wanted = [result for result in with_extras if result.dose]
    in_full = [result for result in wanted if result.num_candidates_ranked == 64 + result.dose]
    print(Counter((item.state, item.reason) for result in wanted for item in result.optional))
    assert {item.state for result in in_full for item in result.optional} == {"admitted"}
    assert len(wanted) >= 35
    # All of them on a machine that has nothing else to do.
    assert 3 * len(in_full) >= len(wanted)
    assert len(without) == 10
    assert {result.num_candidates_ranked for result in without} == {64}
    assert len(wanted) - 10 <= len(wide.works) <= len(wanted)
    assert len([work for work in base.works if work.attempt == 0]) == 61
    assert all(trace is not None for trace in base.traces + wide.traces)
    intervals = [
        decode_as(message.value(), LatencyInterval)
        for message in pipeline.read(pipeline.namespace.topic(SERVING_LATENCY), 1, settle_s=2.0, timeout_s=5.0)
        if message.key() == b"us-east"
    ]
    assert sum(account.offered for interval in intervals for account in interval.accounts) == sum(
        result.dose for result in wanted
    )
    assert sum(interval.num_requests for interval in intervals) == 61


def test_bad_records_are_contained_and_a_stop_is_clean(pipeline: Pipeline) -> None:
    pipeline.stub("ranker-1", range(NUM_PARTITIONS))
    router = pipeline.start_router()
    pipeline.warm_up()
    topic = pipeline.namespace.topic(RANKING_REQUESTS)
    pipeline.raw.send(topic, b"no record at all", key=b"user-1")
    pipeline.raw.send(topic, request_of(1), key=b"somebody else")
    wrong = request_of(2)
    pipeline.raw.send(topic, wrong, key=wrong.user_id.encode(), partition=_other_partition(wrong))
    pipeline.raw.send(topic, request_of(3, num_candidates=0), key=b"user-3")
    pipeline.raw.send(pipeline.namespace.topic(RANKING_ANSWERS), b"no answer", partition=0)
    pipeline.raw.send(pipeline.namespace.topic(CONTROL_TARGETS), target(valid_for_ms=10**9), key=b"us-east")
    pipeline.raw.drain()
    with pytest.raises(RecordError):
        pipeline.requests.send(request_of(4, cell="No Cell"))
    pipeline.send(range(5, 25))

    results = {result.request_id: result for result in pipeline.results(22)}
    assert results["request-3"].status == "error"
    assert "no candidates" in results["request-3"].error
    assert set(results) == {"request--1", "request-3", *(f"request-{number}" for number in range(5, 25))}
    letters = pipeline.dead_letters(RANKING_REQUESTS, 3)
    assert {letter.reason for letter in letters} == {"bad_framing", "key_mismatch", "wrong_partition"}
    assert [letter.reason for letter in pipeline.dead_letters(RANKING_ANSWERS, 1)] == ["bad_framing"]

    (letter,) = pipeline.dead_letters(CONTROL_TARGETS, 1)
    assert (letter.reason, letter.field) == ("invalid_field", "valid_until_ms")

    router.send_signal(signal.SIGTERM)
    assert router.wait(timeout=15) == 0
    consumer = Consumer(consumer_config(client_config("offsets"), pipeline.namespace.group("router")))
    for number in range(NUM_PARTITIONS):
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)
        committed = consumer.committed([TopicPartition(topic, number)], timeout=10)[0]
        assert committed.offset == end
        assert '"results":' in (committed.metadata or "")
    consumer.close()


def _other_partition(request: RankingRequest) -> int:
    from schemas.partition import partition_for

    return (partition_for(request.user_id.encode(), NUM_PARTITIONS) + 1) % NUM_PARTITIONS


def _dose(result: RankingResult) -> int:
    if not arm_of(result.user_id).allows_rma:
        return 0
    return dose_of(result.request_id, num_full=150 - 64, explored_share=Experiment().explored_share).num_extra
