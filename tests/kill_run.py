"""Runs the whole pipeline under load while things go wrong; what its topics say afterwards is the result."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ops.demo.collector import Collector
from ops.demo.ledger import Ledger
from ops.demo.parts import Layout
from ops.demo.pipeline import Pipeline, now_ms
from ops.simulator.scenario import Scenario
from schemas.attribution_keys import UNSIGNED, load_keys
from schemas.framing import decode_as, encode
from schemas.kafka.config import Config
from schemas.kafka.ranges import latest_by_key, read_to_end
from schemas.records import CandidateTarget, ControlWindow
from schemas.topics import CONTROL_CELLS, CONTROL_TARGETS, CONTROL_WINDOWS, Namespace
from streams.control.processor import apply
from streams.control.state import CellState
from streams.ingest.cells import Cells
from streams.ingest.partition import RawRecord, recompute
from streams.ingest.worker import IngestOptions
from streams.ingest.worker.loop import kinds_of
from tests.faults import Fault, Happened, Planned, told

# After a router is ready again it works off what was asked meanwhile.
TAKEOVER_MS = 4_000
# Long: a machine that is busy elsewhere takes its time over imports.
READY_TIMEOUT_S = 120.0
SETTLE_S = 3.0
TURN_S = 0.05

Values = dict[tuple[str, str, int], set[bytes]]


@dataclass(frozen=True, kw_only=True)
class KillRun:
    """One run that is over: what its topics say, and what went wrong when. ``label`` tells it from others."""

    label: str
    scenario: Scenario
    config: Config
    namespace: Namespace
    ledger: Ledger
    faults: list[Happened]
    longest_gap_ms: int
    pressure: float
    restarts: dict[str, int]
    log_dir: Path
    keys_path: Path | None = None

    def late(self, excuses: Iterable[tuple[float, float]]) -> dict[str, int]:
        """Late base answers by request, with when they were asked; none of those asked within an excuse's span."""
        spans = list(excuses)
        late = {}
        for request_id, seen in self.ledger.results.items():
            asked_ms = self.ledger.requests[request_id].append_ms
            if seen.append_ms - asked_ms <= self.scenario.requests.deadline_ms:
                continue
            if not any(from_ms <= asked_ms <= to_ms for from_ms, to_ms in spans):
                late[request_id] = asked_ms
        return late

    def late_while_a_router_lived(self) -> dict[str, int]:
        """Late base answers that no death of a router explains, with when they were asked."""
        return self.late(self.spans("router", after_ms=TAKEOVER_MS))

    def spans(self, prefix: str, *, after_ms: float) -> list[tuple[float, float]]:
        """When requests were asked that a fault of parts of that name may have made late: from one deadline before it
        to ``after_ms`` after they were ready again."""
        return [
            (happened.began_ms - self.scenario.requests.deadline_ms, (happened.well_ms or happened.ended_ms) + after_ms)
            for happened in self.faults
            if any(name.startswith(prefix) for name in happened.fault.names)
        ]

    def evidence(self) -> str:
        """What was done to this run and when, what came late, and how busy the machine was; ms since the first request.

        The pressure is the kernel's share of time in which somebody who could run waited for a processor: near 100 %
        nobody's times mean anything.
        """
        first_ms = min((seen.append_ms for seen in self.ledger.requests.values()), default=0)
        late = sorted(asked_ms - first_ms for asked_ms in self.late(()).values())
        lines = [
            f"{self.label}: {len(self.ledger.requests)} requests, {len(self.ledger.results)} results",
            *(
                f"{each.began_ms - first_ms:7d} to {each.ended_ms - first_ms:7d} ms, ready again at "
                f"{each.well_ms and each.well_ms - first_ms} ms: {told(each.fault)}"
                for each in self.faults
            ),
            f"{len(late)} late base answers, asked for at {late[:20]} ms{' and later' * (len(late) > 20)}",
            f"longest gap of this test's loop {self.longest_gap_ms} ms; pressure on the processors {self.pressure:.0%}",
            f"restarts {self.restarts}; logs in {self.log_dir}",
        ]
        return "\n".join(lines)

    def resent_bases(self, *, from_ms: int, to_ms: int) -> int:
        """Requests asked within the span whose base work was sent to a second replica."""
        return sum(
            seen.record.num_base_attempts > 1
            for request_id, seen in self.ledger.results.items()
            if from_ms <= self.ledger.requests[request_id].append_ms <= to_ms
        )

    def admitted_ms(self) -> list[int]:
        """When the requests were asked whose results have optional work in them, milliseconds since the epoch."""
        return [
            self.ledger.requests[seen.record.request_id].append_ms
            for seen in self.ledger.results.values()
            if any(item.state == "admitted" for item in seen.record.optional)
        ]

    def windows_sent(self) -> Values:
        """Windows in the log by kind and source partition, cell and index."""
        sent: Values = defaultdict(set)
        for message in read_to_end(self.config, self.namespace.topic(CONTROL_WINDOWS)):
            value = message.value() or b""
            window = decode_as(value, ControlWindow)
            sent[_source_of(window), window.cell, window.window_index].add(value)
        return sent

    def capacity_windows(self) -> list[ControlWindow]:
        """Capacity windows in the log."""
        windows = [
            decode_as(message.value(), ControlWindow)
            for message in read_to_end(self.config, self.namespace.topic(CONTROL_WINDOWS))
        ]
        return [window for window in windows if window.kind == "capacity"]

    def windows_afresh(self) -> Values:
        """What the pure processor makes of the raw topics, read from their beginning."""
        cells = Cells(window_ms=self.scenario.time.window_ms)
        for key, value in latest_by_key(self.config, self.namespace.topic(CONTROL_CELLS)).items():
            cells.read(key, value)
        afresh: Values = defaultdict(set)
        options = IngestOptions(
            namespace=self.namespace,
            time=self.scenario.time,
            worker_id="afresh",
            measurement=self.scenario.measurement,
            keys=UNSIGNED if self.keys_path is None else load_keys(self.keys_path),
        )
        for kind in kinds_of(options):
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
                    afresh[_source_of(window), window.cell, window.window_index].add(encode(window))
        return afresh

    def targets_sent(self) -> Values:
        """Targets in the log by cell and index."""
        sent: Values = defaultdict(set)
        for message in read_to_end(self.config, self.namespace.topic(CONTROL_TARGETS)):
            value = message.value() or b""
            target = decode_as(value, CandidateTarget)
            sent["target", target.cell, target.window_index].add(value)
        return sent

    def targets_behind_newer(self) -> list[tuple[str, int, int]]:
        """Targets in the log behind a newer one of their cell: cell, index, and the newest index before."""
        newest: dict[str, int] = {}
        behind = []
        for message in read_to_end(self.config, self.namespace.topic(CONTROL_TARGETS)):
            target = decode_as(message.value(), CandidateTarget)
            before = newest.get(target.cell, target.window_index)
            if target.window_index < before:
                behind.append((target.cell, target.window_index, before))
            newest[target.cell] = max(before, target.window_index)
        return behind

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


def _source_of(window: ControlWindow) -> str:
    return f"{window.kind} {window.source_partition}"


def up_to_newest(values: Values, sent: Values) -> Values:
    """``values`` up to the newest index that was sent of each kind: the last may have found nobody left to send it."""
    newest = {kind: max(index for of, _, index in sent if of == kind) for kind, _, _ in sent}
    return {key: value for key, value in values.items() if key[2] <= newest.get(key[0], -1)}


class FaultyRun:
    """Drives one pipeline under load through the faults that are planned, one after the other.

    The traffic goes on until ``quiet_s`` after every part that was struck is ready again; the scenario's own duration
    is only the longest that it may take.
    """

    def __init__(
        self, bootstrap: str, scenario: Scenario, layout: Layout, *, namespace: Namespace, label: str = ""
    ) -> None:
        self._config: Config = {"bootstrap.servers": bootstrap, "client.id": "test", "log_level": 2}
        self._scenario = scenario
        self._layout = layout
        self._namespace = namespace
        self._label = label
        self._faults: list[Happened] = []
        self._longest_gap_ms = 0
        self._is_over = False

    def run(
        self,
        planned: Iterable[Planned],
        *,
        quiet_s: float,
        prepare: Callable[[Pipeline], object] = lambda _: None,
    ) -> KillRun:
        """Run to the end; ``prepare`` is called between the start of the parts and the first request.

        Raises AssertionError when a fault cannot be brought about or a part does not recover.
        """
        print(self._label or self._scenario.name)
        with Pipeline(self._scenario, self._config, self._namespace, layout=self._layout) as pipeline:
            pipeline.prepare()
            pipeline.start()
            prepare(pipeline)
            pipeline.wait_until_ready()
            traffic = pipeline.start_traffic()
            began_s, waited_us = time.monotonic(), _waited_for_a_processor_us()
            while now_ms() < traffic.warm_up_end_ms:
                self._turn(pipeline)
            for each in planned:
                self._bring_about(each, pipeline)
            self._until_well(pipeline)
            self._wait(quiet_s, pipeline)
            pressure = (_waited_for_a_processor_us() - waited_us) / 1e6 / (time.monotonic() - began_s)
            self._is_over = True
            assert not pipeline.supervisor.stop(["callers"], timeout_s=60.0), "the callers had to be killed"
            assert pipeline.traffic_over()
            # What is in flight gets through: each request has its result, or is given up by its router.
            self._wait(SETTLE_S, pipeline)
            restarts = dict(pipeline.supervisor.restarts)
            pipeline.stop()
        ledger = Ledger()
        collector = Collector(self._config, self._namespace, ledger)
        collector.drain()
        collector.close()
        return KillRun(
            label=self._label,
            scenario=self._scenario,
            config=self._config,
            namespace=self._namespace,
            ledger=ledger,
            faults=self._faults,
            longest_gap_ms=self._longest_gap_ms,
            pressure=pressure,
            restarts=restarts,
            log_dir=self._layout.run_dir / "logs",
            keys_path=self._layout.keys_path,
        )

    def _bring_about(self, each: Planned, pipeline: Pipeline) -> None:
        self._wait(each.after_s, pipeline)
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        for name in each.needs:
            while why := pipeline.not_ready(name):
                assert time.monotonic() < deadline_s, f"{name} is not ready again: {why}"
                self._turn(pipeline)
        began_ms = now_ms()
        print(f"{began_ms} ms: {told(each.fault)}", flush=True)
        each.fault.begin(pipeline)
        self._wait(each.fault.lasts_s, pipeline)
        each.fault.end(pipeline)
        self._faults.append(Happened(each.fault, began_ms, now_ms(), well_ms=None))

    def _until_well(self, pipeline: Pipeline) -> None:
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while ill := [each for each in self._faults if each.well_ms is None]:
            assert time.monotonic() < deadline_s, f"not ready again after {told(ill[0].fault)}"
            self._turn(pipeline)

    def _wait(self, seconds: float, pipeline: Pipeline) -> None:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self._turn(pipeline)

    def _turn(self, pipeline: Pipeline) -> None:
        began_s = time.monotonic()
        time.sleep(TURN_S)
        self._longest_gap_ms = max(self._longest_gap_ms, round((time.monotonic() - began_s) * 1_000))
        pipeline.supervisor.check()
        self._faults = [
            replace(each, well_ms=now_ms()) if each.well_ms is None and _is_well(each.fault, pipeline) else each
            for each in self._faults
        ]
        assert self._is_over or not pipeline.traffic_over(), "the traffic ended before the last fault"


def layout_of(scenario_file: Path, scenario: Scenario, run_dir: Path) -> Layout:
    """Files of a run of a scenario from a file."""
    return Layout(run_dir=run_dir, scenario=str(scenario_file), duration_s=scenario.duration_s)


def _is_well(fault: Fault, pipeline: Pipeline) -> bool:
    serving = pipeline.serving
    struck = serving if "broker" in fault.names else [name for name in fault.names if name in serving]
    return not any(pipeline.not_ready(name) for name in struck)


def _waited_for_a_processor_us() -> int:
    """Time in which somebody waited for a processor, since the machine started; 0 where the kernel does not tell."""
    try:
        return int(Path("/proc/pressure/cpu").read_text().split("total=")[1].split()[0])
    except (OSError, IndexError, ValueError):
        return 0
