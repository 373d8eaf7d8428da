"""What a status says of a cell."""

import pytest
from msgspec.structs import replace

from ops.status.model import CellStatus
from schemas.records import ControlWindow
from tests.unit.ops.status_makers import (
    END_MS,
    NOW_MS,
    WELL,
    WINDOW_MS,
    capacity_window,
    declaration,
    interval,
    latency_window,
    pool,
    snapshot,
    status_of,
    target,
)


def cell_of(*records: object, now_ms: int = NOW_MS) -> CellStatus:
    (cell,) = status_of(records or WELL, now_ms=now_ms).cells  # type: ignore[arg-type]
    return cell


def test_a_target_says_why_it_moved() -> None:
    seen = cell_of().target
    assert seen is not None
    assert (seen.candidates, seen.previous_candidates) == (112, 100)
    assert (seen.reason, seen.detail) == ("rising", "p99 leaves")


@pytest.mark.parametrize(("after_ms", "is_expired"), [(0, False), (1, True)])
def test_a_target_counts_to_its_last_millisecond(after_ms: int, is_expired: bool) -> None:
    seen = cell_of(now_ms=target().valid_until_ms + after_ms).target
    assert seen is not None
    assert seen.is_expired is is_expired
    assert seen.valid_for_s == pytest.approx(-after_ms / 1_000)


def test_pools_show_usable_and_unusable_units_and_what_stands_beside_them() -> None:
    (seen,) = cell_of().pools
    assert (seen.usable_units, seen.units) == (2.0, 3.0)
    assert seen.unusable_units == {"missing_cpu": 1.0}
    assert seen.idle_causes == {"off_peak": 3.0}
    assert (seen.cpu_cores, seen.memory_bytes, seen.num_hosts) == (8.0, 5 << 30, 2)


def test_reclaims_and_sheds_are_summed_over_the_recent_windows() -> None:
    cell = cell_of()
    assert cell.num_reclaims == 2
    assert cell.pools[0].num_reclaims == 2
    assert cell.recent_s == 2 * WINDOW_MS / 1_000
    (account,) = cell.optional
    assert account.sheds == {"gate_closed": 32, "pressure": 5}
    assert account.offered == account.admitted + sum(account.sheds.values()) + account.late + account.lost


def test_a_snapshot_adds_what_only_control_knows() -> None:
    (seen,) = cell_of(*WELL, snapshot(bottleneck="memory")).pools
    assert (seen.bottleneck, seen.expected_survival_s) == ("memory", 120.0)
    assert seen.num_reclaims == 2


def test_a_pool_that_has_gone_is_not_shown_from_its_last_snapshot() -> None:
    cell = cell_of(*WELL, snapshot(accelerator="h100"))
    assert [seen.accelerator for seen in cell.pools] == ["a100"]


def test_snapshots_stand_in_where_no_window_is_held() -> None:
    cell = cell_of(declaration(), snapshot(), snapshot(90, accelerator="gone"))
    assert [(seen.accelerator, seen.usable_units, seen.num_reclaims) for seen in cell.pools] == [("a100", 2.0, 1)]


def test_latency_is_that_of_the_last_window_against_the_limit_in_force() -> None:
    seen = cell_of().latency
    assert seen is not None
    assert seen.p50_ms == pytest.approx(40.0, rel=0.01)
    assert (seen.num_samples, seen.limit_ms, seen.is_over_limit) == (200, 150.0, False)
    over = cell_of(*WELL, latency_window(100, latency_ms=180.0)).latency
    assert over is not None
    assert over.is_over_limit


def test_an_empty_latency_window_has_no_quantiles() -> None:
    seen = cell_of(declaration(), latency_window(num_requests=0, num_routers=0)).latency
    assert seen is not None
    assert (seen.p50_ms, seen.p99_ms, seen.is_over_limit) == (None, None, False)


def test_a_histogram_that_contradicts_itself_is_passed_over() -> None:
    window: ControlWindow = latency_window()
    assert window.latency is not None
    broken = replace(window, latency=replace(window.latency, latency=replace(window.latency.latency, count=1)))
    seen = cell_of(declaration(), broken).latency
    assert seen is not None
    assert (seen.num_samples, seen.p99_ms) == (0, None)


def test_routes_show_pressure_and_replicas() -> None:
    (route,) = cell_of().routes
    assert (route.route, route.num_replicas, route.num_work) == ("wide", 2, 200)


@pytest.mark.parametrize(("interval_ms", "age_ms", "is_silent"), [(1_000, 5_000, False), (1_000, 5_001, True)])
def test_a_reporter_is_silent_after_five_intervals(interval_ms: int, age_ms: int, is_silent: bool) -> None:
    append_ms = END_MS + 100
    cell = cell_of(declaration(), interval(interval_ms=interval_ms), now_ms=append_ms + age_ms)
    assert [reporter.is_silent for reporter in cell.reporters] == [is_silent]


@pytest.mark.parametrize(
    ("from_window", "until_window", "state"),
    [
        (0, None, "declared"),
        (100, None, "declared"),
        (101, None, "upcoming"),
        (0, 100, "retired"),
        (0, 101, "declared"),
    ],
)
def test_a_cell_is_declared_from_its_first_window_to_its_last(
    from_window: int, until_window: int | None, state: str
) -> None:
    cell = cell_of(declaration(from_window=from_window, until_window=until_window))
    assert cell.state == state
    assert (cell.limits is None) == (state != "declared")


def test_a_cell_that_nobody_declared_is_not_shown() -> None:
    assert status_of([target(), capacity_window(pools=[pool()])]).cells == []
