"""Effects of each lever on each measure, from the sums of one segment. Pure.

    rma, sbm                       arms with the lever           against arms without it
    rma_alone, sbm_alone, both     that arm                      against the arm with neither
    interaction                    both - rma - sbm + none
    upgrade, depth_half, depth     drawn yes, half, full         against no, none, none (by 1 / propensity)

The permanent holdout is in no contrast: it is what a year is compared with, and too small for a day.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, get_args

import msgspec
import numpy as np

from schemas.records import Effect
from schemas.records.fields import Lever
from schemas.records.measurement import MEASURES
from schemas.records.uplift import Contrast, Measure
from streams.control.uplift.layout import Faded, Sums, column
from streams.control.uplift.statistics.adjusted import adjusted_difference
from streams.control.uplift.statistics.contrasts import interaction, mean_difference
from streams.control.uplift.statistics.delivered import delivered_effect
from streams.control.uplift.statistics.groups import GroupSums, together
from streams.control.uplift.statistics.intervals import Interval

MICRO: Final = 1_000_000
CONTRASTS: Final[tuple[Contrast, ...]] = get_args(Contrast)
MEASURE_NAMES: Final[tuple[Measure, ...]] = get_args(Measure)
# What steers: which segments, how deep, and how much of each lever.
STEERING_CONTRASTS: Final[tuple[Contrast, ...]] = ("rma", "sbm", "upgrade", "depth_half", "depth")
_NUM_COUNTS: Final = 3

_SIDES: Final[Mapping[Contrast, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "rma": (("arm rma", "arm both"), ("arm none", "arm sbm")),
    "sbm": (("arm sbm", "arm both"), ("arm none", "arm rma")),
    "rma_alone": (("arm rma",), ("arm none",)),
    "sbm_alone": (("arm sbm",), ("arm none",)),
    "both": (("arm both",), ("arm none",)),
    "upgrade": (("upgrade yes",), ("upgrade no",)),
    "depth_half": (("depth half",), ("depth none",)),
    "depth": (("depth full",), ("depth none",)),
}

# The one lever that a contrast is about; of ``both`` nobody can say which was served.
_LEVERS: Final[Mapping[Contrast, Lever]] = {
    "rma": "rma",
    "rma_alone": "rma",
    "depth_half": "rma",
    "depth": "rma",
    "sbm": "sbm",
    "sbm_alone": "sbm",
    "upgrade": "sbm",
}
# Arms are of users, so that these had a past; what is drawn anew for each request has none.
_OF_ARMS: Final[tuple[Contrast, ...]] = ("rma", "sbm", "rma_alone", "sbm_alone", "both")


class Groups:
    """Groups of requests in sums [B, K] of one segment, decayed or not, measure by measure."""

    def __init__(self, sums_BK: Sums | Faded) -> None:
        # Column by column: each figure of a group is then one stretch of memory.
        self._sums_BK = np.asfortranarray(sums_BK, dtype=np.float64)
        self._made: dict[tuple[str, Measure], GroupSums] = {}
        self._served: dict[Contrast, tuple[GroupSums, GroupSums]] = {}

    def group(self, name: str, measure: Measure) -> GroupSums:
        """One group, as in ``arm both`` or ``upgrade yes``; values in units of currency."""
        made = self._made.get((name, measure))
        if made is None:
            made = self._made[name, measure] = self._group(name, measure)
        return made

    def _group(self, name: str, measure: Measure) -> GroupSums:
        place = MEASURE_NAMES.index(measure)
        total_B = self._of(name, MEASURES[place])
        num_B = self._of(name, "num_requests")
        if name.startswith("arm "):
            return GroupSums(
                weight_B=num_B,
                total_B=total_B if place < _NUM_COUNTS else total_B / MICRO,
                num_requests=round(float(num_B.sum())),
                weight_squared=float(num_B.sum()),
            )
        weight_B = self._of(name, "weight_micro") / MICRO
        # Requests of one bucket that drew the same have nearly the same weight.
        squares_B = np.divide(weight_B * weight_B, num_B, out=np.zeros_like(weight_B), where=num_B > 0.0)
        return GroupSums(
            weight_B=weight_B,
            total_B=total_B / MICRO,
            num_requests=round(float(num_B.sum())),
            weight_squared=float(squares_B.sum()),
        )

    def served(self, name: str, lever: Lever) -> GroupSums:
        """The same requests with what was served of a lever for a measure: 1 where all that was assigned was ranked."""
        group = self.group(name, "views")
        kind = "upgrades" if lever == "sbm" else "extras"
        ranked_B, assigned_B = self._of(name, f"num_{kind}_ranked"), self._of(name, f"num_{kind}_assigned")
        per_B = self._of(name, "num_requests") if lever == "sbm" else assigned_B
        share_B = np.divide(ranked_B, per_B, out=np.zeros_like(ranked_B), where=per_B > 0.0)
        return dataclasses.replace(group, total_B=group.weight_B * share_B)

    def sides(self, contrast: Contrast, measure: Measure) -> tuple[GroupSums, GroupSums]:
        """Treated and control group of a contrast other than ``interaction``."""
        treated, control = (together(*(self.group(name, measure) for name in names)) for names in _SIDES[contrast])
        return treated, control

    def num_requests(self, names: Iterable[str]) -> int:
        """Requests of groups that share none."""
        return round(sum(float(self._of(name, "num_requests").sum()) for name in names))

    def effect(self, contrast: Contrast, measure: Measure, past: "Groups | None" = None) -> Effect:
        """One contrast of one measure, narrowed by what the same users did in an A/A ``past`` where that helps."""
        if contrast == "interaction":
            both, one, other, none = (self.group(f"arm {arm}", measure) for arm in ("both", "rma", "sbm", "none"))
            found = interaction(both, one, other, none)
            num_treated = both.num_requests + one.num_requests + other.num_requests
            return _effect(contrast, measure, found, num_treated=num_treated, control=none)
        treated, control = self.sides(contrast, measure)
        if past is not None and contrast in _OF_ARMS:
            found, _ = adjusted_difference(treated, control, *past.sides(contrast, measure))
        else:
            found = mean_difference(treated, control)
        effect = _effect(contrast, measure, found, num_treated=treated.num_requests, control=control)
        lever = _LEVERS.get(contrast)
        if found is None or lever is None:
            return effect
        if contrast not in self._served:
            self._served[contrast] = self._sides_served(contrast, lever)
        served = delivered_effect(treated, control, *self._served[contrast])
        if served is None:
            return effect
        return msgspec.structs.replace(
            effect,
            delivered=_finite(served.effect),
            delivered_lower=_finite(served.lower),
            delivered_upper=_finite(served.upper),
        )

    def _sides_served(self, contrast: Contrast, lever: Lever) -> tuple[GroupSums, GroupSums]:
        treated, control = (together(*(self.served(name, lever) for name in names)) for names in _SIDES[contrast])
        return treated, control

    def _of(self, name: str, figure: str) -> Faded:
        return self._sums_BK[:, column(name, figure)]


def effects_of(
    sums_BK: Sums | Faded, contrasts: Sequence[Contrast] = CONTRASTS, *, past_BK: Sums | None = None
) -> Iterator[Effect]:
    """Effects of all contrasts and measures for which there is any request on both sides."""
    groups = Groups(sums_BK)
    past = Groups(past_BK) if past_BK is not None else None
    for contrast in contrasts:
        for measure in MEASURE_NAMES:
            effect = groups.effect(contrast, measure, past)
            if effect.num_treated and effect.num_control:
                yield effect


def _effect(
    contrast: Contrast, measure: Measure, found: Interval | None, *, num_treated: int, control: GroupSums
) -> Effect:
    return Effect(
        contrast=contrast,
        measure=measure,
        num_treated=num_treated,
        num_control=control.num_requests,
        mean_control=_finite(control.mean),
        effect=_finite(found.effect) if found is not None else None,
        lower=_finite(found.lower) if found is not None else None,
        upper=_finite(found.upper) if found is not None else None,
        fixed_lower=_finite(found.fixed_lower) if found is not None else None,
        fixed_upper=_finite(found.fixed_upper) if found is not None else None,
        effective_sample_size=found.effective_sample_size if found is not None else 0.0,
    )


def _finite(figure: float) -> float | None:
    return figure if math.isfinite(figure) else None
