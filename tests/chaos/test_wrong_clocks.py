"""Hosts, a router, a replica and an ingest worker whose clocks are an hour wrong: nobody else is harmed."""

import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from ops.demo.parts import agents_part
from ops.demo.pipeline import Pipeline, now_ms
from ops.demo.supervisor import PartCommand
from ops.simulator.scenario import load_scenario
from schemas.framing import decode_as
from schemas.kafka.ranges import read_to_end
from schemas.records import CapacityEvent, DeadLetter
from schemas.topics import FLEET_CAPACITY, Namespace
from tests.faults import Deed, Planned
from tests.kill_run import FaultyRun, KillRun, layout_of
from tests.proofs import assert_control_is_what_the_logs_give, assert_nothing_is_lost_or_doubled

SCENARIO = Path(__file__).with_name("clocks.toml")
WRONG_CLOCK = Path(__file__).with_name("wrong_clock")
HOUR_MS = 3_600_000
LONGEST_S = 300.0


@pytest.mark.timeout(400)
def test_a_wrong_clock_harms_nobody_else(kafka: str, tmp_path: Path) -> None:
    scenario = load_scenario(str(SCENARIO)).stretched(LONGEST_S)
    # The agents of the run play the host whose clock is right; the others have a process of their own each.
    layout = layout_of(_scenario_of("right", tmp_path), scenario, tmp_path)

    def prepare(pipeline: Pipeline) -> None:
        for name, offset_ms in (("fast", HOUR_MS), ("slow", -HOUR_MS)):
            own = replace(layout, scenario=str(_scenario_of(name, tmp_path)))
            agents = agents_part(own, pipeline.supervisor.command("ingest-1").environ, start_ms=now_ms())
            pipeline.supervisor.start(_wrong(replace(agents, name=f"agents-{name}"), offset_ms))
        for name, offset_ms in (("router-1", HOUR_MS), ("dedicated-1", -HOUR_MS), ("ingest-1", HOUR_MS)):
            pipeline.supervisor.stop([name])
            pipeline.supervisor.start(_wrong(pipeline.supervisor.command(name), offset_ms))

    driven = FaultyRun(kafka, scenario, layout, namespace=Namespace(f"t-clocks-{os.getpid()}."))
    run = driven.run([Planned(20.0, Deed((), lambda _: None))], quiet_s=0.0, prepare=prepare)

    assert_nothing_is_lost_or_doubled(run)
    assert_control_is_what_the_logs_give(run)
    assert run.late(()) == {}, run.evidence()
    assert run.admitted_ms(), "no optional work: the right host was harmed"
    assert set(_refused(run)) == {("fast", "future_event")}
    # A record from the past counts in the open window, flagged as late; one from the future counts nowhere.
    hosts, num_late = _capacity(run)
    assert hosts == {2}, "the right and the slow host count, the fast one does not"
    assert num_late > 0
    newest = max(index for _, _, index in run.windows_sent())
    assert newest * scenario.time.window_ms < run.ledger.last_time_ms, "a wrong clock moved the watermark"


def _wrong(command: PartCommand, offset_ms: int) -> PartCommand:
    environ = {**command.environ, "PYTHONPATH": str(WRONG_CLOCK), "WRONG_CLOCK_MS": str(offset_ms)}
    return replace(command, environ=environ)


def _scenario_of(host: str, folder: Path) -> Path:
    """The scenario with this host alone."""
    file = folder / f"{host}.toml"
    blocks = re.split(r"(?=^\[)", SCENARIO.read_text(), flags=re.MULTILINE)
    file.write_text("".join(block for block in blocks if "[[hosts]]" not in block or f'name = "{host}"' in block))
    return file


def _refused(run: KillRun) -> Counter[tuple[str, str]]:
    """Dead letters of the capacity events by host and reason."""
    refused: Counter[tuple[str, str]] = Counter()
    for message in read_to_end(run.config, run.namespace.dead_letters(FLEET_CAPACITY)):
        letter = decode_as(message.value(), DeadLetter)
        event = decode_as(letter.value, CapacityEvent)
        refused[event.host, letter.reason] += 1
    return refused


def _capacity(run: KillRun) -> tuple[set[int], int]:
    """How many hosts the capacity windows saw once all had spoken, and how many late events they hold."""
    windows = sorted(
        (window for window in run.capacity_windows() if window.capacity is not None),
        key=lambda window: window.window_index,
    )
    settled = [window.capacity for window in windows[len(windows) // 2 :] if window.capacity is not None]
    return {capacity.num_hosts for capacity in settled}, sum(capacity.num_late for capacity in settled)
