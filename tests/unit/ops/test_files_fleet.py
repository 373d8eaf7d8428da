"""Files of a fleet: each kind of odd row is counted with its line, and lives are what the format says."""

from pathlib import Path

import numpy as np
import pytest

from ops.simulator.files.errors import TrafficFileError
from ops.simulator.files.fleet_file import FleetTrace, read_fleet

HEADER = "instance_sn,role,cpu_request,gpu_request,creation_time,scheduled_time,deletion_time\n"
GOOD = "i0,HN,8,1,5,10,110\n"


def read(folder: Path, *rows: str, header: str = HEADER) -> FleetTrace:
    path = folder / "fleet.csv"
    path.write_text(header + "".join(rows))
    return read_fleet(path)


def seen(fleet: FleetTrace) -> dict[str, list[int]]:
    return {kind: count.first_lines for kind, count in fleet.dirt.kinds.items()}


def lives(fleet: FleetTrace) -> list[tuple[float, float]]:
    return list(zip(fleet.starts_s_I.tolist(), fleet.ends_s_I.tolist(), strict=True))


def test_an_instance_holds_what_it_asked_for_from_scheduling_to_deletion(tmp_path: Path) -> None:
    fleet = read(tmp_path, GOOD, "i1,CN,64,0,20,30,40\n", "i2,CN,32,0,20,30,40\n")
    assert lives(fleet) == [(10.0, 110.0), (30.0, 40.0), (30.0, 40.0)]
    assert fleet.gpus_I.tolist() == [1.0, 0.0, 0.0]
    assert fleet.cores_I.tolist() == [8.0, 64.0, 32.0]
    assert fleet.length_s == 110.0
    assert fleet.num_by_role == {"HN": 1, "CN": 2}
    assert (fleet.num_rows, fleet.num_used, seen(fleet)) == (3, 3, {})


@pytest.mark.parametrize(
    ("row", "kinds", "life"),
    [
        ("i1,HN,8,1,,,120\n", {"missing_start"}, (-np.inf, 120.0)),
        ("i1,HN,8,1,NaN,nan,\n", {"missing_start", "missing_end"}, (-np.inf, np.inf)),
        ("i1,HN,8,1,,20,120\n", set(), (20.0, 120.0)),
        ("i1,HN,8,1,15,20,\n", {"missing_end"}, (20.0, np.inf)),
        ("i1,HN,8,1,25,20,120\n", {"scheduled_before_created"}, (20.0, 120.0)),
        ("i1,HN,8,1,1,2,120\n", {"unordered"}, (2.0, 120.0)),
        ("i1,HN,,1,15,20,120\n", {"missing_request"}, (20.0, 120.0)),
    ],
)
def test_an_odd_row_is_used_and_named(tmp_path: Path, row: str, kinds: set[str], life: tuple[float, float]) -> None:
    fleet = read(tmp_path, GOOD, row)
    assert seen(fleet) == {kind: [3] for kind in kinds}
    assert lives(fleet)[1] == life


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ("i1,HN,8,1,15,20,20\n", "zero_length"),
        ("i1,HN,8,1,15,20,19\n", "ends_before_start"),
        ("i1,HN,8,1,15,10,12\n", "ends_before_start"),
        ("i1,HN,8,1,15,,120\n", "never_scheduled"),
        ("i1,HN,8,1,-15,20,120\n", "negative_time"),
        ("i1,HN,8,1,15,20,later\n", "bad_time"),
        ("i1,HN,-8,1,15,20,120\n", "negative_request"),
        ("i1,HN,eight,1,15,20,120\n", "not_a_number"),
        ("i1,HN,1e9,1,15,20,120\n", "absurd_request"),
        ("i1,HN,0,0,15,20,120\n", "no_request"),
        ("i1,HN,8,1,15,20\n", "short_row"),
    ],
)
def test_a_row_that_cannot_be_used_is_left_out_and_named(tmp_path: Path, row: str, kind: str) -> None:
    fleet = read(tmp_path, GOOD, row)
    assert seen(fleet)[kind] == [3]
    assert lives(fleet) == [(10.0, 110.0)]


def test_without_a_time_of_scheduling_that_of_creation_counts(tmp_path: Path) -> None:
    fleet = read(tmp_path, "8,3,9\n", header="cpu_request,creation_time,deletion_time\n")
    assert lives(fleet) == [(3.0, 9.0)]
    assert fleet.num_by_role == {"(none)": 1}


def test_dates_count_from_the_first_one(tmp_path: Path) -> None:
    row = "1,2024-05-10 00:00:10+00:00,2024-05-10 00:01:00Z\n"
    fleet = read(tmp_path, row, header="gpu_request,scheduled_time,deletion_time\n")
    assert lives(fleet) == [(0.0, 50.0)]


def test_roles_beyond_a_number_stand_together(tmp_path: Path) -> None:
    fleet = read(tmp_path, *(f"i{n},role-{n},8,1,15,20,120\n" for n in range(40)))
    assert len(fleet.num_by_role) == 17
    assert fleet.num_by_role["(other)"] == 24


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "deletion_time: no such column"),
        ("gpu_request,deletion_time\n1,2\n", "scheduled_time or creation_time: no such column"),
        ("scheduled_time,deletion_time\n1,2\n", "gpu_request or cpu_request: no such column"),
        (HEADER, "deletion_time: nothing changes: 0 usable instances in 0 rows"),
        (HEADER + "i1,HN,8,1,,,\n", "deletion_time: nothing changes: 1 usable instances in 1 rows"),
    ],
)
def test_an_unusable_file_is_named_with_the_column(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(TrafficFileError, match=words):
        read(tmp_path, header=text)
