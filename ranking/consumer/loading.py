"""From a bundle to a device that is ready for its first request."""

import time
from typing import NamedTuple

from ops.telemetry.logs import get_log
from ranking.consumer.costs import CostBook, CostPrior
from ranking.consumer.options import RankerOptions
from ranking.consumer.scoring import Device
from ranking.consumer.warm_up import warm_up
from ranking.models.bundle import BundleError
from ranking.models.load import load_bundle
from ranking.models.memory import bound_memory, is_out_of_memory, release_memory
from ranking.models.protocol import EncodedUsers
from ranking.models.scorer import Scorer

_log = get_log(__name__)


class WarmDevice(NamedTuple):
    """A device whose model has run, what that cost, and how many features of each user the model takes."""

    device: Device[EncodedUsers]
    costs: CostBook
    num_features: int


def warm_device(options: RankerOptions) -> WarmDevice:
    """The model on its device, run before the replica joins its group, so that no request pays for its first call.

    Raises BundleError on a bundle that must not be loaded, ValueError on a device that is not there.
    """
    if options.is_opportunistic:
        bound_memory(options.device, options.memory_share)
    loaded = load_bundle(options.bundle, device=options.device)
    costs = CostBook(
        CostPrior.of_units(request_units=loaded.cost.request_units, candidate_units=loaded.cost.candidate_units)
    )
    scorer = Scorer(loaded.model, options.device, num_threads=options.num_threads)
    warm_up(
        scorer,
        costs=costs,
        clock_ns=time.monotonic_ns,
        num_features=loaded.num_features,
        call_size=options.plan.call_size,
    )
    cost = costs.of(scorer.version)
    _log.info(
        "model ready",
        version=scorer.version,
        call_us=round(cost.predict_ns(options.plan.call_size) / 1e3),
        call_size=options.plan.call_size,
        user_us=round(cost.rates(options.plan.call_size).request_ns / 1e3),
    )
    device = Device[EncodedUsers](
        scorer=scorer,
        fallback=_fallback(options),
        release=release_memory,
        is_out_of_memory=is_out_of_memory,
    )
    return WarmDevice(device, costs, loaded.num_features)


def _fallback(options: RankerOptions) -> Scorer | None:
    """What scores base work that the model on its device cannot; there is none where it runs on the processor anyway.

    Raises BundleError on a fallback bundle that must not be loaded.
    """
    folder = options.fallback_bundle
    if folder is None:
        if options.is_opportunistic or options.device == "cpu":
            return None
        folder = options.bundle
    try:
        return Scorer(load_bundle(folder).model, num_threads=options.num_threads)
    except BundleError as error:
        if options.fallback_bundle is not None:
            raise
        _log.warning("base work has no fallback", why=str(error))
        return None
