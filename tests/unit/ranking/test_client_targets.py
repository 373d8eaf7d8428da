"""The table of targets: stale means base, and what was sent again is not news."""

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME
from msgspec.structs import replace

from ranking.client.target_table import MAX_VALIDITY_MS, TargetTable, doubt
from ranking.client.targets import TargetsView
from ranking.clock import BrokerClock
from schemas.framing import Decoder, encode
from schemas.topics import CONTROL_TARGETS
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


def test_a_target_as_a_controller_sends_it_is_believed():
    target = target_of(300)
    assert doubt(target, key=b"us-east", append_ms=target.window_end_ms + 600) is None


@pytest.mark.parametrize(
    ("changes", "key", "word"),
    [
        ({}, b"us-west", "key"),
        ({}, None, "key"),
        ({"window_end_ms": 2**52, "valid_until_ms": 2**53}, b"us-east", "window_end_ms"),
        ({"valid_until_ms": 2**53}, b"us-east", "valid_until_ms"),
        ({"candidate_target": 1_000_000}, b"us-east", "candidate_target"),
    ],
)
def test_a_target_that_would_rule_for_ever_or_without_bound_is_not_believed(changes, key, word):
    target = target_of(300)
    why = doubt(replace(target, **changes), key=key, append_ms=target.window_end_ms + 600)
    assert why is not None
    assert word in str(why)


def test_no_validity_in_use_is_doubted():
    target = target_of(300)
    longest = replace(target, valid_until_ms=target.window_end_ms + MAX_VALIDITY_MS)
    assert doubt(longest, key=b"us-east", append_ms=target.window_end_ms) is None


def view_of():
    view: Any = TargetsView.__new__(TargetsView)
    view.table, view._clock, view._decoder = TargetTable(), BrokerClock(), Decoder(CONTROL_TARGETS.record_types)
    view._follower = SimpleNamespace(is_caught_up=False)
    view._default_base_candidates = 7
    view.num_refused, view.refused = 0, deque()
    view.num_shut_out, view._named, view._on_shut_out = 0, {}, None
    return view


def read(view, target, *, append_ms, key=b"us-east"):
    view._on_message(
        SimpleNamespace(
            key=lambda: key,
            value=lambda: target if isinstance(target, bytes) else encode(target),
            timestamp=lambda: (TIMESTAMP_LOG_APPEND_TIME, append_ms),
            partition=lambda: 0,
            offset=lambda: 0,
            headers=lambda: None,
        )
    )


def test_while_the_brokers_time_is_not_known_the_base_is_asked_for():
    """A record from before the start says nothing of the time, and this host's own clock may be wrong."""
    view = view_of()
    target = target_of(300)
    read(view, target, append_ms=target.window_end_ms + 600)
    assert view.candidates_to_fetch("us-east") == 100
    assert view.valid("us-east") is None
    view._follower.is_caught_up = True
    read(view, target, append_ms=target.window_end_ms + 600)
    assert view.candidates_to_fetch("us-east") == 300


def test_what_is_refused_after_the_start_is_kept_for_a_dead_letter():
    view = view_of()
    for_ever = replace(target_of(300), valid_until_ms=2**53)
    # Met before by whoever was there; read again at each start.
    read(view, for_ever, append_ms=for_ever.window_end_ms)
    assert (view.num_refused, len(view.refused)) == (1, 0)
    view._follower.is_caught_up = True
    read(view, for_ever, append_ms=for_ever.window_end_ms)
    read(view, b"no target", append_ms=1)
    assert [error.reason for _, error in view.refused] == ["invalid_field", "bad_framing"]
    assert view.table.cells == ()
