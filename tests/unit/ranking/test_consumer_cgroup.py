"""The weight of a control group: lowered where the group is the replica's own, and never that of a neighbour."""

import os
from pathlib import Path

import pytest

from ranking.consumer.cgroup import lower_weight


@pytest.fixture
def group(tmp_path: Path) -> Path:
    """A group of this process alone."""
    (tmp_path / "membership").write_text("3:cpuset:/\n0::/unit.service\n")
    folder = tmp_path / "unit.service"
    folder.mkdir()
    (folder / "cpu.weight").write_text("100\n")
    (folder / "cgroup.procs").write_text(f"{os.getpid()}\n")
    return folder


def lower(group: Path) -> str:
    return lower_weight(33, root=group.parent, membership=group.parent / "membership")


def test_a_group_of_its_own_is_lowered(group: Path) -> None:
    assert lower(group) == "lowered from 100 to 33"
    assert (group / "cpu.weight").read_text() == "33\n"
    assert lower(group) == "left at 33: as low already"


def test_a_group_with_other_members_is_left_alone(group: Path) -> None:
    (group / "cgroup.procs").write_text(f"{os.getpid()}\n1\n")
    assert lower(group) == "left at 100: the group has other members"
    assert (group / "cpu.weight").read_text() == "100\n"


@pytest.mark.parametrize(
    ("membership", "said"),
    [
        ("3:cpuset:/\n", "no control group v2"),
        ("0::/elsewhere\n", "no control group v2 with a CPU weight"),
    ],
)
def test_where_there_is_no_weight_it_says_so(group: Path, membership: str, said: str) -> None:
    (group.parent / "membership").write_text(membership)
    assert said in lower(group)


def test_a_weight_that_cannot_be_read_or_written_stops_nothing(group: Path) -> None:
    (group / "cpu.weight").write_text("none\n")
    assert lower(group).startswith("left alone: ")
    (group / "cpu.weight").unlink()
    (group / "cpu.weight").mkdir()
    assert lower(group).startswith("left alone: ")
