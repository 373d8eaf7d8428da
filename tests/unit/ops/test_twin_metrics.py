"""Records of windows: what merging, thinning and totals keep."""

import msgspec
import pytest

from ops.twin.metrics import CellRun, Tick, merged, summed, thinned, totals_of
from ops.twin.run import simulate
from ops.twin.table import comparison, markdown, plain
from tests.unit.ops.twin_makers import scenario


@pytest.fixture(scope="module")
def ticks() -> list[Tick]:
    made = scenario("reclaim-storm", duration_s=600.0)
    return simulate(made).cells[0].ticks


def test_merged_windows_keep_every_sum_and_the_worst(ticks):
    whole = merged(ticks)
    assert whole.num_windows == len(ticks)
    assert whole.num_requests == sum(tick.num_requests for tick in ticks)
    assert whole.latency_p99_ms == max(tick.latency_p99_ms for tick in ticks if tick.latency_p99_ms is not None)
    assert whole.at_s == ticks[-1].at_s
    assert whole.candidate_target == ticks[-1].candidate_target
    assert whole.base_value_micro == sum(tick.base_value_micro for tick in ticks)
    for account in whole.accounts:
        parts = [each for tick in ticks for each in tick.accounts if each.lever == account.lever]
        assert account.offered == sum(part.offered for part in parts)
        assert account.admitted + sum(shed.units for shed in account.sheds) == account.offered
        shed_value = sum(shed.value_micro for shed in account.sheds)
        assert account.admitted_value_micro + shed_value == account.offered_value_micro
        earned = {each.lever: each.value_micro for each in whole.earned}
        assert earned[account.lever] == account.admitted_value_micro


@pytest.mark.parametrize("most", [1, 7, 10, 1_000])
def test_thinning_loses_no_window_and_no_request(ticks, most):
    thin = thinned(ticks, most=most)
    assert len(thin) <= most
    assert sum(tick.num_windows for tick in thin) == len(ticks)
    assert sum(tick.num_requests for tick in thin) == sum(tick.num_requests for tick in ticks)


def test_totals_count_what_comes_after_the_warm_up(ticks):
    totals = totals_of([CellRun(cell="us-east", ticks=ticks)])
    measured = [tick for tick in ticks if tick.at_s > 0.0]
    assert len(measured) < len(ticks)
    assert totals.num_requests == sum(tick.num_requests for tick in measured)
    assert totals.num_reclaims == sum(tick.num_reclaims for tick in measured)
    assert totals.value == pytest.approx(totals.base_value + sum(totals.earned.values()))
    both = summed([totals, totals])
    assert both.num_cells == 2
    assert both.num_requests == 2 * totals.num_requests
    assert both.used_share == pytest.approx(totals.used_share)
    assert both.shed == {
        lever: {reason: 2 * units for reason, units in reasons.items()} for lever, reasons in totals.shed.items()
    }


def test_the_table_shows_each_controller_beside_the_oracle():
    made = scenario("cpu-starved", duration_s=300.0)
    totals = {name: simulate(made, name).totals for name in ("intertidal", "oracle")}
    rows = comparison(totals, oracle="oracle")
    assert [row[0] for row in rows] == ["", "intertidal", "oracle"]
    assert rows[2][-1] == "100.0%"
    assert len({len(line) for line in plain(rows).splitlines()}) == 1
    assert markdown(rows).splitlines()[1].count("|") == len(rows[0]) + 1


def test_ticks_survive_their_json(ticks):
    assert msgspec.json.decode(msgspec.json.encode(ticks), type=list[Tick]) == ticks
