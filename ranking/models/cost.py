"""What a model's work costs, in work units, before anybody has measured it where it runs."""

from collections.abc import Mapping
from typing import Annotated

import msgspec

_Units = Annotated[float, msgspec.Meta(ge=0.0, le=1e12)]
_Microseconds = Annotated[float, msgspec.Meta(gt=0.0, le=1e12)]
_NumCandidates = Annotated[int, msgspec.Meta(ge=1, le=1 << 24)]


class ModelCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Predicted cost of one request with n candidates: request_units + candidate_units * n.

    A work unit is one candidate scored by the baseline model in full calls.
    """

    request_units: _Units
    candidate_units: Annotated[float, msgspec.Meta(gt=0.0, le=1e12)]

    def units(self, num_candidates: int) -> float:
        """Work units of one request with that many candidates."""
        return self.request_units + self.candidate_units * num_candidates


class LatencyCurve(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Measured time of one request, users encoded and all candidates scored in one call, by number of candidates."""

    history_length: Annotated[int, msgspec.Meta(ge=0, le=1 << 24)]
    microseconds: Annotated[dict[_NumCandidates, _Microseconds], msgspec.Meta(min_length=1, max_length=64)]


BASELINE_COST = ModelCost(0.0, 1.0)


def fitted_cost(curve: Mapping[int, float], *, unit_us: float) -> ModelCost:
    """The cost whose line comes closest to a latency curve, where a work unit takes ``unit_us`` microseconds.

    Least squares of the relative error, sum ((a + b n) / t(n) - 1)^2: a curve spans three decades, and every request
    counts alike. Where the best line begins below zero or falls, the nearest one that does neither.
    Raises: ValueError on fewer than two sizes.
    """
    if len(curve) < 2:
        raise ValueError(f"a line needs two sizes, got {len(curve)}")
    # Normal equations of the columns 1 / t and n / t against 1.
    ones = sum(1.0 / time_us**2 for time_us in curve.values())
    mixed = sum(size / time_us**2 for size, time_us in curve.items())
    sizes = sum(size**2 / time_us**2 for size, time_us in curve.items())
    fixed = sum(1.0 / time_us for time_us in curve.values())
    slope = sum(size / time_us for size, time_us in curve.items())
    determinant = ones * sizes - mixed * mixed
    request_us = (fixed * sizes - slope * mixed) / determinant
    candidate_us = (slope * ones - fixed * mixed) / determinant
    if request_us < 0.0:
        request_us, candidate_us = 0.0, slope / sizes
    if candidate_us <= 0.0:
        # The largest size alone still says what a candidate costs at most.
        candidate_us = min(time_us / size for size, time_us in curve.items())
    return ModelCost(round(request_us / unit_us, 3), round(candidate_us / unit_us, 6))
