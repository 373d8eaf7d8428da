"""The controller of production on the built-in scenarios of the twin: what each of them is there to show."""

from collections.abc import Sequence

import pytest

from ops.simulator.scenario import load_scenario
from ops.twin.metrics import Run, Tick, encode_run
from ops.twin.run import simulate
from schemas.records import Account
from schemas.records.fields import Lever

BASE = 64


@pytest.fixture(scope="module")
def runs():
    """Each scenario is played once."""
    known: dict[str, Run] = {}

    def run(name: str) -> Run:
        if name not in known:
            known[name] = simulate(load_scenario(name))
        return known[name]

    return run


def ticks_of(run: Run, *, from_s: float = 0.0, until_s: float = 1e9) -> list[Tick]:
    (cell,) = run.cells
    return [tick for tick in cell.ticks if from_s < tick.at_s <= until_s]


def units(tick: Tick, lever: Lever) -> float:
    return sum(grant.units for pool in tick.pools for grant in pool.levers if grant.lever == lever)


def account(tick: Tick, lever: Lever) -> Account | None:
    return next((each for each in tick.accounts if each.lever == lever), None)


def settled(ticks: Sequence[Tick]) -> list[Tick]:
    return list(ticks[len(ticks) // 3 :])


def test_without_cores_extras_get_nothing_and_the_stronger_model_the_accelerators(runs):
    ticks = ticks_of(runs("cpu-starved"))
    assert all(units(tick, "rma") == 0.0 and tick.candidate_target == BASE for tick in ticks)
    assert all(units(tick, "sbm") >= 4.0 and tick.coverage >= 0.9 for tick in settled(ticks))


def test_without_accelerators_extras_get_the_cores_and_the_stronger_model_nothing(runs):
    ticks = ticks_of(runs("accelerator-starved"))
    assert all(units(tick, "sbm") == 0.0 and tick.coverage == 0.0 for tick in ticks)
    assert all(units(tick, "rma") > 0.0 and tick.candidate_target > 2 * BASE for tick in settled(ticks))


def test_on_bursts_too_short_for_it_no_large_model_is_started(runs):
    ticks = settled(ticks_of(runs("short-lived")))
    assert sum(units(tick, "sbm") for tick in ticks) <= 0.01 * sum(units(tick, "rma") for tick in ticks)
    assert sum(account.admitted for tick in ticks for account in tick.accounts if account.lever == "rma") > 0
    assert all(tick.num_upgraded == 0 for tick in ticks)


def test_slow_retrieval_narrows_the_search_and_leaves_the_coverage(runs):
    run = runs("upstream")
    before = ticks_of(run, from_s=600.0, until_s=900.0)
    during = ticks_of(run, from_s=1_200.0, until_s=1_500.0)
    after = ticks_of(run, from_s=2_200.0)
    assert min(tick.candidate_target for tick in before) > 400
    assert max(tick.candidate_target for tick in during) < 150
    assert min(tick.candidate_target for tick in after) > 400
    assert {tick.reason for tick in during} == {"upstream"}
    mean = [sum(tick.coverage for tick in phase) / len(phase) for phase in (before, during)]
    assert mean[1] >= mean[0] - 0.02


def test_when_all_is_taken_optional_work_is_gone_before_the_next_tick_and_base_is_never_late(runs):
    run = runs("reclaim-storm")
    assert run.totals.num_base_late == 0
    ticks = ticks_of(run)
    for at_s in (1_205.0, 2_403.0):
        first = next(index for index, tick in enumerate(ticks) if tick.at_s >= at_s)
        # In the window of the reclaim and the next one nothing could have been told yet: replicas and routers shed.
        hit, blind, told = ticks[first : first + 3]
        share = (at_s - (hit.at_s - 10.0)) / 10.0
        for lever in ("rma", "sbm"):
            seen = account(hit, lever)
            assert seen is not None
            assert seen.admitted <= (share + 0.05) * seen.offered
            late = account(blind, lever)
            assert late is None or late.admitted == 0
        # The target that was made of the reclaim's own window acts within the window after it.
        assert (told.candidate_target, told.coverage_target) == (BASE, 0.0)
        assert not told.accounts


def test_what_comes_and_goes_all_the_time_is_used(runs):
    run = runs("reclaim-storm")
    assert run.totals.num_reclaims > 100
    quiet = ticks_of(run, from_s=600.0, until_s=1_200.0)
    assert min(tick.candidate_target for tick in quiet) > 150
    shed = sum(shed.units for tick in quiet for account in tick.accounts for shed in account.sheds)
    assert shed <= 0.02 * sum(account.offered for tick in quiet for account in tick.accounts)


def test_coverage_follows_its_target_through_a_shift_of_the_mix(runs):
    ticks = ticks_of(runs("two-levers"), from_s=300.0)
    for tick in ticks:
        deviation = (tick.coverage_target * (1.0 - tick.coverage_target) / tick.num_requests) ** 0.5
        told = [each for each in ticks if 0.0 <= tick.at_s - each.at_s < 20.0]
        # A target acts from some seconds into the window on: what was routed lies between it and the one before.
        low, high = min(each.coverage_target for each in told), max(each.coverage_target for each in told)
        assert low - 0.02 - 4.0 * deviation <= tick.coverage <= high + 0.02 + 4.0 * deviation


def test_both_levers_work_together_and_shrink_with_their_pool(runs):
    run = runs("two-levers")
    full = ticks_of(run, from_s=1_000.0, until_s=2_400.0)
    halved = ticks_of(run, from_s=5_000.0, until_s=6_000.0)
    assert all(units(tick, "rma") > 0.0 and units(tick, "sbm") > 0.0 for tick in full)
    assert min(tick.candidate_target for tick in full) > 300
    mean = [sum(tick.coverage for tick in phase) / len(phase) for phase in (full, halved)]
    assert mean[1] < mean[0] - 0.1


@pytest.mark.parametrize(
    "name", ["cpu-starved", "accelerator-starved", "short-lived", "upstream", "reclaim-storm", "two-levers"]
)
def test_accounts_add_up_and_nothing_is_beyond_its_bounds(runs, name):
    run = runs(name)
    assert run.totals.num_base_late == 0
    for tick in ticks_of(run, from_s=-1e9):
        assert BASE <= tick.candidate_target <= 512
        assert 0.0 <= tick.coverage_target <= 1.0
        for each in tick.accounts:
            assert each.offered == each.admitted + each.late + each.lost + sum(shed.units for shed in each.sheds)
        for pool in tick.pools:
            assert sum(grant.units for grant in pool.levers) <= pool.usable_units + 1e-6


def test_the_same_seed_gives_the_same_bytes():
    made = load_scenario("reclaim-storm").stretched(600.0)
    assert encode_run(simulate(made)) == encode_run(simulate(made))
