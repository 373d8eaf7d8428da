"""The table of targets: stale means base, and what was sent again is not news."""

from ranking.client.target_table import TargetTable
from tests.unit.ranking.router_driver import target_of


def test_a_target_holds_until_it_expires_then_the_base_does():
    table = TargetTable()
    assert table.candidates_to_fetch("us-east", 0.0, default=90) == 90
    table.update(target_of(350, valid_until_ms=2_000))
    assert table.candidates_to_fetch("us-east", 2_000.0, default=90) == 350
    assert table.candidates_to_fetch("us-east", 2_000.5, default=90) == 100
    assert table.candidates_to_fetch("eu-west", 0.0, default=90) == 90
    assert table.valid("us-east", 2_000.0) is not None
    assert table.valid("us-east", 2_000.5) is None
    assert table.last("us-east") is not None


def test_never_fewer_than_the_base():
    table = TargetTable()
    table.update(target_of(10))
    assert table.candidates_to_fetch("us-east", 0.0, default=90) == 100


def test_an_older_window_does_not_replace_a_newer_one():
    table = TargetTable()
    assert table.update(target_of(350, end_ms=2_000))
    assert not table.update(target_of(100, end_ms=1_000))
    assert table.candidates_to_fetch("us-east", 0.0, default=1) == 350
    assert table.update(target_of(200, end_ms=2_000))
    assert table.candidates_to_fetch("us-east", 0.0, default=1) == 200
    assert table.cells == ("us-east",)
