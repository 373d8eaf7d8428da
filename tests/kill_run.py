"""Runs the whole pipeline under load and kills its parts with SIGKILL; what its topics say afterwards is the result."""

import os
import signal
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ops.demo.collector import Collector
from ops.demo.ledger import Ledger
from ops.demo.parts import Layout
from ops.demo.pipeline import Pipeline, now_ms
from ops.simulator.scenario import Scenario
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

# A router that dies at a bad moment is a new member, after its session of two seconds; then come its imports.
TAKEOVER_MS = 6_000

Values = dict[tuple[str, str, int], set[bytes]]


@dataclass(frozen=True)
class PlannedKill:
    """Parts to kill at one moment, seconds after the end of the warm-up."""

    at_s: float
    names: tuple[str, ...]


@dataclass(frozen=True)
class Kill:
    """Parts killed at one moment, milliseconds since the epoch."""

    names: tuple[str, ...]
    at_ms: int


@dataclass(frozen=True, kw_only=True)
class KillRun:
    """One run that is over: what its topics say, and who died when."""

    scenario: Scenario
    config: Config
    namespace: Namespace
    ledger: Ledger
    kills: list[Kill]
    restarts: dict[str, int]

    def late_while_a_router_lived(self) -> dict[str, int]:
        """Late base answers that no death of a router explains, with when they were asked, ms after the warm-up."""
        deaths_ms = [kill.at_ms for kill in self.kills if any(name.startswith("router") for name in kill.names)]
        late = {}
        for request_id, seen in self.ledger.results.items():
            asked_ms = self.ledger.requests[request_id].append_ms
            if seen.append_ms - asked_ms <= self.scenario.requests.deadline_ms:
                continue
            if not any(-1_000 <= asked_ms - died_ms <= TAKEOVER_MS for died_ms in deaths_ms):
                late[request_id] = asked_ms
        return late

    def admitted_ms(self) -> list[int]:
        """When the requests were asked whose results have optional work in them, milliseconds since the epoch."""
        return [
            self.ledger.requests[seen.record.request_id].append_ms
            for seen in self.ledger.results.values()
            if any(item.state == "admitted" for item in seen.record.optional)
        ]

    def windows_sent(self) -> Values:
        """Windows in the log by kind, cell and index."""
        sent: Values = defaultdict(set)
        for message in read_to_end(self.config, self.namespace.topic(CONTROL_WINDOWS)):
            value = message.value() or b""
            window = decode_as(value, ControlWindow)
            sent[window.kind, window.cell, window.window_index].add(value)
        return sent

    def windows_afresh(self) -> Values:
        """What the pure processor makes of the raw topics, read from their beginning."""
        cells = Cells(window_ms=self.scenario.time.window_ms)
        for key, value in latest_by_key(self.config, self.namespace.topic(CONTROL_CELLS)).items():
            cells.read(key, value)
        afresh: Values = defaultdict(set)
        for kind in KINDS:
            raw: dict[int, list[RawRecord]] = defaultdict(list)
            for message in read_to_end(self.config, self.namespace.topic(kind.topic)):
                raw[message.partition() or 0].append(
                    RawRecord(message.offset() or 0, message.timestamp()[1], message.key(), message.value())
                )
            for partition, records in raw.items():
                processed = recompute(
                    records,
                    kind,
                    partition,
                    num_partitions=kind.topic.num_partitions,
                    time=self.scenario.time,
                    cells=cells,
                )
                for window in processed.windows:
                    afresh[window.kind, window.cell, window.window_index].add(encode(window))
        return afresh

    def targets_sent(self) -> Values:
        """Targets in the log by cell and index."""
        sent: Values = defaultdict(set)
        for message in read_to_end(self.config, self.namespace.topic(CONTROL_TARGETS)):
            value = message.value() or b""
            target = decode_as(value, CandidateTarget)
            sent["target", target.cell, target.window_index].add(value)
        return sent

    def targets_afresh(self) -> Values:
        """What the pure controller makes of the windows in the log."""
        states: dict[str, CellState] = {}
        afresh: Values = defaultdict(set)
        for message in read_to_end(self.config, self.namespace.topic(CONTROL_WINDOWS)):
            window = decode_as(message.value(), ControlWindow)
            state, records = apply(states.get(window.cell, CellState(cell=window.cell)), window)
            states[window.cell] = state
            for record in records:
                if isinstance(record, CandidateTarget):
                    afresh["target", record.cell, record.window_index].add(encode(record))
        return afresh


def up_to_newest(values: Values, sent: Values) -> Values:
    """``values`` up to the newest index that was sent of each kind: the last may have found nobody left to send it."""
    newest = {kind: max(index for of, _, index in sent if of == kind) for kind, _, _ in sent}
    return {key: value for key, value in values.items() if key[2] <= newest.get(key[0], -1)}


def run_and_kill(
    bootstrap: str, scenario: Scenario, layout: Layout, *, namespace: Namespace, planned: Iterable[PlannedKill]
) -> KillRun:
    """Run the scenario to its end with the kills that are planned, in order."""
    config: Config = {"bootstrap.servers": bootstrap, "client.id": "test", "log_level": 2}
    with Pipeline(scenario, config, namespace, layout=layout) as pipeline:
        pipeline.prepare()
        pipeline.start()
        ledger = Ledger()
        collector = Collector(config, namespace, ledger)
        traffic = pipeline.start_traffic()
        kills: list[Kill] = []
        waiting = list(planned)
        while not pipeline.traffic_over():
            collector.poll(0.05)
            pipeline.supervisor.check()
            if waiting and now_ms() >= traffic.warm_up_end_ms + waiting[0].at_s * 1_000:
                kills.append(_kill(pipeline.supervisor.pid, waiting.pop(0).names))
        assert not waiting, "the traffic ended before every part was killed"
        collector.poll(3.0)
        pipeline.stop()
        collector.drain()
        collector.close()
        return KillRun(
            scenario=scenario,
            config=config,
            namespace=namespace,
            ledger=ledger,
            kills=kills,
            restarts=dict(pipeline.supervisor.restarts),
        )


def layout_of(scenario_file: Path, scenario: Scenario, run_dir: Path) -> Layout:
    """Files of a run of a scenario from a file."""
    return Layout(run_dir=run_dir, scenario=str(scenario_file), duration_s=scenario.duration_s)


def _kill(pid_of: Callable[[str], int | None], names: tuple[str, ...]) -> Kill:
    for name in names:
        pid = pid_of(name)
        assert pid is not None, f"{name} was not running"
        os.kill(pid, signal.SIGKILL)
    return Kill(names, now_ms())
