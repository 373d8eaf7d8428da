"""From a bundle to a scorer that is ready for its first request."""

import time
from typing import NamedTuple

from ops.telemetry.logs import get_log
from ranking.consumer.costs import CostBook
from ranking.consumer.options import RankerOptions
from ranking.consumer.warm_up import warm_up
from ranking.models.load import load_baseline
from ranking.models.scorer import Scorer

_log = get_log(__name__)


class WarmScorer(NamedTuple):
    """A scorer that has run, and how many features of each user its model takes."""

    scorer: Scorer
    num_features: int


def warm_scorer(options: RankerOptions, costs: CostBook) -> WarmScorer:
    """The scorer, run before the replica joins its group, so that no request pays for its first call.

    Raises BundleError on a bundle that must not be loaded, ValueError on a device that is not there.
    """
    model = load_baseline(options.bundle, device=options.device)
    scorer = Scorer(model, options.device, num_threads=options.num_threads)
    warm_up(
        scorer,
        costs=costs,
        clock_ns=time.monotonic_ns,
        num_features=model.config.num_features,
        call_size=options.plan.call_size,
    )
    cost = costs.of(scorer.version)
    _log.info(
        "model ready",
        version=scorer.version,
        call_us=round(cost.predict_ns(options.plan.call_size) / 1e3),
        call_size=options.plan.call_size,
    )
    return WarmScorer(scorer, model.config.num_features)
