"""Arms and upgrades: who may meet the stronger model, who does, and that nothing but names decides it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranking.router.arms import ArmSettings, arm_of
from ranking.router.draws import uniform
from ranking.router.upgrades import NO_UPGRADE, share_of, upgrade_of
from schemas.partition import partition_for
from schemas.records import SegmentShare
from tests.unit.ranking.router_driver import target_of

NUM = 20_000
BOTH = arm_of("anyone", settings=ArmSettings(holdout_share=0.0, rma_share=1.0, sbm_share=1.0))
NONE = arm_of("anyone", settings=ArmSettings(holdout_share=1.0))


def target(other_share=0.0, **shares):
    listed = [SegmentShare(segment=segment, share=share) for segment, share in shares.items()]
    return msgspec.structs.replace(target_of(100), segment_shares=listed, other_share=other_share)


def test_draws_are_what_they_were_at_every_release():
    assert uniform("u1", purpose=b"holdout") == 0.4580417795037881
    assert uniform("u1", purpose=b"upgrade") == 0.9028938322639725


def test_draws_are_uniform_and_independent_of_each_other_and_of_the_partition():
    names = [f"u{number}" for number in range(NUM)]
    one = [uniform(name, purpose=b"arm rma") for name in names]
    two = [uniform(name, purpose=b"arm sbm") for name in names]
    assert 0.0 <= min(one) < max(one) < 1.0
    # Four standard errors of a proportion of a half, of a quarter, of 20,000 and of 2,500.
    assert sum(x < 0.5 for x in one) / NUM == pytest.approx(0.5, abs=0.0142)
    assert sum(x < 0.5 and y < 0.5 for x, y in zip(one, two, strict=True)) / NUM == pytest.approx(0.25, abs=0.0123)
    home = [x for x, name in zip(one, names, strict=True) if partition_for(name.encode(), 8) == 3]
    assert sum(x < 0.5 for x in home) / len(home) == pytest.approx(0.5, abs=0.04)


def test_arms_have_the_shares_that_are_set():
    settings = ArmSettings(holdout_share=0.1, rma_share=0.5, sbm_share=0.8)
    arms = [arm_of(f"u{number}", settings=settings) for number in range(NUM)]
    expected = {"holdout": 0.1, "none": 0.09, "rma": 0.09, "sbm": 0.36, "both": 0.36}
    assert {arm.name for arm in arms} == expected.keys()
    for name, share in expected.items():
        assert sum(arm.name == name for arm in arms) / NUM == pytest.approx(share, abs=0.015)
    assert all(arm.allows_rma == (arm.name in ("rma", "both")) for arm in arms)
    assert all(arm.allows_sbm == (arm.name in ("sbm", "both")) for arm in arms)


@given(st.text(min_size=1, max_size=20), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_larger_share_only_adds_users(user, one, two):
    low, high = sorted((one, two))
    held_out = [arm_of(user, settings=ArmSettings(holdout_share=share)).name == "holdout" for share in (low, high)]
    allowed = [arm_of(user, settings=ArmSettings(holdout_share=0.0, sbm_share=s)).allows_sbm for s in (low, high)]
    assert held_out[0] <= held_out[1]
    assert allowed[0] <= allowed[1]


@pytest.mark.parametrize("name", ["holdout_share", "rma_share", "sbm_share"])
@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_that_is_none_is_refused(name, share):
    with pytest.raises(ValueError, match=name):
        ArmSettings(**{name: share})


def test_a_segment_has_its_own_share_and_the_others_theirs():
    wanted = target(0.2, retail=0.75, travel=0.0)
    assert [share_of(wanted, segment) for segment in ("retail", "travel", "(none)")] == [0.75, 0.0, 0.2]
    assert share_of(target_of(100), "retail") == 0.0


def test_neither_a_blind_cell_nor_an_arm_without_sbm_has_upgrades():
    certain = target(1.0)
    assert upgrade_of("r1", segment="retail", arm=BOTH, target=None) == NO_UPGRADE
    assert upgrade_of("r1", segment="retail", arm=NONE, target=certain) == NO_UPGRADE
    assert upgrade_of("r1", segment="retail", arm=BOTH, target=certain).is_assigned


def test_as_many_are_assigned_as_the_probability_says_and_none_or_all_at_its_ends():
    for probability in (0.0, 0.013, 0.4, 1.0):
        drawn = [
            upgrade_of(f"r{number}", segment="retail", arm=BOTH, target=target(retail=probability))
            for number in range(NUM)
        ]
        assert {upgrade.probability for upgrade in drawn} == {probability}
        spread = 4.0 * (probability * (1.0 - probability) / NUM) ** 0.5
        assert sum(upgrade.is_assigned for upgrade in drawn) / NUM == pytest.approx(probability, abs=spread)


@given(st.text(min_size=1, max_size=20), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_higher_probability_only_adds_requests(request_id, one, two):
    low, high = sorted((one, two))
    drawn = [
        upgrade_of(request_id, segment="retail", arm=BOTH, target=target(retail=share)).is_assigned
        for share in (low, high)
    ]
    assert drawn[0] <= drawn[1]
