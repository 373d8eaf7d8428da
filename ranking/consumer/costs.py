"""What scoring costs, learned online.

    t(n) = a + b n            predicted time of one call with n candidates: a fixed part and a part per candidate
    e(m) = c + d m            predicted time of encoding m users together, likewise

Each observed call (n, t) moves both parts by normalised least mean squares (Widrow and Hoff 1960; Haykin, "Adaptive
Filter Theory", ch. 6), after its time was pulled towards what was expected of it (as in robust exponential smoothing:
Gelper, Fried and Croux, "Robust forecasting with exponential and Holt-Winters smoothing", 2010):

    x  = (1, n / N0),   w = (a, b N0)              N0 = a typical n, so that both parts learn alike
    t' = min(max(t, t(n) / K), K t(n))             K = CLIP
    w <- max(0, w + ALPHA (t' - t(n)) x / (x . x))

The prediction for n thus goes ALPHA of the way to t' (less where a part is held at 0), and up by at most ALPHA (K - 1)
of itself, however long the process was stopped in that call.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple, Self

ALPHA = 0.1
CLIP = 2.0
# What is left of a prediction that kept everything from running, each time: against one call that may turn out too slow
# stand ten batches that were dropped whole.
RELAX = 0.99
TYPICAL_CANDIDATES = 256.0
TYPICAL_USERS = 16.0
MAX_VERSIONS = 4
# A work unit, one candidate scored by the baseline model in full calls, on a slow core.
UNIT_NS = 4_000.0
_LEAST_USERS_NS = 1_000.0


@dataclass(frozen=True, kw_only=True)
class CostPrior:
    """What is believed before the first call; no prediction of a scoring call falls below ``floor_ns``."""

    fixed_ns: float = 500_000.0
    per_candidate_ns: float = UNIT_NS
    floor_ns: float = 20_000.0
    per_user_ns: float = 0.0

    def __post_init__(self) -> None:
        if min(self.fixed_ns, self.per_candidate_ns, self.per_user_ns) < 0.0 or self.floor_ns <= 0.0:
            raise ValueError(f"costs must not be negative, and the floor positive: {self}")

    @classmethod
    def of_units(cls, *, request_units: float, candidate_units: float) -> Self:
        """The prior of a model that says its predicted cost in work units."""
        return cls(per_candidate_ns=UNIT_NS * candidate_units, per_user_ns=UNIT_NS * request_units)


class Rates(NamedTuple):
    """What a plan reckons with: time per candidate in full calls, and per request for its user."""

    candidate_ns: float
    request_ns: float = 0.0

    def work_ns(self, num_candidates: int) -> float:
        """Time of one request with so many candidates."""
        return self.request_ns + self.candidate_ns * num_candidates


class Line:
    """A time that is a fixed part and a part per piece; the part that is learned."""

    def __init__(self, *, fixed_ns: float, per_piece_ns: float, floor_ns: float, typical: float) -> None:
        self._fixed_ns = fixed_ns
        self._per_piece_ns = per_piece_ns
        self._floor_ns = floor_ns
        self._typical = typical

    def predict_ns(self, num_pieces: int) -> float:
        """Time of one call with that many pieces."""
        return max(self._floor_ns, self._fixed_ns + self._per_piece_ns * num_pieces)

    def observe(self, num_pieces: int, elapsed_ns: int) -> None:
        """Learn from one call; one without pieces teaches nothing."""
        if num_pieces <= 0:
            return
        expected_ns = self.predict_ns(num_pieces)
        clipped_ns = min(max(float(elapsed_ns), expected_ns / CLIP), expected_ns * CLIP)
        x = num_pieces / self._typical
        step_ns = ALPHA * (clipped_ns - expected_ns) / (1.0 + x * x)
        self._fixed_ns = max(0.0, self._fixed_ns + step_ns)
        self._per_piece_ns = max(0.0, self._per_piece_ns + step_ns * x / self._typical)

    def relax(self) -> None:
        """Expect a little less."""
        self._fixed_ns *= RELAX
        self._per_piece_ns *= RELAX


class CostModel:
    """Predicted times of one model version: of a scoring call, and of encoding users for it."""

    def __init__(self, prior: CostPrior) -> None:
        self._call = Line(
            fixed_ns=prior.fixed_ns,
            per_piece_ns=prior.per_candidate_ns,
            floor_ns=prior.floor_ns,
            typical=TYPICAL_CANDIDATES,
        )
        # Learned upwards by shares of itself, so not from nothing.
        self._users = Line(
            fixed_ns=0.0, per_piece_ns=prior.per_user_ns, floor_ns=_LEAST_USERS_NS, typical=TYPICAL_USERS
        )

    def predict_ns(self, num_candidates: int) -> float:
        """Time of one scoring call with that many candidates."""
        return self._call.predict_ns(num_candidates)

    def encode_ns(self, num_users: int) -> float:
        """Time of encoding that many users together."""
        return self._users.predict_ns(num_users)

    def rates(self, call_size: int) -> Rates:
        """What work takes where candidates are scored in full calls of ``call_size``, and users encoded in groups."""
        num_users = round(TYPICAL_USERS)
        return Rates(self.predict_ns(call_size) / call_size, self.encode_ns(num_users) / num_users)

    def observe(self, num_candidates: int, elapsed_ns: int) -> None:
        """Learn from one scoring call; one without candidates teaches nothing."""
        self._call.observe(num_candidates, elapsed_ns)

    def relax(self) -> None:
        """Expect a little less of everything: nothing ran for fear of its cost, and so nothing was learned."""
        self._call.relax()
        self._users.relax()

    def observe_encoding(self, num_users: int, elapsed_ns: int) -> None:
        """Learn from one group of users that was encoded."""
        self._users.observe(num_users, elapsed_ns)


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
