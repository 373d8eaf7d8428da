"""Guardrails of a segment: what a lever must not cost those who meet it, and what happens where it does. Pure.

Each compares requests whose arm allows the lever with those whose arm does not, of the last cohorts. Arms of the two
levers are drawn apart, so that the other lever is met as often on both sides and is not blamed.

    latency_p99   p99 of the latency with the lever over that without it, where it is above the cell's limit as well
    failures      share of requests that failed or came late, with the lever less without it
    shed          share of the optional items that were shed, in the lever's own arm

What is compared with the limit is a lower bound of the figure, one-sided 95 % (of a quantile by the ranks that it lies
between: Conover, "Practical nonparametric statistics", 1999, section 3.2; of shares by the normal approximation): few
requests cross nothing. It is a bound at one look, since a false alarm costs some cohorts at base, and none costs more.

A lever whose guardrail is crossed is at base in the segment for HOLD_COHORTS cohorts, longer than what was seen counts;
then it is tried again. Crossed again soon, it is at base for twice as long, up to MOST_DOUBLINGS times; one that has
stayed below CLEAR_SHARE of its limit for as long as that is forgotten.

Fairness: every segment is owed at least a share of what all would have without an order (``fair_share``), in upgrades
that are served: where more of a segment's upgrades are dropped than of others, so many more are assigned.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from schemas.histogram import ExponentialHistogram
from schemas.records import ArmGuard, CellLimits, Guardrail
from schemas.records.fields import Lever
from schemas.records.measurement import ArmName
from streams.control.uplift import layout
from streams.control.uplift.guard_sums import merged
from streams.control.uplift.layout import column
from streams.control.uplift.state import ALL, NONE_YET, Crossing, MeasurementState, SegmentSums

CONFIDENCE: Final = 1.645
QUANTILE: Final = 0.99
HOLD_COHORTS: Final = 16
MOST_DOUBLINGS: Final = 5
CLEAR_SHARE: Final = 0.8
# Fewer requests say nothing of a hundredth of them, fewer items nothing of what is dropped.
MIN_REQUESTS: Final = 500
MIN_ITEMS: Final = 100
# Where nothing without the lever took any time.
MAX_RATIO: Final = 1e6
_WITH: Final[Mapping[Lever, tuple[ArmName, ...]]] = {"rma": ("rma", "both"), "sbm": ("sbm", "both")}
_WITHOUT: Final[Mapping[Lever, tuple[ArmName, ...]]] = {"rma": ("none", "sbm"), "sbm": ("none", "rma")}


@dataclass(frozen=True, kw_only=True)
class GuardrailSettings:
    """Limits of the guardrails, and the share of an equal part that every segment is owed (0: none).

    Raises ValueError for a limit that could never be crossed, or always is.
    """

    latency_ratio: float = 1.5
    failure_share: float = 0.01
    shed_share: float = 0.5
    fair_share: float = 0.0

    def __post_init__(self) -> None:
        if not 1.0 <= self.latency_ratio < math.inf:
            raise ValueError(f"latency_ratio {self.latency_ratio} must be finite and at least 1")
        for name in ("failure_share", "shed_share"):
            if not 0.0 < getattr(self, name) < 1.0:
                raise ValueError(f"{name} {getattr(self, name)} must be in (0, 1)")
        if not 0.0 <= self.fair_share <= 1.0:
            raise ValueError(f"fair_share {self.fair_share} must be in [0, 1]")


DEFAULT_GUARDRAILS: Final = GuardrailSettings()


def after_judgement(sums: SegmentSums, *, limits: CellLimits, settings: GuardrailSettings) -> SegmentSums:
    """Sums of a segment with its guardrails judged once more, where a cohort of intake has ended since."""
    cohort = sums.guards[-1].cohort if sums.guards else NONE_YET
    if cohort <= sums.judged_cohort:
        return sums
    guards = merged((arm for each in sums.guards[:-1] for arm in each.arms), segment=sums.segment)
    found = judged(sums.crossings, guards, cohort=cohort, limits=limits, settings=settings)
    return msgspec.structs.replace(sums, crossings=found.crossings, guardrails=found.guardrails, judged_cohort=cohort)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Crossings to remember, and what is said of each guardrail of which anything is known."""

    crossings: tuple[Crossing, ...]
    guardrails: tuple[Guardrail, ...]


def judged(
    crossings: Iterable[Crossing],
    guards: Sequence[ArmGuard],
    *,
    cohort: int,
    limits: CellLimits,
    settings: GuardrailSettings = DEFAULT_GUARDRAILS,
) -> Judged:
    """Guardrails of one segment after ``cohort``; ``guards`` are those of its last cohorts, one of each arm."""
    held = {(each.lever, each.name): each for each in crossings}
    kept, said = [], []
    for lever in _WITH:
        for name, limit, figure, detail in _figures(lever, guards, limits=limits, settings=settings):
            crossing = _after(held.get((lever, name)), figure, limit=limit, cohort=cohort, rail=(lever, name))
            if crossing is not None:
                kept.append(crossing)
            is_crossed = crossing is not None and cohort < crossing.until_cohort
            if figure is None and not is_crossed:
                continue
            said.append(
                Guardrail(
                    name=name,
                    lever=lever,
                    figure=figure if figure is not None else 0.0,
                    limit=limit,
                    is_crossed=is_crossed,
                    detail=_told(crossing, detail, cohort=cohort),
                )
            )
    return Judged(crossings=tuple(kept), guardrails=tuple(said))


def levers_at_base(sums: SegmentSums) -> tuple[Lever, ...]:
    """Levers that are back at base in a segment, in order of names."""
    return tuple(sorted({each.lever for each in sums.guardrails if each.is_crossed}))


def owed_floors(state: MeasurementState, *, fair_share: float) -> dict[str, float]:
    """Floors of segments, as shares of what all would have without an order, so that each is served what it is owed."""
    if fair_share <= 0.0:
        return {}
    whole = _served_share(state.of(ALL))
    return {
        name: min(1.0, fair_share * max(1.0, whole / served)) if (served := _served_share(sums)) > 0.0 else fair_share
        for name, sums in sorted(state.segments.items())
        if name != ALL
    }


def _served_share(sums: SegmentSums) -> float:
    """Share of the upgrades assigned lately that were served; 0 where none was."""
    sums_BK = layout.unpacked_faded(sums.steering)
    ranked, assigned = (
        math.fsum(float(sums_BK[:, column(f"arm {arm}", f"num_upgrades_{what}")].sum()) for arm in _WITH["sbm"])
        for what in ("ranked", "assigned")
    )
    return min(1.0, ranked / assigned) if assigned > 0.0 else 0.0


def _figures(
    lever: Lever, guards: Sequence[ArmGuard], *, limits: CellLimits, settings: GuardrailSettings
) -> list[tuple[str, float, float | None, str]]:
    """Of each guardrail of a lever: name, limit, figure (None: too little is known) and how it came about."""
    treated = [guard for guard in guards if guard.arm in _WITH[lever]]
    control = [guard for guard in guards if guard.arm in _WITHOUT[lever]]
    alone = [guard for guard in guards if guard.arm == lever]
    return [
        ("latency_p99", settings.latency_ratio, *_latency(treated, control, limit_ms=limits.latency_limit_ms)),
        ("failures", settings.failure_share, *_failures(treated, control)),
        ("shed", settings.shed_share, *_shed(alone)),
    ]


def _latency(treated: Sequence[ArmGuard], control: Sequence[ArmGuard], *, limit_ms: float) -> tuple[float | None, str]:
    slow, quick = _latencies(treated), _latencies(control)
    if min(slow.count, quick.count) < MIN_REQUESTS:
        return None, ""
    least, most = _quantile(slow, -CONFIDENCE), _quantile(quick, CONFIDENCE)
    detail = f"p99 {_quantile(slow, 0.0):.1f} ms with the lever, {_quantile(quick, 0.0):.1f} ms without"
    if least <= limit_ms:
        return 1.0, f"{detail}; the limit of the cell is {limit_ms:.1f} ms"
    return (least / most if most > 0.0 else MAX_RATIO), detail


def _latencies(guards: Sequence[ArmGuard]) -> ExponentialHistogram:
    merged = ExponentialHistogram()
    for guard in guards:
        merged.add_fields(**msgspec.structs.asdict(guard.latency))
    return merged


def _quantile(histogram: ExponentialHistogram, errors: float) -> float:
    """The quantile so many standard errors of its rank away."""
    shift = errors * math.sqrt(QUANTILE * (1.0 - QUANTILE) / histogram.count)
    found = histogram.quantile(min(1.0, QUANTILE + shift))
    assert found is not None
    return found


def _failures(treated: Sequence[ArmGuard], control: Sequence[ArmGuard]) -> tuple[float | None, str]:
    (num_with, failed_with), (num_without, failed_without) = (
        (sum(guard.num_requests for guard in guards), sum(guard.num_errors + guard.num_late for guard in guards))
        for guards in (treated, control)
    )
    if min(num_with, num_without) < MIN_REQUESTS:
        return None, ""
    share_with, share_without = failed_with / num_with, failed_without / num_without
    variance = _variance(share_with, num_with) + _variance(share_without, num_without)
    figure = share_with - share_without - CONFIDENCE * math.sqrt(variance)
    return (
        figure,
        f"{share_with:.4f} of {num_with} requests with the lever, {share_without:.4f} of {num_without} without",
    )


def _shed(alone: Sequence[ArmGuard]) -> tuple[float | None, str]:
    num_items = sum(guard.num_items for guard in alone)
    if num_items < MIN_ITEMS:
        return None, ""
    share = sum(guard.num_items_shed for guard in alone) / num_items
    return share - CONFIDENCE * math.sqrt(_variance(share, num_items)), f"{share:.4f} of {num_items} optional items"


def _variance(share: float, num: int) -> float:
    return max(0.0, share * (1.0 - share)) / num


def _after(
    crossing: Crossing | None, figure: float | None, *, limit: float, cohort: int, rail: tuple[Lever, str]
) -> Crossing | None:
    """What is remembered of a guardrail after one more look at it, by the rules above."""
    if crossing is not None and cohort < crossing.until_cohort:
        return crossing
    if figure is not None and figure > limit:
        num_times = min(MOST_DOUBLINGS + 1, crossing.num_times + 1 if crossing is not None else 1)
        hold_cohorts = HOLD_COHORTS << (num_times - 1)
        return Crossing(lever=rail[0], name=rail[1], until_cohort=cohort + hold_cohorts, num_times=num_times)
    is_clear = figure is None or figure <= CLEAR_SHARE * limit
    if crossing is None or (is_clear and cohort >= crossing.until_cohort + HOLD_COHORTS):
        return None
    return crossing


def _told(crossing: Crossing | None, detail: str, *, cohort: int) -> str:
    if crossing is None or cohort >= crossing.until_cohort:
        return detail
    held = f"at base for {crossing.until_cohort - cohort} more cohorts of intake, crossed {crossing.num_times} times"
    return f"{held}; {detail}" if detail else held
