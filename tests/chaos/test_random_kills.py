"""Each part of the whole pipeline killed with SIGKILL ten times, in random order and at random moments, under load."""

import os
import random
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

from ops.simulator.scenario import load_scenario
from schemas.topics import Namespace
from tests.chaos.seeds import FIRST_SEED
from tests.faults import Kill, Planned
from tests.kill_run import FaultyRun, layout_of
from tests.proofs import assert_control_is_what_the_logs_give, assert_nothing_is_lost_or_doubled

SCENARIO = Path(__file__).parents[1] / "broker" / "kills.toml"
NUM_RUNS = 2
KILLS_OF_EACH_PER_RUN = 5
LONGEST_S = 900.0
# A part has to be up again before it can be killed again, which the run waits for beside this.
SHORTEST_GAP_S, LONGEST_GAP_S = 0.5, 3.0
QUIET_AT_THE_END_S = 8.0
DEDICATED = ("dedicated-1", "dedicated-2")
WIDE = ("wide-1", "wide-2")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + NUM_RUNS))
def test_whoever_dies_no_request_is_lost_and_no_base_answer_late(kafka: str, tmp_path: Path, seed: int) -> None:
    scenario = load_scenario(str(SCENARIO)).stretched(LONGEST_S)
    driven = FaultyRun(
        kafka,
        scenario,
        layout_of(SCENARIO, scenario, tmp_path),
        namespace=Namespace(f"t-chaos-{os.getpid()}-{seed}."),
        label=f"CHAOS_SEED={seed}",
    )
    run = driven.run(_plan(random.Random(seed)), quiet_s=QUIET_AT_THE_END_S)
    assert Counter(chain.from_iterable(each.fault.names for each in run.faults)) <= Counter(run.restarts), (
        run.evidence()
    )
    assert_nothing_is_lost_or_doubled(run)
    assert_control_is_what_the_logs_give(run)
    assert run.late_while_a_router_lived() == {}, run.evidence()


def _plan(rng: random.Random) -> list[Planned]:
    """A replica of each pair lives while the other one is killed: without any, nobody could be in time."""
    victims = [("ingest-1",), ("control-1",), ("router-1",), DEDICATED, ("wide-1",), WIDE] * KILLS_OF_EACH_PER_RUN
    rng.shuffle(victims)
    return [
        Planned(
            rng.uniform(SHORTEST_GAP_S, LONGEST_GAP_S),
            Kill((rng.choice(DEDICATED),) if names == DEDICATED else names),
            needs=names,
        )
        for names in victims
    ]
