"""Agents and callers against a real broker: what lands in the topics is valid, where it belongs, and complete."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from ops.simulator import agents, callers
from ops.simulator import scenario as scenario_module
from ops.simulator.agents import AgentOptions, host_folder
from ops.simulator.callers import CallerOptions
from ops.simulator.requests import RequestStream
from ops.simulator.scenario import Scenario, load_scenario
from ops.simulator.scenario_model import CapacityChange
from ops.simulator.world import World, WorldConfig
from schemas.framing import Decoder, decode_as
from schemas.gate_reader import GateReader
from schemas.kafka.admin import BrokerError, TopicAdmin
from schemas.kafka.config import BOOTSTRAP_ENV, NAMESPACE_ENV, client_config, consumer_config, producer_config
from schemas.kafka.dead_letters import message_headers
from schemas.kafka.producer import DurableProducer
from schemas.partition import partition_for
from schemas.records import CapacityEvent, DeadLetter, RankingOutcome, RankingRequest, RankingResult
from schemas.topics import (
    FLEET_CAPACITY,
    RANKING_OUTCOMES,
    RANKING_REQUESTS,
    RANKING_RESULTS,
    Namespace,
    Topic,
)
from schemas.tracing import trace_from


@pytest.fixture
def namespace(kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch) -> Namespace:
    """A pipeline's topics of this test's own."""
    monkeypatch.setenv(BOOTSTRAP_ENV, kafka)
    namespace = Namespace(topic_prefix)
    TopicAdmin(client_config("test")).create(namespace)
    return namespace


@pytest.fixture
def scenario() -> Scenario:
    """Three seconds of traffic with a reclaim of both hosts in the middle."""
    taken = CapacityChange(at_s=1.0, hosts="*", action="reclaim", reason="owner", duration_s=1.0, units=None)
    quick = load_scenario("quick")
    return replace(quick, warm_up_s=0.0, duration_s=3.0, capacity_changes=(taken,))


def everything(topic: str) -> list[Message]:
    """All records of a topic, to its end of now."""
    consumer = Consumer(consumer_config(client_config("test"), "none"))
    try:
        partitions = [TopicPartition(topic, p, 0) for p in consumer.list_topics(topic).topics[topic].partitions]
        num_left = sum(consumer.get_watermark_offsets(place)[1] for place in partitions)
        consumer.assign(partitions)
        messages: list[Message] = []
        while len(messages) < num_left:
            message = consumer.poll(10.0)
            assert message is not None, f"{len(messages)} of {num_left} records of {topic}"
            assert message.error() is None
            messages.append(message)
        return messages
    finally:
        consumer.close()


def in_their_partition(topic: Topic, messages: list[Message]) -> bool:
    return all(message.partition() == partition_for(message.key(), topic.num_partitions) for message in messages)


def wait_until(condition: Callable[[], bool], *, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "never came true"
        time.sleep(0.02)


def result_for(request: RankingRequest) -> RankingResult:
    """What a router that ranks by the retrieval order would answer at once."""
    ad_ids = np.frombuffer(request.ad_ids, "<i8")[: request.num_results]
    return RankingResult(
        request_id=request.request_id,
        user_id=request.user_id,
        cell=request.cell,
        status="ok",
        error="",
        late=False,
        degraded=False,
        takeover=False,
        intake_ms=request.intake_ms,
        deadline_ms=request.deadline_ms,
        completed_ms=time.time_ns() // 1_000_000,
        base_latency_us=1,
        latency_us=1,
        num_base_attempts=1,
        num_base_candidates=request.num_base_candidates,
        num_candidates_offered=len(ad_ids),
        num_candidates_ranked=len(ad_ids),
        ad_ids=ad_ids.tobytes(),
        scores=np.zeros(len(ad_ids), "<f4").tobytes(),
        routes=["baseline"],
        model_versions=["m"],
        arm="both",
        dose=0,
        target_window_index=None,
        optional=[],
        router="router-0",
        attribution_token=f"1|{request.cell}|both|0|{request.intake_ms}|",
    )


def answer_requests(namespace: Namespace, stop: threading.Event) -> int:
    """Stands in for the pipeline: one result per request, one of them twice, and one record that is none."""
    config = client_config("test-pipeline")
    topic, source = namespace.topic(RANKING_RESULTS), namespace.topic(RANKING_REQUESTS)
    producer = DurableProducer(producer_config(config))
    consumer = Consumer(consumer_config(config, namespace.group("test-pipeline")))
    consumer.assign([TopicPartition(source, p, 0) for p in range(RANKING_REQUESTS.num_partitions)])
    num_answered = 0
    while not stop.is_set():
        message = consumer.poll(0.05)
        if message is None:
            continue
        result = result_for(decode_as(message.value(), RankingRequest))
        for _ in range(2 if num_answered == 0 else 1):
            producer.send(topic, result, key=message.key())
        if num_answered == 0:
            producer.send(topic, b"no result", key=message.key())
        num_answered += 1
    producer.drain()
    consumer.close()
    return num_answered


def test_callers_send_exactly_the_scenario_and_users_react_to_results(namespace: Namespace, scenario: Scenario) -> None:
    scenario = replace(scenario, outcomes=replace(scenario.outcomes, delay_scale=0.001))
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pipeline = pool.submit(answer_requests, namespace, stop)
        try:
            report = callers.run(CallerOptions(namespace=namespace, scenario=scenario), stop=threading.Event())
        finally:
            stop.set()
        num_answered = pipeline.result()

    requests = everything(namespace.topic(RANKING_REQUESTS))
    decoded = [decode_as(message.value(), RankingRequest) for message in requests]
    planned = RequestStream(scenario, World(WorldConfig()), start_ms=report.start_ms)
    assert len(requests) == report.num_sent == planned.num_before(3.0) > 80
    assert report.num_skipped == 0
    assert sorted(each.request_id for each in decoded) == sorted(due.request.request_id for due in planned.due())
    assert in_their_partition(RANKING_REQUESTS, requests)
    assert all(message.key() == each.user_id.encode() for message, each in zip(requests, decoded, strict=True))
    assert all(trace_from(message_headers(message)) is not None for message in requests)
    # No request is appended before it arrives: the clock of the loop is the wall clock.
    assert min(m.timestamp()[1] - each.intake_ms for m, each in zip(requests, decoded, strict=True)) >= -1
    assert report.send_lag_ms.max is not None
    assert report.ack_lag_ms.max is not None
    assert report.send_lag_ms.max <= report.ack_lag_ms.max

    outcomes = everything(namespace.topic(RANKING_OUTCOMES))
    seen = [decode_as(message.value(), RankingOutcome) for message in outcomes]
    assert num_answered == len(requests)
    assert report.outcomes is not None
    assert report.outcomes.num_results == num_answered + 1
    assert report.outcomes.num_outcomes_waiting == 0
    assert report.outcomes.num_outcomes_sent == len(seen) == len({outcome.outcome_id for outcome in seen})
    # One view for each ad shown, though one result came twice.
    assert sum(outcome.kind == "view" for outcome in seen) == 8 * num_answered
    assert in_their_partition(RANKING_OUTCOMES, outcomes)
    assert all(message.key() == each.user_id.encode() for message, each in zip(outcomes, seen, strict=True))
    (letter,) = everything(namespace.dead_letters(RANKING_RESULTS))
    assert decode_as(letter.value(), DeadLetter).reason == "bad_framing"
    assert report.outcomes.num_dead_letters == 1


def test_outcomes_go_on_where_they_were_after_a_restart(namespace: Namespace, scenario: Scenario) -> None:
    def result_of(index: int) -> RankingResult:
        due = next(iter(RequestStream(scenario, World(WorldConfig()), start_ms=index).due()))
        return result_for(due.request)

    scenario = replace(
        scenario, duration_s=1.0, outcomes=replace(scenario.outcomes, delay_scale=0.0), capacity_changes=()
    )
    sender = DurableProducer(producer_config(client_config("test")))
    counts = []
    for index in range(2):
        result = result_of(index)
        sender.send(namespace.topic(RANKING_RESULTS), result, key=result.user_id.encode())
        sender.drain()
        report = callers.run(CallerOptions(namespace=namespace, scenario=scenario), stop=threading.Event())
        assert report.outcomes is not None
        counts.append(report.outcomes.num_results)
    assert counts == [1, 1]
    seen = [decode_as(m.value(), RankingOutcome) for m in everything(namespace.topic(RANKING_OUTCOMES))]
    assert sum(outcome.kind == "view" for outcome in seen) == 16


def by_host(messages: list[Message]) -> dict[str, list[CapacityEvent]]:
    decoder = Decoder(FLEET_CAPACITY.record_types)
    events: dict[str, list[CapacityEvent]] = defaultdict(list)
    for message in messages:
        event = decoder.decode(message.value())
        assert isinstance(event, CapacityEvent)
        assert message.key() == event.cell.encode()
        events[event.host].append(event)
    return events


@pytest.fixture
def ranker(tmp_path: Path) -> Iterator[Callable[[str], GateReader]]:
    """Makes the ranker's end of a host's gate."""
    readers: list[GateReader] = []

    def attach(host: str) -> GateReader:
        readers.append(GateReader("cpu", folder=host_folder(tmp_path, host)))
        return readers[-1]

    yield attach
    for reader in readers:
        reader.close()


def test_agents_flip_gates_and_tell_each_reclaim_with_its_timing(
    namespace: Namespace, scenario: Scenario, tmp_path: Path, ranker: Callable[[str], GateReader]
) -> None:
    stop = threading.Event()
    options = AgentOptions(namespace=namespace, scenario=scenario, base_dir=tmp_path)
    with ThreadPoolExecutor(1) as pool:
        agent = pool.submit(agents.run, options, stop=stop)
        try:
            gate = ranker("idle-a")
            wait_until(gate.is_open)
            wait_until(lambda: not gate.is_open())
            now_ns = time.monotonic_ns()
            reaction_us = (now_ns - gate.closed_ns) // 1_000
            gate.acknowledge(gate.generation, last_chunk_end_ns=now_ns, drained_ns=now_ns)
            wait_until(gate.is_open)
            time.sleep(1.5)
        finally:
            stop.set()
        agent.result()
    assert not gate.is_open()

    messages = everything(namespace.topic(FLEET_CAPACITY))
    assert in_their_partition(FLEET_CAPACITY, messages)
    assert max(message.timestamp()[1] for message in messages) > 0
    hosts = by_host(messages)
    assert sorted(hosts) == ["idle-a", "idle-b"]
    for events in hosts.values():
        assert [event.seq for event in events] == list(range(len(events)))
        assert len({event.epoch_ms for event in events}) == 1
        told = [(event.kind, event.reason) for event in events if event.kind != "heartbeat"]
        assert told == [("offer", ""), ("reclaim", "owner"), ("offer", "owner"), ("reclaim", "agent_stopped")]
        assert sum(event.kind == "heartbeat" for event in events) >= 4
        assert all(bool(event.offers) for event in events if event.kind == "offer")
        assert events[-1].offers == []
        timings = [timing for event in events for timing in event.reclaims]
        assert [timing.reason for timing in timings] == ["owner", "agent_stopped"]
        taken_ms = next(event.event_time_ms for event in events if event.kind == "reclaim")
        # The flip follows the moment that the record carries; each is cut to whole milliseconds, by a clock of its own.
        assert timings[0].flipped_ms >= taken_ms - 1
    ours, others = hosts["idle-a"], hosts["idle-b"]
    first = next(timing for event in ours for timing in event.reclaims)
    assert (first.reaction_us, first.drained_us, first.num_rankers) == (reaction_us, reaction_us, 1)
    assert next(timing for event in others for timing in event.reclaims).num_rankers == 0


def test_callers_that_start_late_leave_out_what_came_before(namespace: Namespace, scenario: Scenario) -> None:
    options = CallerOptions(
        namespace=namespace,
        scenario=replace(scenario, duration_s=60.0),
        start_ms=time.time_ns() // 1_000_000 - 58_000,
        with_outcomes=False,
    )
    report = callers.run(options, stop=threading.Event())
    requests = [decode_as(m.value(), RankingRequest) for m in everything(namespace.topic(RANKING_REQUESTS))]
    assert len(requests) == report.num_sent
    assert min(request.intake_ms for request in requests) >= report.start_ms + 58_000
    planned = RequestStream(options.scenario, World(WorldConfig()), start_ms=report.start_ms)
    assert report.num_sent + report.num_skipped == planned.num_before(60.0)


def test_as_commands_they_stop_cleanly_and_report(namespace: Namespace, tmp_path: Path) -> None:
    environment = {**os.environ, NAMESPACE_ENV: namespace.prefix}
    text = (Path(scenario_module.__file__).parent / "scenarios" / "quick.toml").read_text()
    short = tmp_path / "short.toml"
    short.write_text(text.replace("warm_up_s = 5.0", "warm_up_s = 0.0"))
    command = [sys.executable, "-m"]
    told = ["--scenario", str(short), "--duration-s", "2"]
    base_dir = ["--base-dir", str(tmp_path / "hosts")]
    agent = subprocess.Popen([*command, "ops.simulator.agents", *told, *base_dir], env=environment)
    try:
        sent = subprocess.run(
            [*command, "ops.simulator.callers", *told, "--no-outcomes", "--json"],
            env=environment,
            stdout=subprocess.PIPE,
            timeout=60,
            check=True,
        )
        wait_until(lambda: len(everything(namespace.topic(FLEET_CAPACITY))) > 2)
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(20) == 0
    finally:
        agent.kill()
        agent.wait()
    report = json.loads(sent.stdout)
    assert report["num_sent"] == len(everything(namespace.topic(RANKING_REQUESTS))) > 50
    assert (report["num_skipped"], report["outcomes"]) == (0, None)
    last = [events[-1] for events in by_host(everything(namespace.topic(FLEET_CAPACITY))).values()]
    assert [event.offers for event in last] == [[], []]


def test_without_topics_there_is_one_clear_error(kafka: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(BOOTSTRAP_ENV, kafka)
    nowhere = Namespace("t-nowhere.")
    scenario = load_scenario("quick")
    with pytest.raises(BrokerError, match=r"no topic t-nowhere\.fleet\.capacity"):
        agents.run(AgentOptions(namespace=nowhere, scenario=scenario, base_dir=tmp_path), stop=threading.Event())
    with pytest.raises(BrokerError, match=r"no topic t-nowhere\.ranking\.requests"):
        callers.run(CallerOptions(namespace=nowhere, scenario=scenario), stop=threading.Event())
