"""The examples of the caller's side do what they say."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from ranking.client.target_table import TargetTable
from ranking.router.arms import ArmSettings
from ranking.router.experiment import Experiment, load_experiment
from schemas.framing import decode_as, encode
from schemas.records import RankingRequest
from tests.unit.ranking.router_driver import START_MS, Driver, request_of, target_of

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


@pytest.fixture(scope="module")
def retrieval():
    spec = importlib.util.spec_from_file_location("retrieval_example", EXAMPLES / "retrieval.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its module up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (target_of(350), 350),
        (target_of(350, valid_until_ms=START_MS - 1), 100),
        (None, 64),
    ],
    ids=["valid", "expired", "none"],
)
def test_as_many_candidates_are_fetched_as_the_cell_wants_and_a_stale_view_means_base(retrieval, target, expected):
    table = TargetTable()
    if target is not None:
        table.update(target)
    times = iter([START_MS, START_MS + 12.5])
    request = retrieval.ask(
        "u1",
        cell="us-east",
        candidates_to_fetch=lambda cell: table.candidates_to_fetch(cell, START_MS, default=retrieval.BASE_CANDIDATES),
        retrieve=retrieval.made_up,
        now_ms=lambda: next(times),
    )
    assert len(request.ad_ids) == 8 * expected
    assert (request.num_base_candidates, request.upstream_us) == (64, 12_500)
    assert decode_as(encode(request), RankingRequest) == request
    driver = Driver()
    driver.core.targets.update(target_of(350))
    works = driver.request(request)
    assert [sent.route for sent in works] == (["baseline", "wide"] if expected > 64 else ["baseline"])


def test_a_retrieval_that_finds_less_than_the_base_sends_what_there_is(retrieval):
    few = retrieval.ask(
        "u1", cell="us-east", candidates_to_fetch=lambda _: 64, retrieve=lambda user, _: retrieval.made_up(user, 3)
    )
    assert few.num_base_candidates == 3


def test_the_settings_of_the_experiment_are_the_defaults_and_its_rules_those_that_it_names():
    experiment = load_experiment(EXAMPLES / "experiment.toml")
    assert experiment.arms == ArmSettings()
    assert experiment.explored_share == Experiment().explored_share
    of = experiment.segments.of
    assert of(request_of(platform="ios", advertiser_segment="travel")) == "mobile travel"
    assert of(request_of(platform="web", history_ids=bytes(8 * 50))) == "well known"
    assert of(request_of()) == "returning"
    assert of(request_of(user_features=np.zeros(4, dtype="<f4").tobytes())) == "others"
