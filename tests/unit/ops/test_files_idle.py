"""What a fleet leaves idle: below its own peak, slot by slot, and as hosts that come and go."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ops.simulator.files.fleet_file import read_fleet
from ops.simulator.files.fleet_hosts import Resource, fleet_hosts
from ops.simulator.files.idle import CapacityStretch, InUse, choose_capacity, in_use
from ops.simulator.files.wanted import WantedCapacity
from ops.simulator.scenario_model import CapacityChange

REAL_TIME = CapacityStretch(from_s=0.0, speed=1.0)


def used(*steps: tuple[float, float]) -> InUse:
    times_s, amounts = zip(*steps, strict=True)
    return InUse(np.array(times_s), np.array(amounts))


def hosts_of(use: InUse, *, num_hosts: int = 1, duration_s: float = 10.0) -> dict[str, list[CapacityChange]]:
    made = fleet_hosts(
        [Resource("gpu", "GPUs", use)], REAL_TIME, duration_s=duration_s, num_hosts=num_hosts, cells=["c"]
    )
    return {host.name: [change for change in made.changes if change.hosts == host.name] for host in made.hosts}


def test_use_adds_up_what_is_there_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "fleet.csv"
    path.write_text("gpu_request,scheduled_time,deletion_time\n4,,10\n2,5,10\n3,10,20\n1,,\n")
    fleet = read_fleet(path)
    use = in_use(fleet, fleet.gpus_I)
    assert use.times_s_E.tolist() == [0.0, 5.0, 10.0, 20.0]
    # What ends at 10 s and what begins there are never there together.
    assert use.amounts_E.tolist() == [5.0, 7.0, 4.0, 1.0]
    assert use.peak == 7.0


def test_idle_is_what_stays_idle_all_through_a_slot() -> None:
    use = used((0.0, 10.0), (2.5, 6.0), (4.5, 8.0), (4.7, 6.0), (7.0, 2.0))
    assert use.idle_in_slots(0.0, 1.0, 10).tolist() == [0.0, 0.0, 0.0, 4.0, 2.0, 4.0, 4.0, 8.0, 8.0, 8.0]
    # After the end of the trace it stays as it was.
    assert use.idle_in_slots(100.0, 1.0, 2).tolist() == [8.0, 8.0]


@pytest.mark.parametrize("seed", range(5))
def test_slots_agree_with_a_walk_through_every_change(seed: int) -> None:
    rng = np.random.default_rng(seed)
    times_s = np.unique(np.concatenate([[0.0], rng.integers(0, 60, 30) / 2.0]))
    amounts = rng.integers(0, 9, len(times_s)).astype(float)
    use = InUse(times_s, amounts)

    def amount_at(at_s: float) -> float:
        return float(amounts[times_s <= at_s][-1])

    for slot, idle in enumerate(use.idle_in_slots(0.0, 1.5, 15)):
        within = [at_s for at_s in times_s if slot * 1.5 <= at_s < (slot + 1) * 1.5]
        assert idle == amounts.max() - max(amount_at(at_s) for at_s in [slot * 1.5, *within])


def test_a_host_is_taken_back_when_the_fleet_needs_it_and_returns() -> None:
    changes = hosts_of(used((0.0, 2.0), (3.0, 10.0), (5.0, 2.0)))["fleet-gpu-1"]
    assert [(change.at_s, change.action, change.duration_s) for change in changes] == [(3.0, "reclaim", 2.0)]


def test_a_host_that_is_busy_at_the_start_comes_later_and_may_stay_away_at_the_end() -> None:
    made = fleet_hosts(
        [Resource("gpu", "GPUs", used((0.0, 10.0), (3.0, 2.0), (6.0, 6.0), (8.0, 10.0)))],
        REAL_TIME,
        duration_s=10.0,
        num_hosts=1,
        cells=["c"],
    )
    assert not made.hosts[0].offered_at_start
    assert [(change.at_s, change.action, change.units, change.duration_s) for change in made.changes] == [
        (3.0, "update", 1.0, None),
        (3.0, "offer", None, None),
        (6.0, "update", 0.5, None),
        (8.0, "reclaim", None, None),
    ]


def test_as_idle_falls_the_last_host_goes_first() -> None:
    changes = hosts_of(used((0.0, 0.0), (2.0, 4.0), (4.0, 6.0), (6.0, 8.0)), num_hosts=2)
    assert [(change.at_s, change.action, change.units) for change in changes["fleet-gpu-1"]] == [
        (4.0, "update", 0.5),
        (6.0, "reclaim", None),
    ]
    assert [(change.at_s, change.action) for change in changes["fleet-gpu-2"]] == [(2.0, "reclaim")]


def test_resources_take_turns_and_one_that_is_never_idle_has_no_host() -> None:
    gpus, cores = used((0.0, 1.0), (5.0, 2.0)), used((0.0, 50.0), (5.0, 64.0))
    resources = [Resource("gpu", "GPUs", gpus), Resource("cpu", "CPU cores", cores)]
    made = fleet_hosts(resources, REAL_TIME, duration_s=10.0, num_hosts=3, cells=["a", "b"])
    assert [(host.name, host.cell) for host in made.hosts] == [
        ("fleet-gpu-1", "a"),
        ("fleet-cpu-1", "b"),
        ("fleet-gpu-2", "a"),
    ]
    always = [resources[0], Resource("cpu", "CPU cores", used((0.0, 64.0)))]
    made = fleet_hosts(always, REAL_TIME, duration_s=10.0, num_hosts=2, cells=["a"])
    assert [host.accelerator for host in made.hosts] == ["gpu", "gpu"]


def test_a_fleet_at_its_peak_offers_nothing() -> None:
    made = fleet_hosts(
        [Resource("gpu", "GPUs", used((0.0, 5.0)))], REAL_TIME, duration_s=10.0, num_hosts=1, cells=["c"]
    )
    assert not made.hosts[0].offered_at_start
    assert made.changes == ()


def chosen(uses: list[InUse], *, length_s: float = 1_000.0, **given: float) -> CapacityStretch:
    wanted = WantedCapacity(path="f", **given)  # type: ignore[arg-type]
    return choose_capacity(uses, wanted, length_s=length_s, duration_s=10.0, slot_s=1.0)


def test_unless_told_otherwise_the_whole_trace_is_played() -> None:
    assert chosen([used((0.0, 1.0))]) == CapacityStretch(from_s=0.0, speed=100.0)
    assert chosen([used((0.0, 1.0))], from_s=500.0) == CapacityStretch(from_s=500.0, speed=50.0)


def test_at_a_given_speed_the_liveliest_stretch_is_played() -> None:
    ticking: NDArray[np.float64] = np.arange(600.0, 610.0)
    use = InUse(np.concatenate([[0.0, 100.0], ticking]), np.concatenate([[9.0, 5.0], 5.0 + ticking % 2]))
    assert 592.0 <= chosen([use], speed=1.0).from_s <= 602.0


def test_a_start_after_the_end_is_refused() -> None:
    with pytest.raises(ValueError, match=r"starts at 1000 s, the trace ends at 1000 s"):
        chosen([used((0.0, 1.0))], from_s=1_000.0)
