"""When a router doubts that its partitions are still its own."""

import pytest

from ranking.router.stall import StallGuard


def guard():
    return StallGuard(session_ms=2_000.0, heartbeat_ms=500.0)


def test_a_loop_that_comes_round_is_never_in_doubt():
    stall = guard()
    for tick in range(100):
        assert not stall.is_in_doubt(tick * 1_000.0)


def test_a_gap_that_heartbeats_cannot_bridge_is_doubted_until_ownership_is_proved():
    stall = guard()
    stall.is_in_doubt(0.0)
    assert stall.is_in_doubt(1_001.0)
    assert stall.is_in_doubt(1_002.0)
    stall.proved(1_003.0)
    assert not stall.is_in_doubt(1_004.0)
    assert stall.is_in_doubt(2_100.0)


def test_the_doubt_comes_before_the_session_can_have_ended():
    """The last heartbeat arrived up to a heartbeat and its way before the process stood still."""
    stall = guard()
    stall.is_in_doubt(1_000.0)
    assert stall.is_in_doubt(1_000.0 + 2_000.0 - 2 * 500.0 + 1.0)


def test_time_spent_proving_is_no_stall():
    stall = guard()
    stall.is_in_doubt(0.0)
    assert stall.is_in_doubt(5_000.0)
    stall.proved(9_000.0)
    assert not stall.is_in_doubt(9_500.0)


def test_a_session_too_short_for_its_heartbeats_is_refused():
    with pytest.raises(ValueError, match="too short"):
        StallGuard(session_ms=1_000.0, heartbeat_ms=500.0)
