"""The main result in one sentence and three figures. Pure."""

from typing import Final

from ops.report.gains import effect_of, whole_cells
from ops.report.model import Certainty, Figure, Headline, Idle, Latency, PhaseCounts, Preemptions, SegmentGains
from ops.report.words import DASH, and_list, figure, hours, milliseconds, percent, signed, signed_percent
from schemas.records import Effect
from schemas.records.uplift import Contrast

# What is told, the joint effect first; of an effect that few arms tell, that of one lever over all arms stands in.
_SUBJECTS: Final[dict[Contrast, tuple[str, str]]] = {
    "both": ("borrowed capacity", "both levers against neither"),
    "rma": ("more candidates (RMA)", "RMA against none of it"),
    "sbm": ("the stronger model (SBM)", "SBM against none of it"),
}


def headline(
    gains: list[SegmentGains],
    *,
    idle: Idle | None,
    preemptions: Preemptions | None,
    latency: list[Latency],
    phases: list[PhaseCounts],
) -> Headline:
    """What a person reads in ten seconds."""
    sentence, certainty = _sentence(gains)
    return Headline(
        sentence=sentence,
        certainty=certainty,
        figures=[_gain(gains), _idle(idle), _preemptions(preemptions, latency, phases)],
    )


def certainty_of(effect: Effect) -> Certainty:
    """Whether the whole always-valid interval lies on one side of nothing."""
    if effect.lower is not None and effect.lower > 0.0:
        return "gain"
    return "loss" if effect.upper is not None and effect.upper < 0.0 else "open"


def relative(effect: Effect, value: float | None) -> float | None:
    """A difference as a share of the mean of those it is compared with, where that is above nothing."""
    mean = effect.mean_control
    return None if value is None or mean is None or mean <= 0.0 else value / mean


def _main(gains: list[SegmentGains]) -> tuple[Contrast, list[tuple[SegmentGains, Effect]]]:
    """The first contrast that has bounds in any whole cell, and the cells in which it has them."""
    for contrast in _SUBJECTS:
        found = [(row, effect_of(row, contrast, "value")) for row in whole_cells(gains)]
        known = [(row, effect) for row, effect in found if effect is not None]
        if known:
            return contrast, known
    return "both", []


def _sentence(gains: list[SegmentGains]) -> tuple[str, Certainty]:
    contrast, main = _main(gains)
    subject, _ = _SUBJECTS[contrast]
    if not main:
        return f"What borrowed capacity earned is not known yet{_why(gains)}.", "open"
    if len(main) > 1:
        return _of_many(subject, main)
    row, effect = main[0]
    over = f"in {row.cell}, over {hours(row.hours)} and {row.num_requests:,} requests"
    certainty = certainty_of(effect)
    if row.is_aa:
        word = "shows no difference, as it should" if certainty == "open" else "shows a difference where there is none"
        return f"An A/A test {word}: {_span(effect)}, {over}.", certainty
    if certainty == "open":
        return (
            f"Whether {subject} earned anything is not certain yet: {_span(effect)} value a request, {over}.",
            certainty,
        )
    size, word = relative(effect, effect.effect), "more" if certainty == "gain" else "less"
    amount = percent(abs(size)) if size is not None else figure(abs(effect.effect or 0.0))
    return f"With {subject} a request earned {amount} {word} value, {over}.", certainty


def _why(gains: list[SegmentGains]) -> str:
    """How few there are to compare, where that is the reason."""
    rows = whole_cells(gains)
    seen = [effect for row in rows for effect in row.effects if (effect.contrast, effect.measure) == ("both", "value")]
    if len(rows) != 1 or len(seen) != 1:
        return ""
    (effect,) = seen
    return f": {effect.num_control:,} requests without it are too few to compare {effect.num_treated:,} with"


def _of_many(subject: str, main: list[tuple[SegmentGains, Effect]]) -> tuple[str, Certainty]:
    sides = {side: [row.cell for row, effect in main if certainty_of(effect) == side] for side in ("gain", "loss")}
    num_open = len(main) - len(sides["gain"]) - len(sides["loss"])
    parts = []
    if sides["gain"]:
        parts.append(f"earned value for certain in {len(sides['gain'])} of {len(main)} cells")
    if sides["loss"]:
        parts.append(f"lost value for certain in {and_list(sides['loss'])}")
    if num_open:
        parts.append(f"is not certain yet in {num_open}")
    certainty: Certainty = "loss" if sides["loss"] else "gain" if sides["gain"] else "open"
    return f"{subject[0].upper()}{subject[1:]} {'; it '.join(parts)}.", certainty


def _span(effect: Effect) -> str:
    bounds = [relative(effect, each) for each in (effect.effect, effect.lower, effect.upper)]
    if None in bounds:
        return f"{signed(effect.effect)} ({signed(effect.lower)} to {signed(effect.upper)})"
    return f"{signed_percent(bounds[0])} ({signed_percent(bounds[1])} to {signed_percent(bounds[2])})"


def _gain(gains: list[SegmentGains]) -> Figure:
    contrast, main = _main(gains)
    label = f"value a request, {_SUBJECTS[contrast][1]}"
    if not main:
        return Figure(label=label, value=DASH, detail="no effect with bounds yet", is_known=False)
    weights = [row.num_requests for row, _ in main]
    sizes = [relative(effect, effect.effect) for _, effect in main]
    if len(main) == 1:
        _, effect = main[0]
        bounds = [relative(effect, each) for each in (effect.lower, effect.upper)]
        if sizes[0] is None:
            detail = f"95 % sure: {signed(effect.lower)} to {signed(effect.upper)}, at every look"
            return Figure(label=label, value=signed(effect.effect), detail=detail, is_known=True)
        detail = f"95 % sure: {signed_percent(bounds[0])} to {signed_percent(bounds[1])}, at every look"
        return Figure(label=label, value=signed_percent(sizes[0]), detail=detail, is_known=True)
    told = [(size, weight) for size, weight in zip(sizes, weights, strict=True) if size is not None]
    if not sum(weight for _, weight in told):
        return Figure(label=label, value=DASH, detail="nothing to compare with", is_known=False)
    mean = sum(size * weight for size, weight in told) / sum(weight for _, weight in told)
    low, high = min(size for size, _ in told), max(size for size, _ in told)
    detail = f"mean of {len(told)} cells by requests: {signed_percent(low)} to {signed_percent(high)}"
    return Figure(label=label, value=signed_percent(mean), detail=detail, is_known=True)


def _idle(idle: Idle | None) -> Figure:
    label = "of idle capacity put to work"
    if idle is None or idle.total.used_share is None:
        return Figure(label=label, value=DASH, detail="no idle capacity was told of", is_known=False)
    total = idle.total
    detail = f"{percent(total.usable_share)} of {figure(total.idle_unit_h)} idle unit-hours were usable"
    return Figure(label=label, value=percent(total.used_share), detail=detail, is_known=True)


def _preemptions(preemptions: Preemptions | None, latency: list[Latency], phases: list[PhaseCounts]) -> Figure:
    label = "preemptions an hour"
    if preemptions is None:
        return Figure(label=label, value=DASH, detail="no capacity window in the range", is_known=False)
    p99 = {row.phase: row.p99_ms for row in latency if row.group == "with"}
    during = next((row for row in phases if row.phase == "during"), None)
    if not preemptions.num_reclaims + preemptions.num_hosts_silent:
        detail = "nothing was taken back"
    elif during is not None and "during" in p99 and "before" in p99:
        late = "no base answer late" if not during.num_base_late else f"{during.num_base_late:,} base answers late"
        detail = f"p99 {milliseconds(p99['before'])} before, {milliseconds(p99['during'])} during, with {late}"
    else:
        detail = f"{figure(preemptions.units_taken)} units taken back"
    return Figure(label=label, value=figure(preemptions.per_hour), detail=detail, is_known=True)
