"""The cost model: it finds both parts of the true cost, and one outlier does not move it far."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranking.consumer.costs import ALPHA, CLIP, MAX_VERSIONS, CostBook, CostModel, CostPrior

PRIOR = CostPrior(fixed_ns=400_000, per_candidate_ns=3_000, floor_ns=20_000)


def test_before_the_first_call_the_prior_speaks():
    model = CostModel(PRIOR)
    assert model.predict_ns(100) == 700_000
    assert model.rates(200).candidate_ns == 5_000


@pytest.mark.parametrize("factor", [0.1, 1.0, 8.0])
def test_it_finds_the_true_cost_from_a_prior_that_is_far_off(factor):
    draws = random.Random(3)
    model = CostModel(PRIOR)

    def true_ns(n):
        return factor * (200_000 + 5_000 * n)

    for _ in range(1_500):
        n = draws.choice([16, 64, 128, 256, 512])
        model.observe(n, int(true_ns(n) * draws.uniform(0.9, 1.1)))
    for n in (16, 128, 512):
        assert model.predict_ns(n) == pytest.approx(true_ns(n), rel=0.15)


@given(st.integers(1, 4_096), st.integers(0, 10**12))
def test_one_call_moves_its_prediction_by_a_bounded_share(num_candidates, elapsed_ns):
    model = CostModel(PRIOR)
    before = model.predict_ns(num_candidates)
    model.observe(num_candidates, elapsed_ns)
    after = model.predict_ns(num_candidates)
    assert after <= before * (1 + ALPHA * (CLIP - 1)) * (1 + 1e-9)
    assert after >= before * (1 - ALPHA * (1 - 1 / CLIP)) * (1 - 1e-9)
    # Nor does it leave the other sizes alone to drift: they move the same way.
    assert (model.predict_ns(256) - CostModel(PRIOR).predict_ns(256)) * (after - before) >= 0


@given(st.lists(st.tuples(st.integers(0, 1_000), st.integers(0, 10**9)), max_size=200))
def test_no_prediction_falls_below_the_floor_or_with_more_candidates(calls):
    model = CostModel(PRIOR)
    for num_candidates, elapsed_ns in calls:
        model.observe(num_candidates, elapsed_ns)
    predictions = [model.predict_ns(n) for n in (0, 1, 16, 256, 4_096)]
    assert predictions[0] >= PRIOR.floor_ns
    assert predictions == sorted(predictions)


def test_a_call_without_candidates_teaches_nothing():
    model = CostModel(PRIOR)
    model.observe(0, 10**9)
    assert model.predict_ns(100) == CostModel(PRIOR).predict_ns(100)


def test_each_version_starts_anew_and_few_are_kept():
    book = CostBook(PRIOR)
    book.of("v1").observe(256, 10**9)
    assert book.of("v2").predict_ns(256) == CostModel(PRIOR).predict_ns(256)
    assert book.of("v1").predict_ns(256) > CostModel(PRIOR).predict_ns(256)
    for number in range(MAX_VERSIONS):
        book.of(f"later-{number}")
    assert book.of("v1").predict_ns(256) == CostModel(PRIOR).predict_ns(256)


@pytest.mark.parametrize("field", ["fixed_ns", "per_candidate_ns", "floor_ns"])
def test_an_impossible_prior_is_refused(field):
    with pytest.raises(ValueError, match="costs"):
        CostPrior(**{field: -1.0})
