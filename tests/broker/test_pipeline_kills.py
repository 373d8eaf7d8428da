"""The whole pipeline under load, each of its parts killed with SIGKILL in turn.

Base answers are in time wherever a router lives, those caught in the router's takeover come after it, there is one
result per request, and what the windows and targets are does not depend on who died. The deadline leaves room for a
busy machine; that a dead replica's base work is not left waiting for it is told by the second attempts.
"""

import os
import random
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

from ops.demo.report import LEVERS, account
from ops.simulator.scenario import load_scenario
from schemas.topics import Namespace
from tests.faults import Kill, Planned
from tests.kill_run import FaultyRun, KillRun, layout_of, up_to_newest

# The first to run waits for the whole pipeline's run.
pytestmark = pytest.mark.timeout(400)
SCENARIO = Path(__file__).with_name("kills.toml")
SEED = 20_261
# Every kill has this long before the next; a takeover by a static member that restarts at once takes less than one.
KILL_EVERY_S = 4.5
QUIET_AT_THE_END_S = 8.0
# Ingest and control come last: without targets there are no extras for the wide replicas to die with.
VICTIMS = (
    ("dedicated-1",),
    ("wide-1",),
    ("wide-1", "wide-2"),
    ("router-1",),
    ("ingest-1",),
    ("control-1",),
)


@pytest.fixture(scope="module")
def run(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> KillRun:
    rng = random.Random(SEED)
    scenario = load_scenario(str(SCENARIO))
    layout = layout_of(SCENARIO, scenario, tmp_path_factory.mktemp("kills"))
    planned = [Planned(KILL_EVERY_S + rng.random() * 0.5, Kill(names)) for names in VICTIMS]
    run = FaultyRun(kafka, scenario, layout, namespace=Namespace(f"t-kills-{os.getpid()}."))
    return run.run(planned, quiet_s=QUIET_AT_THE_END_S)


def test_each_part_was_killed_and_came_back(run: KillRun) -> None:
    assert run.restarts == Counter(chain.from_iterable(each.fault.names for each in run.faults)), run.evidence()


def test_every_request_has_one_result(run: KillRun) -> None:
    assert len(run.ledger.requests) > 1_000
    assert set(run.ledger.requests) == set(run.ledger.results)
    assert run.ledger.num_results == len(run.ledger.results)


def test_no_result_is_without_its_base_ranking(run: KillRun) -> None:
    broken = [seen.record for seen in run.ledger.results.values() if seen.record.degraded or seen.record.status != "ok"]
    assert broken == []


def test_only_the_routers_death_makes_base_answers_late(run: KillRun) -> None:
    assert run.late_while_a_router_lived() == {}, run.evidence()


def test_base_work_of_a_dead_replica_is_sent_to_another(run: KillRun) -> None:
    died_ms = next(each.began_ms for each in run.faults if "dedicated-1" in each.fault.names)
    assert run.resent_bases(from_ms=died_ms - run.scenario.requests.deadline_ms, to_ms=died_ms + 1_000) > 0


def test_every_optional_item_is_accounted_for(run: KillRun) -> None:
    for lever in LEVERS:
        assert account(run.ledger, lever, run.ledger.results.values()).exact


def test_extras_come_back_after_all_wide_replicas_died(run: KillRun) -> None:
    died_ms = next(each.began_ms for each in run.faults if len(each.fault.names) == 2)
    after_ms = [at_ms - died_ms for at_ms in run.admitted_ms()]
    assert any(-KILL_EVERY_S * 1_000 < at_ms < 0 for at_ms in after_ms), "they died without optional work"
    assert any(at_ms > KILL_EVERY_S * 1_000 for at_ms in after_ms)


def test_windows_are_what_the_raw_topics_give_read_afresh(run: KillRun) -> None:
    sent = run.windows_sent()
    assert len(sent) > 30
    assert {key for key, values in sent.items() if len(values) > 1} == set()
    assert sent == up_to_newest(run.windows_afresh(), sent)


def test_targets_are_what_the_windows_give_read_afresh(run: KillRun) -> None:
    sent = run.targets_sent()
    assert len(sent) > 15
    assert sent == up_to_newest(run.targets_afresh(), sent)
