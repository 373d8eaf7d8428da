"""The powerful route end to end, router and replica as processes: the baseline bundle stands for a stronger one."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

import ranking.models
from ranking.router.arms import arm_of
from schemas.framing import decode_as
from schemas.records import LatencyInterval
from schemas.topics import CONTROL_TARGETS, SERVING_LATENCY
from tests.broker.router_pipeline import NUM_PARTITIONS, Pipeline, target, wait_for

BUNDLE = Path(ranking.models.__file__).parent / "bundles" / "baseline-world"
NUM_REQUESTS = 20
BATCH = 10
# Slow: a replica that shares two cores with a whole test run soon says that it is pressed.
RATE_PER_S = 20.0
RANKER = """
import sys
from pathlib import Path
from ops.telemetry.logs import set_up_logging
from ranking.consumer.worker import RankerOptions, run
from schemas.settings import TimeSettings
from schemas.topics import Namespace
set_up_logging("ranker")
run(RankerOptions(namespace=Namespace(sys.argv[1]), time=TimeSettings(), ranker_id="strong-1", cell="us-east",
    routes=("powerful",), pool=None, bundle=Path(sys.argv[2]), static_member=False))
"""


@pytest.fixture
def pipeline(kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipeline]:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", kafka)
    pipeline = Pipeline(topic_prefix)
    yield pipeline
    pipeline.close()


def test_upgrades_are_served_recorded_and_lost_with_their_replica_alone(pipeline: Pipeline) -> None:
    pipeline.stub("ranker-1", range(NUM_PARTITIONS))
    powerful = subprocess.Popen([sys.executable, "-c", RANKER, pipeline.namespace.prefix, str(BUNDLE)])
    try:
        pipeline.start_router()
        pipeline.warm_up()
        pipeline.raw.send(
            pipeline.namespace.topic(CONTROL_TARGETS),
            target(valid_for_ms=60_000, candidates=64, other_share=1.0),
            key=b"us-east",
        )
        pipeline.raw.drain()
        numbers = count()

        def serves() -> bool:
            number = next(numbers)
            asked = range(number * BATCH, (number + 1) * BATCH)
            pipeline.send(asked, rate_per_s=RATE_PER_S)
            results = {result.request_id: result for result in pipeline.results(asked.stop + 1)}
            return any("powerful" in results[f"request-{number}"].routes for number in asked)

        # The replica loads its model meanwhile, and is pressed by the work that has waited for it.
        wait_for(serves, timeout_s=60.0)
        first = next(numbers) * BATCH
        pipeline.send(range(first, first + NUM_REQUESTS), rate_per_s=RATE_PER_S)
        served = {result.request_id: result for result in pipeline.results(first + NUM_REQUESTS + 1)}
        powerful.kill()
        powerful.wait()
        pipeline.send(range(first + NUM_REQUESTS, first + 2 * NUM_REQUESTS), rate_per_s=RATE_PER_S)
        results = {result.request_id: result for result in pipeline.results(first + 2 * NUM_REQUESTS + 1)}
    finally:
        powerful.kill()
        powerful.wait()

    before = [served[f"request-{number}"] for number in range(first - BATCH, first + NUM_REQUESTS)]
    assert all(result.upgrade_assigned is arm_of(result.user_id).allows_sbm for result in before[BATCH:])
    upgraded = [result for result in before if "powerful" in result.routes]
    print(Counter((item.state, item.reason) for result in before for item in result.optional))
    # All of them on a machine that has nothing else to do.
    assert upgraded
    for result in upgraded:
        assert "baseline-world-2.1" in result.model_versions
        assert (result.flipped is None, result.upgrade_propensity) == (False, 1.0)
        assert [(item.lever, item.units) for item in result.optional if item.state == "admitted"] == [("sbm", 1)]
    # The stub ranks base candidates by their place, and the model by what it has learned: they differ.
    assert any(result.flipped for result in upgraded)

    after = [results[f"request-{number}"] for number in range(first + NUM_REQUESTS, first + 2 * NUM_REQUESTS)]
    assert not any(result.late or result.degraded or "powerful" in result.routes for result in after)
    assert {result.num_candidates_ranked for result in after} == {64}
    ends = Counter(item.state for result in after for item in result.optional)
    assert ends["admitted"] == 0

    def accounted() -> Counter[str]:
        found: Counter[str] = Counter()
        for message in pipeline.read(pipeline.namespace.topic(SERVING_LATENCY), 1, settle_s=0.5):
            if message.key() == b"us-east":
                interval = decode_as(message.value(), LatencyInterval)
                for account in interval.accounts if interval.part == "router" else ():
                    found[account.lever] += account.offered
        return found

    # Each closes in the end, those that were lost with the replica as well.
    wait_for(lambda: accounted()["sbm"] == sum(result.upgrade_assigned for result in results.values()), timeout_s=15.0)
