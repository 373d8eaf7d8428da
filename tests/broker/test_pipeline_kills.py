"""The whole pipeline under load, each of its parts killed with SIGKILL in turn.

Base answers are in time wherever a router lives, those caught in the router's takeover come after it, there is one
result per request, and what the windows and targets are does not depend on who died.
"""

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from ops.demo.report import LEVERS, account
from ops.simulator.scenario import load_scenario
from schemas.topics import Namespace
from tests.kill_run import KillRun, PlannedKill, layout_of, run_and_kill, up_to_newest

SCENARIO = Path(__file__).with_name("kills.toml")
SEED = 20_261
# Every kill has this long before the next; a takeover by a static member that restarts at once takes less than one.
KILL_EVERY_S = 6.0
VICTIMS = (
    ("ingest-1",),
    ("control-1",),
    ("dedicated-1",),
    ("wide-1",),
    ("wide-1", "wide-2"),
    ("router-1",),
)


@pytest.fixture(scope="module")
def run(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> KillRun:
    rng = random.Random(SEED)
    scenario = load_scenario(str(SCENARIO))
    planned = [PlannedKill(index * KILL_EVERY_S + rng.random() * 0.5, names) for index, names in enumerate(VICTIMS)]
    return run_and_kill(
        kafka,
        scenario,
        layout_of(SCENARIO, scenario, tmp_path_factory.mktemp("kills")),
        namespace=Namespace(f"t-kills-{os.getpid()}."),
        planned=planned,
    )


@pytest.mark.timeout(300)
def test_each_part_was_killed_and_came_back(run: KillRun) -> None:
    assert run.restarts == Counter(name for kill in run.kills for name in kill.names)


def test_every_request_has_one_result(run: KillRun) -> None:
    assert len(run.ledger.requests) > 1_000
    assert set(run.ledger.requests) == set(run.ledger.results)
    assert run.ledger.num_results == len(run.ledger.results)


def test_no_result_is_without_its_base_ranking(run: KillRun) -> None:
    broken = [seen.record for seen in run.ledger.results.values() if seen.record.degraded or seen.record.status != "ok"]
    assert broken == []


def test_only_the_routers_death_makes_base_answers_late(run: KillRun) -> None:
    assert run.late_while_a_router_lived() == {}


def test_every_optional_item_is_accounted_for(run: KillRun) -> None:
    for lever in LEVERS:
        assert account(run.ledger, lever, run.ledger.results.values()).exact


def test_extras_come_back_after_all_wide_replicas_died(run: KillRun) -> None:
    died_ms = next(kill.at_ms for kill in run.kills if len(kill.names) == 2)
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
