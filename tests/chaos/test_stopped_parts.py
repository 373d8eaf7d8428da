"""Parts stopped with SIGSTOP until their groups have given them up, then woken: zombies with the last word in hand.

Each part has a twin that takes its work over: what a zombie says then comes after what its successor said.
"""

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from ops.broker.jvm import free_port
from ops.demo.pipeline import Pipeline
from ops.simulator.scenario import load_scenario
from schemas.topics import Namespace
from tests.chaos.seeds import FIRST_SEED
from tests.faults import Deed, Fault, Freeze, Kill, Planned
from tests.kill_run import FaultyRun, KillRun, layout_of
from tests.proofs import assert_control_is_what_the_logs_give, assert_nothing_is_lost_or_doubled

SCENARIO = Path(__file__).parents[1] / "broker" / "kills.toml"
LONGEST_S = 600.0
QUIET_S = 12.0
# Each longer than the session, or the lease, by which others judge whether the part lives.
STOPPED_S = {"ingest": 8.0, "control": 13.0, "router": 4.0, "dedicated": 4.0, "wide": 4.0, "agents": 5.0}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [FIRST_SEED])
def test_who_rises_from_the_dead_says_nothing_twice(kafka: str, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    names = [
        "ingest-1",
        "ingest-2",
        "control-1",
        "control-2",
        "router-1",
        "router-2",
        "dedicated-1",
        "wide-1",
        "agents",
    ]
    rng.shuffle(names)
    planned = [
        Planned(rng.uniform(1.0, 3.0), Freeze((name,), STOPPED_S[name.partition("-")[0]]), needs=_others(name))
        for name in names
    ]
    run = _run(kafka, tmp_path, planned, seed=seed, num_routers=2)
    assert_nothing_is_lost_or_doubled(run)
    assert_control_is_what_the_logs_give(run)
    assert run.late_while_a_router_lived() == {}, run.evidence()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [FIRST_SEED])
def test_windows_do_not_depend_on_who_closes_them(kafka: str, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)

    def leave(pipeline: Pipeline) -> None:
        assert pipeline.supervisor.stop(["ingest-2"]) == [], "an ingest worker did not stop on SIGTERM"

    def join(pipeline: Pipeline) -> None:
        pipeline.supervisor.start(pipeline.supervisor.command("ingest-2"))

    # Gone for longer than its session: a static member keeps its partitions until then.
    leaves = Deed(("ingest-2",), leave, lasts_s=STOPPED_S["ingest"])
    joins = Deed(("ingest-2",), join)
    one, both = ("ingest-1",), ("ingest-1", "ingest-2")
    faults: list[tuple[Fault, tuple[str, ...]]] = [
        *((leaves, both), (joins, one), (Kill(("ingest-1",)), both)),
        *((leaves, both), (joins, one), (Kill(("ingest-2",)), both)),
    ]
    planned = [Planned(rng.uniform(1.0, 3.0), fault, needs=needs) for fault, needs in faults]
    run = _run(kafka, tmp_path, planned, seed=seed, num_routers=1)
    assert_control_is_what_the_logs_give(run)
    assert_nothing_is_lost_or_doubled(run)


def _run(kafka: str, tmp_path: Path, planned: list[Planned], *, seed: int, num_routers: int) -> KillRun:
    scenario = load_scenario(str(SCENARIO)).stretched(LONGEST_S)
    scenario = replace(scenario, processes=replace(scenario.processes, routers=num_routers))
    driven = FaultyRun(
        kafka,
        scenario,
        layout_of(SCENARIO, scenario, tmp_path),
        namespace=Namespace(f"t-stopped-{os.getpid()}-{tmp_path.name}."),
        label=f"CHAOS_SEED={seed}",
    )
    return driven.run(planned, quiet_s=QUIET_S, prepare=_add_twins)


def _add_twins(pipeline: Pipeline) -> None:
    """Start a second ingest worker and a second control agent, each with an id, a port and a folder of its own."""
    for first, second in (("ingest-1", "ingest-2"), ("control-1", "control-2")):
        command = pipeline.supervisor.command(first)
        port = free_port()
        at = command.argv.index("--health-port") + 1
        argv = (*command.argv[:at], str(port), *(text.replace(first, second) for text in command.argv[at + 1 :]))
        pipeline.start_part(replace(command, name=second, argv=argv), port=port)


def _others(name: str) -> tuple[str, ...]:
    """Who has to be there while a part is stopped: its twin, and the part itself."""
    twins = {"ingest", "control", "router", "dedicated"}
    kind = name.partition("-")[0]
    return (f"{kind}-1", f"{kind}-2") if kind in twins else () if kind == "agents" else (name,)
