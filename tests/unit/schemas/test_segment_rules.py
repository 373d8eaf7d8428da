"""Segments declared as rules: the first that fits, a default, and today's labels where nothing is declared."""

import numpy as np
import pytest

from schemas.segments import MAX_SEGMENTS, NO_SEGMENT, OTHER_SEGMENT, FeatureRange, SegmentRule, SegmentRules
from tests.unit.ranking.router_driver import request_of


def test_without_rules_a_segment_is_the_callers_label():
    assert SegmentRules().of(request_of(advertiser_segment="retail")) == "retail"
    assert SegmentRules(default="rest").of(request_of(advertiser_segment="")) == NO_SEGMENT


def test_the_first_rule_that_fits_in_everything_counts():
    rules = SegmentRules(
        rules=[
            SegmentRule(name="eu travel", cell=["eu-west"], advertiser_segment=["travel", "hotels"]),
            SegmentRule(name="mobile", platform=["ios", "android"]),
            SegmentRule(name="mobile", provider=["app"]),
        ],
        default="rest",
    )

    def of(**fields):
        return rules.of(request_of(**fields))

    assert of(cell="eu-west", advertiser_segment="hotels", platform="ios") == "eu travel"
    assert of(cell="us-east", advertiser_segment="hotels", platform="ios") == "mobile"
    assert of(provider="app") == "mobile"
    assert of(advertiser_segment="travel") == "rest"


@pytest.mark.parametrize(
    ("features", "fits"),
    [([0.0, 0.5], True), ([0.0, 0.75], True), ([0.0, 1.0], False), ([0.0, 0.49], False), ([0.6], False), ([], False)],
)
def test_a_feature_is_in_a_half_open_range_and_one_that_is_not_there_is_in_none(features, fits):
    rule = SegmentRule(name="x", features=[FeatureRange(index=1, at_least=0.5, below=1.0)])
    request = request_of(user_features=np.array(features, dtype="<f4").tobytes())
    assert (SegmentRules(rules=[rule]).of(request) == "x") is fits


def test_a_history_has_a_shortest_length():
    rules = SegmentRules(rules=[SegmentRule(name="known", min_past_ads=2)])
    past = [rules.of(request_of(history_ids=np.arange(num, dtype="<i8").tobytes())) for num in range(4)]
    assert past == [NO_SEGMENT, NO_SEGMENT, "known", "known"]


def test_what_no_request_could_be_told_apart_by_is_refused():
    for bounds in ({}, {"at_least": 1.0, "below": 1.0}, {"below": float("nan")}, {"at_least": float("inf")}):
        with pytest.raises(ValueError, match="feature 3"):
            FeatureRange(index=3, **bounds)
    with pytest.raises(ValueError, match=r"\(other\)"):
        SegmentRule(name=OTHER_SEGMENT)
    many = [SegmentRule(name=f"s{number}") for number in range(MAX_SEGMENTS)]
    with pytest.raises(ValueError, match="at most 64"):
        SegmentRules(rules=many)
    assert len(SegmentRules(rules=many[1:]).rules) == MAX_SEGMENTS - 1
