"""What is measured against what is true: under shedding by value, drifting traffic, and outcomes that come late."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import msgspec
import pytest

from schemas.records import Effect, SegmentUplift
from streams.control.uplift.cohorts import matured
from streams.control.uplift.publish import uplift_records
from streams.control.uplift.state import ALL, MeasurementState
from streams.control.uplift.taking_in import take_in
from tests.measured_world import MeasuredWorld, Segment, Tick, Truth, WorldSettings

SEGMENTS = (
    Segment(name="finance", weight=0.5, worth=2.0, upgrade=0.05, click_rate=0.3),
    Segment(name="travel", weight=0.5, worth=0.8, upgrade=0.4, click_rate=0.3),
)
# Room for two thirds of the optional work, that of the requests worth the most; traffic and mix swing by half.
CROWDED = WorldSettings(num_requests=2_500, num_users=4_000, room=0.66, max_delay=0, drift=0.5, attribution=1)
# The share of a segment's requests that draw an upgrade changes from tick to tick, as that of a loop does.
SHARES = ({"finance": 0.2, "travel": 0.7}, {"finance": 0.6, "travel": 0.4}, {"finance": 0.4, "travel": 0.9})
NUM_LOOKS = 4
TICKS_PER_LOOK = 3


def _added(truths: list[Mapping[str, Truth]], segment: str) -> Truth:
    sums = Truth(*(sum(column) for column in zip(*(each[segment] for each in truths), strict=True)))
    return Truth(sums.num, *(figure / sums.num for figure in sums[1:]))


def _expected(truth: Truth, contrast: str) -> float:
    return truth.rma + truth.sbm if contrast == "both" else getattr(truth, contrast)


def _values(said: SegmentUplift) -> dict[str, Effect]:
    return {each.contrast: each for each in said.effects if each.measure == "value"}


class _Looks:
    """One experiment, looked at again and again: what is said of each segment, and the truth of what had matured."""

    def __init__(self, settings: WorldSettings, *, seed: int) -> None:
        self.settings = settings
        self.world = MeasuredWorld(SEGMENTS, seed=seed, settings=settings)
        self.state = MeasurementState()
        self.ticks: list[Tick] = []

    def look(self, num_ticks: int) -> Mapping[str, SegmentUplift]:
        for _ in range(num_ticks):
            tick = self.world.tick(SHARES[len(self.ticks) % len(SHARES)])
            self.ticks.append(tick)
            for window in tick.windows:
                self.state = take_in(self.state, window)
            self.state = matured(self.state, tick.end_ms, window_index=tick.window_index)
        index, end_ms = self.ticks[-1].window_index, self.ticks[-1].end_ms
        # Of every segment, whether or not one of its cohorts matured at this very tick.
        asked = msgspec.structs.replace(
            self.state,
            segments={
                name: msgspec.structs.replace(sums, matured_window=index)
                for name, sums in self.state.segments.items()
                if sums.matured_cohort >= 0
            },
        )
        return {said.segment: said for said in uplift_records(asked, window_index=index, window_end_ms=end_ms)}

    def truth(self, segment: str) -> Truth:
        """Of the cohorts that count by now, each of which is a tick."""
        last = self.state.segments[segment].matured_cohort
        return _added([tick.truth for tick in self.ticks if tick.window_index <= last], segment)

    def naive(self, segment: str) -> float:
        """Mean of the requests that were upgraded less that of those that were not."""
        last = self.state.segments[segment].matured_cohort
        delivered = [tick.delivered[segment] for tick in self.ticks if tick.window_index <= last]
        num_served, served, num_other, other = (sum(column) for column in zip(*delivered, strict=True))
        return float(served / num_served - other / num_other)


def _coverage(num_experiments: int) -> dict[tuple[int, str], list[bool]]:
    """Of each look and kind of contrast, whether each interval held the truth."""
    held: dict[tuple[int, str], list[bool]] = defaultdict(list)
    for seed in range(num_experiments):
        looks = _Looks(CROWDED, seed=seed)
        for look in range(NUM_LOOKS):
            for segment, said in looks.look(TICKS_PER_LOOK).items():
                truth = looks.truth(segment)
                for contrast in ("rma", "sbm", "both", "upgrade", "depth"):
                    effect = _values(said).get(contrast)
                    if effect is None or effect.lower is None or effect.upper is None:
                        continue
                    kind = "per segment" if segment != ALL else "joint" if contrast == "both" else "levers apart"
                    held[look, kind].append(effect.lower <= _expected(truth, contrast) <= effect.upper)
    return held


def _assert_covered(held: Mapping[tuple[int, str], list[bool]], *, num_experiments: int) -> None:
    shares = {key: sum(found) / len(found) for key, found in sorted(held.items())}
    for kind in ("levers apart", "joint", "per segment"):
        looks = {look: shares[look, kind] for look in range(NUM_LOOKS) if (look, kind) in shares}
        print(f"{kind}: " + ", ".join(f"look {look}: {share:.3f}" for look, share in looks.items()))
        assert len(held[NUM_LOOKS - 1, kind]) >= num_experiments
        assert min(looks.values()) >= 0.93


def test_intervals_hold_the_truth_at_every_look():
    _assert_covered(_coverage(8), num_experiments=8)


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_intervals_hold_the_truth_at_every_look_of_many_experiments():
    _assert_covered(_coverage(100), num_experiments=100)


def test_a_naive_look_at_what_was_delivered_is_wrong_on_the_same_data():
    looks = _Looks(replace(CROWDED, num_requests=16_000, num_users=16_000), seed=1)
    said = looks.look(10)
    for segment in ("finance", "travel"):
        naive = looks.naive(segment)
        truth = looks.truth(segment).upgrade
        effect = _values(said[segment])["upgrade"]
        assert effect.lower is not None
        assert effect.upper is not None
        print(f"{segment}: true {truth:.4f}, drawn {effect.effect:.4f}, as delivered {naive:.4f}")
        assert effect.lower <= truth <= effect.upper
        # Who is upgraded is worth more in any case: what is seen of them is not what upgrades earned.
        assert naive > effect.upper


def test_delays_within_the_attribution_window_do_not_bias():
    """Delays are drawn from within a tick to five of them; the attribution window is of six."""
    slow = replace(CROWDED, num_requests=6_000, num_users=8_000, room=1.0, max_delay=5, attribution=6)
    looks = _Looks(slow, seed=4)
    looks.look(9)
    # Nothing is counted before the window has closed, when half of what will come would be missing.
    assert looks.state.segments[ALL].claims == b""
    said = looks.look(9)
    for segment in ("finance", "travel", ALL):
        truth = looks.truth(segment)
        for contrast in ("sbm", "upgrade"):
            effect = _values(said[segment])[contrast]
            assert effect.lower is not None
            assert effect.upper is not None
            assert effect.lower <= getattr(truth, contrast) <= effect.upper
        assert said[segment].num_late_outcomes == 0
    upgrade = _values(said["travel"])["upgrade"]
    assert upgrade.lower is not None
    assert upgrade.lower > 0.0


def test_of_outcomes_that_all_come_late_nothing_is_claimed_and_they_are_counted():
    looks = _Looks(replace(CROWDED, room=1.0, lag=9), seed=5)
    said = looks.look(14)
    for segment in ("finance", "travel", ALL):
        assert said[segment].effects == []
        assert said[segment].recent == []
        assert said[segment].num_late_outcomes > 0
        assert said[segment].num_requests > 0
