"""Idle capacity over time against what is worked out host by host, the slow way."""

from bisect import bisect_right

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.twin.supply import Supply, stays_of
from schemas.age_classes import AGE_CLASSES_S
from tests.unit.ops.twin_makers import event, host

WINDOW_S = 10.0


@st.composite
def fleets(draw):
    """Hosts of two pools, one of them unusable, and what happens to them within 400 s."""
    hosts = [
        host(
            f"h{number}",
            accelerator=draw(st.sampled_from(["a100", "cpu"])),
            units=draw(st.sampled_from([0.5, 1.0, 4.0])),
            offered=draw(st.booleans()),
            unusable=draw(st.sampled_from([None, None, None, "memory"])),
        )
        for number in range(draw(st.integers(1, 5)))
    ]
    events = []
    for each in hosts:
        is_here = each.offered_at_start
        for at_s in sorted(draw(st.sets(st.integers(1, 399), max_size=5))):
            if is_here and draw(st.booleans()):
                events.append(event(float(at_s), each.name, "update", units=draw(st.sampled_from([0.25, 2.0]))))
                continue
            events.append(event(float(at_s), each.name, "reclaim" if is_here else "offer"))
            is_here = not is_here
    return hosts, sorted(events, key=lambda each: each.at_s)


class Slow:
    """One host after the other, from the start, at every question."""

    def __init__(self, hosts, events):
        self.hosts, self.events = hosts, events

    def units(self, each, at_s):
        is_here, units, since_s = each.offered_at_start, each.units, 0.0
        for happened in self.events:
            if happened.host != each.name or happened.at_s > at_s:
                continue
            if happened.action == "update":
                units = happened.units
            else:
                is_here = happened.action == "offer"
                since_s = happened.at_s
        return (units if is_here else 0.0), since_s

    def usable(self, pool, at_s):
        return sum(self.units(h, at_s)[0] for h in self.hosts if h.accelerator == pool and h.unusable is None)


@settings(max_examples=60, deadline=None)
@given(fleets())
def test_windows_say_what_is_there_host_by_host(fleet):
    hosts, events = fleet
    supply, slow = Supply(hosts, events), Slow(hosts, events)
    num_taken = dict.fromkeys(supply.accelerators, 0)
    for index in range(40):
        end_s = (index + 1) * WINDOW_S
        supply.play(end_s)
        for name, usable, window in zip(supply.accelerators, supply.usable(), supply.pool_windows(end_s), strict=True):
            mine = [each for each in hosts if each.accelerator == name]
            assert usable.units == pytest.approx(slow.usable(name, end_s))
            assert window.units_micro == sum(round(slow.units(each, end_s)[0] * 1e6) for each in mine)
            unusable = sum(reason.units_micro for reason in window.unusable)
            assert window.units_micro - unusable == round(usable.units * 1e6)
            ages = {each.from_age_s: each.units_micro for each in window.ages if each.units_micro}
            expected: dict[int, int] = {}
            moment = 0.0
            for each in mine:
                units, since_s = slow.units(each, end_s)
                if units and each.unusable is None:
                    bound = AGE_CLASSES_S[bisect_right(AGE_CLASSES_S, end_s - since_s) - 1]
                    expected[bound] = expected.get(bound, 0) + round(units * 1e6)
                    moment += units * (end_s - since_s)
            assert ages == expected
            assert window.age_unit_ms == pytest.approx(moment * 1_000.0, abs=1.0)
            num_taken[name] += window.num_reclaims
    for name in supply.accelerators:
        names = {each.name for each in hosts if each.accelerator == name}
        assert num_taken[name] == sum(each.action == "reclaim" and each.host in names for each in events)


def test_units_taken_back_are_told_by_their_age():
    hosts = [host("h0"), host("h1", units=2.0)]
    supply = Supply(hosts, [event(25.0, "h1", "reclaim")])
    supply.play(20.0)
    assert not any(each.taken_micro for each in supply.pool_windows(20.0)[0].ages)
    (change,) = supply.play(30.0)
    assert (change.at_s, change.units) == (25.0, -2.0)
    (window,) = supply.pool_windows(30.0)
    assert {each.from_age_s: each.taken_micro for each in window.ages if each.taken_micro} == {10: 2_000_000}
    assert (window.num_reclaims, window.num_hosts) == (1, 1)
    supply.play(40.0)
    (window,) = supply.pool_windows(40.0)
    assert (window.num_reclaims, [each.taken_micro for each in window.ages]) == (0, [0])


@settings(max_examples=60, deadline=None)
@given(fleets())
def test_stays_cover_the_same_time_as_the_supply(fleet):
    hosts, events = fleet
    supply = Supply(hosts, events)
    accelerators, stays = stays_of(hosts, events)
    assert accelerators == supply.accelerators
    for at_s in np.arange(0.5, 400.0, 17.0):
        supply.play(at_s)
        for usable, mine in zip(supply.usable(), stays, strict=True):
            there = sum(stay.units for stay in mine if stay.from_s <= at_s < stay.until_s)
            assert there == pytest.approx(usable.units)
            assert all(stay.since_s <= stay.from_s for stay in mine)


def test_announced_reclaims_are_told_until_they_come():
    hosts = [host("h0", units=3.0), host("h1", unusable="memory")]
    supply = Supply(hosts, [event(5.0, "h0", "notice"), event(6.0, "h1", "notice"), event(15.0, "h0", "reclaim")])
    noticed = []
    for end_s in (4.0, 10.0, 20.0):
        supply.play(end_s)
        noticed.append(supply.pool_windows(end_s)[0].noticed_units_micro)
    assert noticed == [0, 3_000_000, 0]
