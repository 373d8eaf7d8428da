"""Parts of the whole pipeline killed with SIGKILL at random moments, a different run for each seed.

The seed is in the name of each case: CHAOS_SEED repeats one, else it is drawn anew.
"""

import os
import random
import secrets
from collections import Counter
from pathlib import Path

import pytest

from ops.demo.report import LEVERS, account
from ops.simulator.scenario import load_scenario
from schemas.topics import Namespace
from tests.kill_run import PlannedKill, layout_of, run_and_kill, up_to_newest

SCENARIO = Path(__file__).parents[1] / "broker" / "kills.toml"
NUM_RUNS = 3
DURATION_S = 90.0
# A part has to be up again before it can be killed again.
SHORTEST_GAP_S, LONGEST_GAP_S = 3.0, 8.0
QUIET_AT_THE_END_S = 10.0
VICTIMS = (
    ("ingest-1",),
    ("control-1",),
    ("dedicated-1",),
    ("dedicated-2",),
    ("wide-1",),
    ("wide-1", "wide-2"),
    ("router-1",),
)

first_seed = int(os.environ.get("CHAOS_SEED", secrets.randbelow(1_000_000)))


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", range(first_seed, first_seed + NUM_RUNS))
def test_whoever_dies_no_request_is_lost_and_no_base_answer_late(kafka: str, tmp_path: Path, seed: int) -> None:
    print(f"CHAOS_SEED={seed}")
    rng = random.Random(seed)
    scenario = load_scenario(str(SCENARIO)).stretched(DURATION_S)
    run = run_and_kill(
        kafka,
        scenario,
        layout_of(SCENARIO, scenario, tmp_path),
        namespace=Namespace(f"t-chaos-{os.getpid()}-{seed}."),
        planned=_plan(rng),
    )
    assert run.restarts == Counter(name for kill in run.kills for name in kill.names)
    assert set(run.ledger.requests) == set(run.ledger.results)
    assert run.ledger.num_results == len(run.ledger.results)
    assert not [seen.record for seen in run.ledger.results.values() if seen.record.degraded]
    assert run.late_while_a_router_lived() == {}
    for lever in LEVERS:
        assert account(run.ledger, lever, run.ledger.results.values()).exact
    windows, targets = run.windows_sent(), run.targets_sent()
    assert windows == up_to_newest(run.windows_afresh(), windows)
    assert targets == up_to_newest(run.targets_afresh(), targets)


def _plan(rng: random.Random) -> list[PlannedKill]:
    at_s = rng.uniform(0.0, LONGEST_GAP_S)
    planned = []
    while at_s < DURATION_S - QUIET_AT_THE_END_S:
        planned.append(PlannedKill(at_s, rng.choice(VICTIMS)))
        at_s += rng.uniform(SHORTEST_GAP_S, LONGEST_GAP_S)
    return planned
