"""The broker stopped, killed, and away for longer than any part may wait for it, under load; then back as it was.

What may differ from a quiet run, and only for requests asked while it was away or about to go: base answers are late,
and a router gives a request up, with a result that says so, when its base answer does not come within five seconds of
its deadline. Requests that the broker did not take are in no account but the callers' own.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.broker.local import LocalBroker
from ops.simulator.scenario import load_scenario
from schemas.topics import Namespace
from tests.chaos.seeds import FIRST_SEED
from tests.faults import Away, Planned
from tests.kill_run import FaultyRun, layout_of
from tests.proofs import assert_control_is_what_the_logs_give, assert_nothing_is_lost_or_doubled

SCENARIO = Path(__file__).parents[1] / "broker" / "kills.toml"
LONGEST_S = 600.0
# Ingest and control wait 30 s for an acknowledgement: then they end, and are started until the broker is there.
LONGER_THAN_A_DELIVERY_S = 34.0
PARTS = ("ingest-1", "control-1", "router-1", "dedicated-1", "dedicated-2")
# Clients look for the broker once a second, and groups of 2 s to 10 s form anew.
BACK_MS = 12_000


@pytest.fixture
def broker(java_and_jars: None, tmp_path: Path) -> Iterator[LocalBroker]:
    """A broker of this test's own, which can go away without a loss to others."""
    with LocalBroker(tmp_path / "broker") as started:
        yield started


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [FIRST_SEED])
def test_a_broker_that_goes_and_comes_back_costs_time_alone(broker: LocalBroker, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    scenario = load_scenario(str(SCENARIO)).stretched(LONGEST_S)
    driven = FaultyRun(
        broker.bootstrap,
        scenario,
        layout_of(SCENARIO, scenario, tmp_path / "run"),
        namespace=Namespace(f"t-away-{os.getpid()}."),
        label=f"CHAOS_SEED={seed}",
    )
    outages = [
        Away(broker, rng.uniform(5.0, 15.0), is_killed=False),
        Away(broker, rng.uniform(5.0, 15.0), is_killed=True),
        Away(broker, LONGER_THAN_A_DELIVERY_S, is_killed=True),
    ]
    run = driven.run([Planned(rng.uniform(3.0, 6.0), outage, needs=PARTS) for outage in outages], quiet_s=15.0)
    assert_nothing_is_lost_or_doubled(run, without_base=run.spans("broker", after_ms=0.0))
    assert_control_is_what_the_logs_give(run)
    assert run.late(run.spans("broker", after_ms=BACK_MS)) == {}, run.evidence()
