"""A process that stood still is told from one that ran, and is never trusted again."""

from streams.control.stall import StallGuard


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_who_beats_in_time_never_stood_still() -> None:
    clock = Clock()
    guard = StallGuard(clock=clock, limit_s=6.0)
    for _ in range(100):
        clock.now_s += 5.9
        assert guard.stalled_s() is None
        guard.beat()
    assert guard.stalled_s() is None


def test_a_long_gap_is_seen_before_the_next_beat() -> None:
    clock = Clock()
    guard = StallGuard(clock=clock, limit_s=6.0)
    clock.now_s += 6.5
    assert guard.stalled_s() == 6.5


def test_a_beat_does_not_make_it_forgotten() -> None:
    clock = Clock()
    guard = StallGuard(clock=clock, limit_s=6.0)
    clock.now_s += 13.0
    guard.beat()
    clock.now_s += 0.2
    guard.beat()
    assert guard.stalled_s() == 13.0
