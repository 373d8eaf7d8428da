"""The whole pipeline under load, each of its parts killed with SIGKILL in turn.

Base answers are in time wherever a router lives, those caught in the router's takeover come after it, there is one
result per request, and what the windows and targets are does not depend on who died.
"""

import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ops.demo.collector import Collector
from ops.demo.ledger import Ledger
from ops.demo.parts import Layout
from ops.demo.pipeline import Pipeline, now_ms
from ops.demo.report import LEVERS, account
from ops.simulator.scenario import Scenario, load_scenario
from schemas.framing import decode_as, encode
from schemas.kafka.config import Config
from schemas.kafka.ranges import latest_by_key, read_to_end
from schemas.records import CandidateTarget, ControlWindow
from schemas.topics import CONTROL_CELLS, CONTROL_TARGETS, CONTROL_WINDOWS, Namespace
from streams.control.processor import apply
from streams.control.state import CellState
from streams.ingest.cells import Cells
from streams.ingest.partition import RawRecord, recompute
from streams.ingest.worker.loop import KINDS

SCENARIO = Path(__file__).with_name("kills.toml")
# Every kill has this long before the next; a takeover by a static member that restarts at once takes less than one.
KILL_EVERY_S = 6.0
# A router that dies at a bad moment is a new member, after its session of two seconds; then come its imports.
TAKEOVER_MS = 6_000
VICTIMS = (
    ("ingest-1",),
    ("control-1",),
    ("dedicated-1",),
    ("wide-1",),
    ("wide-1", "wide-2"),
    ("router-1",),
)


@dataclass(frozen=True)
class Kill:
    """Parts killed at one moment, milliseconds since the epoch."""

    names: tuple[str, ...]
    at_ms: int


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run that is over: what its topics say, and who died when."""

    scenario: Scenario
    config: Config
    namespace: Namespace
    ledger: Ledger
    kills: list[Kill]
    restarts: dict[str, int]


@pytest.fixture(scope="module")
def run(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    scenario = load_scenario(str(SCENARIO))
    config: Config = {"bootstrap.servers": kafka, "client.id": "test", "log_level": 3}
    namespace = Namespace(f"t-kills-{os.getpid()}.")
    layout = Layout(run_dir=tmp_path_factory.mktemp("kills"), scenario=str(SCENARIO), duration_s=scenario.duration_s)
    rng = random.Random(SEED)
    with Pipeline(scenario, config, namespace, layout=layout) as pipeline:
        pipeline.prepare()
        pipeline.start()
        ledger = Ledger()
        collector = Collector(config, namespace, ledger)
        traffic = pipeline.start_traffic()
        kills: list[Kill] = []
        waiting = list(VICTIMS)
        next_kill_ms = traffic.warm_up_end_ms
        while not pipeline.traffic_over():
            collector.poll(0.05)
            pipeline.supervisor.check()
            if waiting and now_ms() >= next_kill_ms:
                time.sleep(rng.random() * 0.5)
                kills.append(kill(pipeline, waiting.pop(0)))
                next_kill_ms += round(KILL_EVERY_S * 1_000)
        collector.poll(3.0)
        # Every window of the traffic closes, also after the last kill.
        pipeline.stop()
        collector.drain()
        collector.close()
        assert not waiting, "the traffic ended before every part was killed"
        yield Run(
            scenario=scenario,
            config=config,
            namespace=namespace,
            ledger=ledger,
            kills=kills,
            restarts=dict(pipeline.supervisor.restarts),
        )


SEED = 20_261


def kill(pipeline: Pipeline, names: tuple[str, ...]) -> Kill:
    pids = [pipeline.supervisor.pid(name) for name in names]
    for name, pid in zip(names, pids, strict=True):
        assert pid is not None, f"{name} was not running"
        os.kill(pid, signal.SIGKILL)
    return Kill(names, now_ms())


@pytest.mark.timeout(300)
def test_each_part_was_killed_and_came_back(run: Run) -> None:
    killed: dict[str, int] = defaultdict(int)
    for event in run.kills:
        for name in event.names:
            killed[name] += 1
    assert run.restarts == dict(killed)


def test_every_request_has_one_result(run: Run) -> None:
    assert len(run.ledger.requests) > 1_000
    assert set(run.ledger.requests) == set(run.ledger.results)
    assert run.ledger.num_results == len(run.ledger.results)


def test_no_result_is_without_its_base_ranking(run: Run) -> None:
    broken = [seen.record for seen in run.ledger.results.values() if seen.record.degraded or seen.record.status != "ok"]
    assert broken == []


def test_only_the_routers_death_makes_base_answers_late(run: Run) -> None:
    died_ms = next(event.at_ms for event in run.kills if "router-1" in event.names)
    late = {
        request_id: run.ledger.requests[request_id].append_ms - died_ms
        for request_id, seen in run.ledger.results.items()
        if seen.append_ms - run.ledger.requests[request_id].append_ms > run.scenario.requests.deadline_ms
    }
    outside = {key: at_ms for key, at_ms in late.items() if not -1_000 <= at_ms <= TAKEOVER_MS}
    assert outside == {}, f"{len(outside)} base answers late while a router lived, by ms after the router's death"


def test_every_optional_item_is_accounted_for(run: Run) -> None:
    for lever in LEVERS:
        assert account(run.ledger, lever, run.ledger.results.values()).exact


def test_extras_come_back_after_all_wide_replicas_died(run: Run) -> None:
    died_ms = next(event.at_ms for event in run.kills if len(event.names) == 2)
    admitted_ms = [
        run.ledger.requests[seen.record.request_id].append_ms - died_ms
        for seen in run.ledger.results.values()
        if any(item.state == "admitted" for item in seen.record.optional)
    ]
    assert any(-KILL_EVERY_S * 1_000 < at_ms < 0 for at_ms in admitted_ms), "they died without optional work"
    assert any(at_ms > KILL_EVERY_S * 1_000 for at_ms in admitted_ms)


def test_windows_are_what_the_raw_topics_give_read_afresh(run: Run) -> None:
    sent = defaultdict(set)
    for message in read_to_end(run.config, run.namespace.topic(CONTROL_WINDOWS)):
        window = decode_as(message.value(), ControlWindow)
        sent[window.kind, window.cell, window.window_index].add(message.value())
    assert {key for key, values in sent.items() if len(values) > 1} == set()
    cells = Cells(window_ms=run.scenario.time.window_ms)
    for key, value in latest_by_key(run.config, run.namespace.topic(CONTROL_CELLS)).items():
        cells.read(key, value)
    afresh: dict[tuple[str, str, int], set[bytes]] = defaultdict(set)
    for kind in KINDS:
        raw: dict[int, list[RawRecord]] = defaultdict(list)
        for message in read_to_end(run.config, run.namespace.topic(kind.topic)):
            raw[message.partition() or 0].append(
                RawRecord(message.offset() or 0, message.timestamp()[1], message.key(), message.value())
            )
        for partition, records in raw.items():
            processed = recompute(
                records,
                kind,
                partition,
                num_partitions=kind.topic.num_partitions,
                time=run.scenario.time,
                cells=cells,
            )
            for window in processed.windows:
                afresh[window.kind, window.cell, window.window_index].add(encode(window))
    assert len(sent) > 30
    # The last records may close windows that nobody was left to send; none was sent that is not in the log.
    newest = {kind: max(index for of, _, index in sent if of == kind) for kind in ("capacity", "latency")}
    assert sent == {key: values for key, values in afresh.items() if key[2] <= newest[key[0]]}


def test_targets_are_what_the_windows_give_read_afresh(run: Run) -> None:
    sent = defaultdict(set)
    for message in read_to_end(run.config, run.namespace.topic(CONTROL_TARGETS)):
        target = decode_as(message.value(), CandidateTarget)
        sent[target.cell, target.window_index].add(message.value())
    states: dict[str, CellState] = {}
    afresh = defaultdict(set)
    for message in read_to_end(run.config, run.namespace.topic(CONTROL_WINDOWS)):
        window = decode_as(message.value(), ControlWindow)
        state, records = apply(states.get(window.cell, CellState(cell=window.cell)), window)
        states[window.cell] = state
        for record in records:
            if isinstance(record, CandidateTarget):
                afresh[record.cell, record.window_index].add(encode(record))
    newest = max(index for _, index in sent)
    assert len(sent) > 15
    assert sent == {key: values for key, values in afresh.items() if key[1] <= newest}
