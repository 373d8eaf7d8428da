"""What a request is assigned: by its user, by chance, and with the probabilities that its result tells."""

from collections import Counter
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranking.router.arms import ArmSettings, arm_of, arm_propensity
from ranking.router.assignment import assignment_of
from ranking.router.doses import NO_DOSE, dose_of
from ranking.router.experiment import Experiment, load_experiment, parse_experiment
from ranking.router.policy import RouterPolicy
from schemas.attribution import MICRO, Attribution, parse_token
from schemas.attribution_keys import UNSIGNED, AttributionKeys
from schemas.drawn import drawn_depth, drawn_upgrade, upgrade_propensity
from schemas.records import DepthValue, SegmentShare, UpgradeValue
from tests.unit.ranking.router_driver import Driver, request_of, target_of

NUM = 20_000
HALVES = Experiment(arms=ArmSettings(holdout_share=0.1, rma_share=0.5, sbm_share=0.8), explored_share=0.4)
TARGET = target_of(350, other_share=0.5, segment_shares=[SegmentShare(segment="retail", share=0.25)])


def users_of(arm, num, settings):
    names = (f"user-{number}" for number in range(100_000))
    return list(islice((name for name in names if arm_of(name, settings=settings).name == arm), num))


def assigned(request, *, target=TARGET, experiment=HALVES):
    return assignment_of(request, target=target, experiment=experiment, max_upgrade_candidates=1_024)


def result_for(driver, request):
    """The result of a request whose work is all answered."""
    for sent in driver.request(request):
        driver.answer(sent)
    return driver.results[-1]


def said_by_token(result, keys=UNSIGNED):
    return parse_token(result.attribution_token, request_id=result.request_id, user_id=result.user_id, keys=keys)


def said_by_result(result):
    """What its outcomes are to be counted under, from what a result says: as ingest counts the result itself."""
    depth = drawn_depth(result.dose, full_dose=result.full_dose, propensity=result.dose_propensity)
    drawn = {"is_assigned": result.upgrade_assigned, "probability": result.upgrade_propensity}
    upgrade = drawn_upgrade(**drawn)
    return Attribution(
        cell=result.cell,
        segment=result.segment,
        arm=result.arm,
        intake_ms=result.intake_ms,
        depth=depth,
        upgrade=upgrade,
        depth_micro=round(result.dose_propensity * MICRO) if depth else MICRO,
        upgrade_micro=round(upgrade_propensity(**drawn) * MICRO) if upgrade else MICRO,
        is_aa=result.is_aa,
    )


@pytest.mark.parametrize(("num_full", "expected"), [(250, {0: 0.2, 125: 0.2, 250: 0.6}), (1, {0: 0.4, 1: 0.6})])
def test_doses_are_drawn_with_the_probabilities_that_they_tell(num_full, expected):
    drawn = [dose_of(f"r{number}", num_full=num_full, explored_share=0.4) for number in range(NUM)]
    counts = Counter(dose.num_extra for dose in drawn)
    assert counts.keys() == expected.keys()
    for num_extra, probability in expected.items():
        spread = 4.0 * (probability * (1.0 - probability) / NUM) ** 0.5
        assert counts[num_extra] / NUM == pytest.approx(probability, abs=spread)
        assert [*{dose.propensity for dose in drawn if dose.num_extra == num_extra}] == [pytest.approx(probability)]
    # What an analysis weighs by: each dose stands for as many requests as there were.
    assert sum(1.0 / dose.propensity for dose in drawn) / NUM == pytest.approx(len(expected), rel=0.05)


@given(st.text(min_size=1, max_size=20), st.integers(0, 4_096), st.floats(0.0, 1.0))
def test_a_dose_is_at_most_what_is_asked_for_and_had_a_chance(request_id, num_full, explored_share):
    dose = dose_of(request_id, num_full=num_full, explored_share=explored_share)
    assert 0 <= dose.num_extra <= dose.num_full == num_full
    assert 0.0 < dose.propensity <= 1.0 + 1e-12
    assert dose == dose_of(request_id, num_full=num_full, explored_share=explored_share)


def test_nothing_is_drawn_where_nothing_is_asked_for_or_nothing_explored():
    assert dose_of("r1", num_full=0, explored_share=0.4) == dose_of("r1", num_full=-20, explored_share=0.4) == NO_DOSE
    assert {dose_of(f"r{n}", num_full=250, explored_share=0.0).num_extra for n in range(200)} == {250}


@pytest.mark.parametrize(
    ("arm", "has_extras", "has_upgrades"),
    [
        ("holdout", False, False),
        ("none", False, False),
        ("rma", True, False),
        ("sbm", False, True),
        ("both", True, True),
    ],
)
def test_a_user_meets_what_the_arm_allows_and_nothing_else_ever(arm, has_extras, has_upgrades):
    driver = Driver(experiment=HALVES)
    driver.core.targets.update(TARGET)
    results = [
        result_for(driver, request_of(f"r{number}", user_id=user, advertiser_segment="retail"))
        for number, user in enumerate(users_of(arm, 60, HALVES.arms))
    ]
    assert {result.arm for result in results} == {arm}
    for result in results:
        assert said_by_token(result) == said_by_result(result)
    assert {result.dose for result in results} == ({0, 125, 250} if has_extras else {0})
    assert {result.full_dose for result in results} == {250 if has_extras else 0}
    assert {result.upgrade_assigned for result in results} == ({False, True} if has_upgrades else {False})
    assert {result.upgrade_propensity for result in results} == {0.25 if has_upgrades else 0.0}
    assert ("wide" in {sent.route for sent in driver.works}) is has_extras
    assert ("powerful" in {sent.route for sent in driver.works}) is has_upgrades
    for result in results:
        expected = {0: 0.2, 125: 0.2, 250: 0.6}[result.dose] if has_extras else 1.0
        assert result.dose_propensity == pytest.approx(expected)
        # Of an item: that of every dose which reaches its end, so that sums weighted by it are those of all requests.
        for item in result.optional:
            if item.lever == "rma":
                assert item.propensity == pytest.approx({125: 0.8, 250: 0.6}[result.dose])
        assert {item.propensity for item in result.optional if item.lever == "sbm"} <= {0.25}


def test_in_an_a_a_test_everything_is_drawn_and_nothing_follows_from_it():
    users = users_of("both", 60, HALVES.arms)
    drawn = []
    for is_aa in (False, True):
        driver = Driver(experiment=replace(HALVES, is_aa=is_aa))
        driver.core.targets.update(TARGET)
        results = [result_for(driver, request_of(f"r{number}", user_id=user)) for number, user in enumerate(users)]
        assert {result.is_aa for result in results} == {is_aa}
        assert {sent.route for sent in driver.works} == ({"baseline"} if is_aa else {"baseline", "wide", "powerful"})
        assert is_aa is not any(result.optional for result in results)
        drawn.append([replace(said_by_result(result), is_aa=False) for result in results])
        assert [said_by_token(result).is_aa for result in results] == [is_aa] * len(results)
    assert drawn[0] == drawn[1]


def test_tokens_are_signed_with_the_key_of_the_policy():
    keys = AttributionKeys([(3, b"0123456789abcdef")])
    driver = Driver(policy=RouterPolicy(keys=keys), experiment=HALVES)
    result = result_for(driver, request_of("r1"))
    assert said_by_token(result, keys) == said_by_result(result)
    with pytest.raises(ValueError, match="signed with key 3"):
        said_by_token(result)


def test_the_probabilities_of_the_arms_are_those_of_users_and_sum_up():
    settings = HALVES.arms
    arms = {arm.name: arm for arm in (arm_of(f"u{number}", settings=settings) for number in range(NUM))}
    found = {name: arm_propensity(arm, settings=settings) for name, arm in arms.items()}
    assert found == pytest.approx({"holdout": 0.1, "none": 0.09, "rma": 0.09, "sbm": 0.36, "both": 0.36})
    assert assigned(request_of(user_id=users_of("both", 1, settings)[0])).arm_propensity == pytest.approx(0.36)


def test_other_routers_restarts_and_replays_come_to_the_same_and_a_takeover_to_the_same_arm():
    (user,) = users_of("both", 1, HALVES.arms)
    requests = [request_of(f"r{number}", user_id=user) for number in range(50)]
    first, second = Driver(experiment=HALVES), Driver(experiment=HALVES)
    for driver in (first, second):
        driver.core.targets.update(TARGET)
    for one, other in zip(
        [result_for(first, request) for request in requests],
        reversed([result_for(second, request) for request in reversed(requests)]),
        strict=True,
    ):
        assert (one.request_id, one.arm, one.dose, one.dose_propensity, one.upgrade_assigned) == (
            other.request_id,
            other.arm,
            other.dose,
            other.dose_propensity,
            other.upgrade_assigned,
        )
    heir = Driver(experiment=HALVES, horizon=1)
    heir.core.targets.update(TARGET)
    result = result_for(heir, requests[0])
    assert (result.takeover, result.arm, result.segment, result.dose, result.upgrade_propensity) == (
        True,
        "both",
        "(none)",
        0,
        0.0,
    )


def test_draws_for_doses_and_upgrades_are_independent():
    user = users_of("both", 1, HALVES.arms)[0]
    both = [assigned(request_of(f"r{number}", user_id=user, num_candidates=350)) for number in range(4_000)]
    upgraded = [each for each in both if each.upgrade.is_assigned]
    assert len(upgraded) / 4_000 == pytest.approx(0.5, abs=0.032)
    share = sum(each.dose.num_extra == 250 for each in upgraded) / len(upgraded)
    assert share == pytest.approx(0.6, abs=0.045)


def test_values_are_the_priors_until_the_target_holds_measured_ones():
    driver = Driver()
    driver.core.targets.update(target_of(350, other_share=1.0))
    _, wide, powerful = driver.request(request_of("r1"))
    assert powerful.work.chunk_values_micro == [1_000]
    prior = wide.work.chunk_values_micro
    measured = target_of(
        350,
        other_share=1.0,
        end_ms=1_000_001,
        depth_values=[DepthValue(position=0, clicks=0.5), DepthValue(position=200, clicks=0.0)],
        upgrade_values=[UpgradeValue(segment="retail", value_micro=70)],
    )
    driver.core.targets.update(measured)
    _, wide, powerful = driver.request(request_of("r2", advertiser_segment="retail"))
    assert powerful.work.chunk_values_micro == [70]
    # 0.5 falling to 0 at 200: the sum over positions 100 to 199 of bids of 1, and nothing behind.
    expected = sum(0.5 * (200 - position) / 200 for position in range(100, 200)) * 1e6
    assert wide.work.chunk_values_micro == [pytest.approx(expected, rel=1e-6), 0]
    assert wide.work.chunk_values_micro != prior
    _, _, powerful = driver.request(request_of("r3", advertiser_segment="travel"))
    assert powerful.work.chunk_values_micro == [1_000]


def test_settings_are_read_from_toml():
    experiment = parse_experiment(
        """
        [arms]
        holdout_share = 0.02
        sbm_share = 0.5

        [doses]
        explored_share = 0.2

        [segments]
        default = "rest"

        [[segments.rules]]
        name = "young mobile"
        platform = ["ios", "android"]
        features = [{ index = 1, below = 0.5 }]
        """
    )
    assert experiment.arms == ArmSettings(holdout_share=0.02, sbm_share=0.5)
    assert experiment.explored_share == 0.2
    features = np.array([9.0, 0.25], dtype="<f4").tobytes()
    assert experiment.segments.of(request_of(platform="ios", user_features=features)) == "young mobile"
    assert experiment.segments.of(request_of(platform="web", user_features=features)) == "rest"
    assert parse_experiment("") == Experiment()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[arms]\nholdout_share = 1.5", "holdout_share"),
        ("[arms]\nholdout = 0.5", "holdout"),
        ("[doses]\nexplored_share = nan", "explored_share"),
        ("[segment]", "segment"),
        ("[[segments.rules]]\nplatform = ['ios']", "name"),
        ("[[segments.rules]]\nname = 'x'\nplatfrom = ['ios']", "platfrom"),
        ("[arms", "table"),
    ],
)
def test_settings_that_are_none_are_refused_with_the_name_of_their_file(tmp_path, text, words):
    path = tmp_path / "experiment.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=words) as refused:
        load_experiment(path)
    assert str(path) in str(refused.value)
