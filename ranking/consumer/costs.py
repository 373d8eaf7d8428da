"""What scoring costs, learned online.

    t(n) = a + b n            predicted time of one call with n candidates: a fixed part and a part per candidate

Each observed call (n, t) moves both parts by normalised least mean squares (Widrow and Hoff 1960; Haykin, "Adaptive
Filter Theory", ch. 6), after its time was pulled towards what was expected of it (as in robust exponential smoothing:
Gelper, Fried and Croux, "Robust forecasting with exponential and Holt-Winters smoothing", 2010):

    x  = (1, n / N0),   w = (a, b N0)              N0 = TYPICAL_CANDIDATES, so that both parts learn alike
    t' = min(max(t, t(n) / K), K t(n))             K = CLIP
    w <- max(0, w + ALPHA (t' - t(n)) x / (x . x))

The prediction for n thus goes ALPHA of the way to t' (less where a part is held at 0), and up by at most ALPHA (K - 1)
of itself, however long the process was stopped in that call.
"""

from collections import OrderedDict
from dataclasses import dataclass

ALPHA = 0.1
CLIP = 2.0
TYPICAL_CANDIDATES = 256.0
MAX_VERSIONS = 4


@dataclass(frozen=True, kw_only=True)
class CostPrior:
    """What is believed before the first call; no prediction falls below ``floor_ns``."""

    fixed_ns: float = 500_000.0
    per_candidate_ns: float = 4_000.0
    floor_ns: float = 20_000.0

    def __post_init__(self) -> None:
        if self.fixed_ns < 0.0 or self.per_candidate_ns < 0.0 or self.floor_ns <= 0.0:
            raise ValueError(f"costs must not be negative, and the floor positive: {self}")


class CostModel:
    """Predicted time of one scoring call of one model version."""

    def __init__(self, prior: CostPrior) -> None:
        self._floor_ns = prior.floor_ns
        self._fixed_ns = prior.fixed_ns
        self._per_candidate_ns = prior.per_candidate_ns

    def predict_ns(self, num_candidates: int) -> float:
        """Time of one call with that many candidates."""
        return max(self._floor_ns, self._fixed_ns + self._per_candidate_ns * num_candidates)

    def rate_ns(self, call_size: int) -> float:
        """Time per candidate where candidates are scored in full calls of ``call_size``."""
        return self.predict_ns(call_size) / call_size

    def observe(self, num_candidates: int, elapsed_ns: int) -> None:
        """Learn from one call; one without candidates teaches nothing."""
        if num_candidates <= 0:
            return
        expected_ns = self.predict_ns(num_candidates)
        clipped_ns = min(max(float(elapsed_ns), expected_ns / CLIP), expected_ns * CLIP)
        x = num_candidates / TYPICAL_CANDIDATES
        step_ns = ALPHA * (clipped_ns - expected_ns) / (1.0 + x * x)
        self._fixed_ns = max(0.0, self._fixed_ns + step_ns)
        self._per_candidate_ns = max(0.0, self._per_candidate_ns + step_ns * x / TYPICAL_CANDIDATES)


class CostBook:
    """The cost model of each model version; a new version starts anew from the prior."""

    def __init__(self, prior: CostPrior | None = None) -> None:
        self._prior = CostPrior() if prior is None else prior
        self._by_version: OrderedDict[str, CostModel] = OrderedDict()

    def of(self, version: str) -> CostModel:
        """The model of that version; the least recently used is forgotten beyond a few."""
        model = self._by_version.get(version)
        if model is None:
            model = self._by_version[version] = CostModel(self._prior)
            if len(self._by_version) > MAX_VERSIONS:
                self._by_version.popitem(last=False)
        else:
            self._by_version.move_to_end(version)
        return model
