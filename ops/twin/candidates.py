"""How many extra candidates a target means, where not every request offers as many. Pure."""

import numpy as np

from ops.simulator.scenario_model import Requests

_NUM_QUANTILES = 257


class Candidates:
    """Extra candidates that a target means for an average request, which may offer fewer than the target asks for."""

    def __init__(self, requests: Requests, *, base_candidates: int) -> None:
        self._base = base_candidates
        steps = np.linspace(0.0, 1.0, _NUM_QUANTILES)
        quantiles = requests.pairs or (float(requests.num_candidates),)
        self._offered = np.interp(steps, np.linspace(0.0, 1.0, len(quantiles)), np.array(quantiles))
        self._known: dict[int, float] = {}

    def mean_extras(self, candidate_target: int) -> float:
        """Mean number of extras per request under a target."""
        known = self._known.get(candidate_target)
        if known is None:
            extras = np.maximum(np.minimum(self._offered, candidate_target) - self._base, 0.0)
            known = self._known[candidate_target] = float(extras.mean())
        return known
