"""Records that the stream library lets fall are read again; nothing is taken twice or out of order."""

import random

from hypothesis import given
from hypothesis import strategies as st

from streams.control.in_order import MAX_RETURNS, SEEK_INTERVAL_S, InOrder


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


def started(offset=5):
    clock = Clock()
    order = InOrder(clock=clock)
    order.start(0, offset=offset)
    return clock, order


def test_what_comes_in_order_is_taken_once():
    _, order = started()
    assert order.judge(0, offset=5) == "take"
    order.took(0, offset=5)
    assert order.judge(0, offset=5) == "seen"
    assert order.judge(0, offset=6) == "take"


def test_a_hole_is_sought_once_while_what_was_behind_it_still_comes():
    clock, order = started()
    assert order.judge(0, offset=8) == "seek"
    assert order.expected(0) == 5
    assert order.judge(0, offset=9) == "wait"
    clock.now_s += SEEK_INTERVAL_S
    assert order.judge(0, offset=10) == "seek"
    assert order.judge(0, offset=5) == "take"


def test_a_hole_of_the_log_itself_is_stepped_over_in_the_end():
    clock, order = started()
    for _ in range(MAX_RETURNS):
        assert order.judge(0, offset=8) == "seek"
        clock.now_s += SEEK_INTERVAL_S
    assert order.judge(0, offset=8) == "take"
    order.took(0, offset=8)
    assert order.judge(0, offset=10) == "seek"


def test_after_a_rebalance_the_group_says_where_to_begin():
    _, order = started()
    order.took(0, offset=20)
    order.start(0, offset=40)
    assert order.judge(0, offset=40) == "take"


def test_nothing_is_taken_before_it_is_known_where_to_begin():
    _, order = started()
    assert order.judge(1, offset=3) == "wait"
    assert order.expected(1) is None


@given(lost=st.sets(st.integers(0, 30)), dice=st.integers(0, 2**32).map(random.Random))
def test_whatever_is_lost_on_the_way_every_record_is_taken_once_and_in_order(lost, dice):
    """A stream that loses each record of ``lost`` the first time, and goes back when it is told to."""
    clock, order = started(offset=0)
    taken: list[int] = []
    queue: list[int] = []
    position = 0
    while len(taken) <= 30:
        clock.now_s += dice.uniform(0.0, SEEK_INTERVAL_S)
        # New records keep coming: without them nobody would see a hole at the end.
        if position in lost:
            lost.discard(position)
        else:
            queue.append(position)
        position += 1
        if queue and dice.random() < 0.5:
            offset = queue.pop(0)
            verdict = order.judge(0, offset=offset)
            if verdict == "take":
                order.took(0, offset=offset)
                taken.append(offset)
            elif verdict == "seek":
                position = order.expected(0)
    assert taken == list(range(len(taken)))
