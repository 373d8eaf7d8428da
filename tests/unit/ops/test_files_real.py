"""The public files that the formats come from, where they lie beside the project."""

import os
from pathlib import Path

import numpy as np
import pytest

from ops.simulator.files.apply import load_traffic
from ops.simulator.files.arrivals_file import read_arrivals
from ops.simulator.files.fleet_file import read_fleet
from ops.simulator.files.idle import in_use
from ops.simulator.files.pairs_file import read_pairs
from ops.simulator.files.wanted import WantedArrivals, WantedCapacity, WantedFiles
from ops.simulator.requests import RequestStream
from ops.simulator.timeline import host_timeline
from ops.simulator.world import World, WorldConfig

DATA = Path(os.environ.get("INTERTIDAL_SHARED_DATA", Path(__file__).parents[4] / "shared" / "data"))
ARRIVALS = DATA / "azure" / "AzureLLMInferenceTrace_code.csv"
FLEET = DATA / "alibaba" / "disaggregated_DLRM_trace.csv"
PAIRS = DATA / "mlperf" / "dlrm_v2_dist_quantile.txt"

pytestmark = pytest.mark.skipif(
    not all(path.is_file() for path in (ARRIVALS, FLEET, PAIRS)),
    reason="no traces at ../shared/data or INTERTIDAL_SHARED_DATA",
)


def test_the_arrivals_are_read_whole_and_their_oddities_named() -> None:
    trace = read_arrivals(ARRIVALS)
    assert trace.num_rows == len(trace.times_s) == 8_819
    assert trace.length_s == pytest.approx(3_435.948, abs=0.001)
    assert {kind: count.num_rows for kind, count in trace.dirt.kinds.items()} == {
        "crlf": 8_819,
        "no_zone": 8_819,
        "long_fraction": 8_819,
    }
    assert np.bincount(trace.times_s.astype(int)).max() == 67


def test_the_fleet_is_read_whole_and_its_oddities_named() -> None:
    fleet = read_fleet(FLEET)
    assert (fleet.num_rows, fleet.num_used) == (23_871, 23_855)
    assert fleet.num_by_role == {"HN": 7_370, "CN": 16_485}
    assert {kind: count.num_rows for kind, count in fleet.dirt.kinds.items()} == {
        "missing_start": 7_280,
        "missing_end": 8_878,
        "unordered": 2_501,
        "zero_length": 16,
    }
    assert in_use(fleet, fleet.gpus_I).peak == 3_412.0
    assert in_use(fleet, fleet.cores_I).peak == 422_412.0


def test_the_quantiles_are_read_whole() -> None:
    pairs = read_pairs(PAIRS, limit=4_000)
    assert (len(pairs.quantiles), pairs.quantiles[0], pairs.quantiles[-1]) == (20, 100.0, 700.0)
    assert pairs.dirt.kinds == {}


def test_all_three_make_a_scenario_that_two_cores_carry_and_that_has_a_reclaim() -> None:
    files = WantedFiles(
        arrivals=WantedArrivals(path=str(ARRIVALS)),
        capacity=WantedCapacity(path=str(FLEET), speed=60.0),
        pairs=str(PAIRS),
    )
    scenario = load_traffic("generated", files=files)
    assert 35.0 <= scenario.arrivals.rate_per_s <= 55.0
    actions = [event.action for event in host_timeline(scenario)]
    assert actions.count("reclaim") >= 1
    assert actions.index("reclaim") < len(actions) - 1 - actions[::-1].index("offer")
    due = list(RequestStream(scenario, World(WorldConfig()), start_ms=0).due(from_s=scenario.traffic_s - 10.0))
    sizes = [len(each.request.ad_ids) // 8 for each in due]
    assert 100 <= min(sizes) <= max(sizes) <= 700
    assert len(set(sizes)) > 10
