"""Effects of segments drawn towards the whole: what is known of a small or new segment is mostly what is known of all.

Segments' true effects are taken for draws around a common one, of variance A; with e_i of variance v_i

    A  by the method of moments (DerSimonian and Laird, "Meta-analysis in clinical trials", 1986), at least
       (least_spread x mean)^2, as few segments cannot tell whether they are alike
    m  = mean of the e_i, weighted by 1 / (A + v_i)
    shrunk: (A e_i + v_i m) / (A + v_i), of variance A v_i / (A + v_i) + (v_i / (A + v_i))^2 var(m)

(empirical Bayes: Efron and Morris, JASA 70, 1975). A segment of which nothing is known stands at m with variance A +
var(m). For steering only: a shrunk estimate is biased on purpose, and claims are made by the plain ones.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """An effect and its variance."""

    effect: float
    variance: float

    @property
    def standard_error(self) -> float:
        return math.sqrt(self.variance)


def shrunk(
    estimates: Mapping[str, Estimate | None], *, parent: Estimate | None, least_spread: float = 0.0
) -> dict[str, Estimate]:
    """An estimate for each segment, in the order given; of a segment without one (None) what is known of the others.

    ``parent`` is the effect of the whole, which stands for the common one where fewer than two segments have any.
    Nothing is returned where nothing is known at all.
    """
    known = {name: found for name, found in estimates.items() if found is not None and found.variance > 0.0}
    if len(known) < 2:
        if parent is None:
            return {name: found for name, found in estimates.items() if found is not None}
        return {name: found or parent for name, found in estimates.items()}
    between = _between(known, least_spread=least_spread)
    weights = {name: 1.0 / (between + found.variance) for name, found in known.items()}
    total = math.fsum(weights.values())
    common = math.fsum(weights[name] * found.effect for name, found in known.items()) / total
    common_variance = 1.0 / total
    made = {}
    for name in estimates:
        found = known.get(name)
        if found is None:
            made[name] = Estimate(effect=common, variance=between + common_variance)
            continue
        drawn = found.variance / (between + found.variance)
        made[name] = Estimate(
            effect=(1.0 - drawn) * found.effect + drawn * common,
            variance=(1.0 - drawn) * found.variance + drawn * drawn * common_variance,
        )
    return made


def _between(known: Mapping[str, Estimate], *, least_spread: float) -> float:
    """Variance of the true effects between segments, by the method of moments."""
    weights = [1.0 / found.variance for found in known.values()]
    effects = [found.effect for found in known.values()]
    total = math.fsum(weights)
    mean = math.fsum(weight * effect for weight, effect in zip(weights, effects, strict=True)) / total
    spread = math.fsum(weight * (effect - mean) ** 2 for weight, effect in zip(weights, effects, strict=True))
    room = total - math.fsum(weight * weight for weight in weights) / total
    least = (least_spread * mean) ** 2
    return max(least, (spread - (len(known) - 1)) / room) if room > 0.0 else least
