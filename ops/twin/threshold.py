"""The plain rule that articles on such systems sketch, to compare with: thresholds on tail latency, and nothing else.

    p99 above the limit                                    target <- int(target * 0.9)
    p99 below 80 % of it, and anything is idle              target <- int(target * 1.1)

and the same for the coverage, in percent, on the powerful route's tail, from 10 % on. Pools are split evenly between
the levers that run on them, and upgrades go to the segments of the highest value per request. Its flaws are part of it:
``int`` holds a target below 10 for ever, nothing shrinks when only what is idle does, sheds are not looked at, and the
most valuable segments need not be those that gain.

Shape legend: S segments.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ops.twin.controllers import Word
from ops.twin.value import ValueTable
from schemas.records import (
    CandidateTarget,
    CellLimits,
    ControlWindow,
    HistogramFields,
    LatencyWindow,
    SegmentShare,
    SegmentTraffic,
)
from schemas.records.fields import Lever

NAME: Final = "threshold-rule"
_LOW_SHARE: Final = 0.8
_UP: Final = 1.1
_DOWN: Final = 0.9
_FIRST_PERCENT: Final = 10
_VALIDITY_WINDOWS: Final = 3


class ThresholdRule:
    """Steers one cell by the rule above."""

    name = NAME

    def __init__(self, table: ValueTable) -> None:
        # What a segment is worth at base, which is all that the rule looks at.
        worth = zip(table.segments, table.baseline_SW[:, 0].tolist(), strict=True)
        self._order = [name for name, _ in sorted(worth, key=lambda each: (-each[1], each[0]))]
        self._target = 0
        self._percent = _FIRST_PERCENT

    def close(self, capacity: ControlWindow, latency: ControlWindow) -> Word:
        """One step of the rule."""
        assert capacity.capacity is not None
        assert latency.latency is not None
        limits, seen = capacity.capacity.limits, latency.latency
        is_idle = any(
            pool.units_micro > sum(reason.units_micro for reason in pool.unusable) for pool in capacity.capacity.pools
        )
        target = max(self._target, limits.base_candidates)
        p99_ms = _p99_ms(seen.latency)
        target = _stepped(target, p99_ms, limits.latency_limit_ms, is_idle=is_idle)
        self._target = min(max(target, limits.base_candidates), limits.max_candidates)
        limit_ms = limits.powerful_limit_ms or limits.latency_limit_ms
        self._percent = min(100, _stepped(self._percent, _powerful_p99_ms(seen), limit_ms, is_idle=is_idle))
        coverage = min(self._percent / 100.0, limits.max_coverage)
        return Word(target=self._said(capacity, limits, seen, coverage), splits=_splits(limits))

    def _said(self, window: ControlWindow, limits: CellLimits, seen: LatencyWindow, coverage: float) -> CandidateTarget:
        window_ms = window.end_ms - window.start_ms
        return CandidateTarget(
            cell=window.cell,
            window_index=window.window_index,
            window_end_ms=window.end_ms,
            valid_until_ms=window.end_ms + _VALIDITY_WINDOWS * window_ms,
            base_candidates=limits.base_candidates,
            max_candidates=limits.max_candidates,
            candidate_target=self._target,
            extra_budget_units_s=0.0,
            coverage=coverage,
            segment_shares=self._shares(seen.segments, coverage),
            reason="threshold",
            detail="",
            manifest=[],
            latency_limit_ms=limits.latency_limit_ms,
            latency_p99_ms=None,
            request_rate_per_s=seen.num_requests * 1_000.0 / window_ms,
            controller_version=NAME,
        )

    def _shares(self, segments: list[SegmentTraffic], coverage: float) -> list[SegmentShare]:
        """All of the most valuable segment, then of the next, until the coverage is spent."""
        nums = {segment.segment: segment.num_requests for segment in segments}
        left = coverage * sum(nums.values())
        shares: list[SegmentShare] = []
        for name in self._order:
            num = nums.get(name, 0)
            share = min(1.0, left / num) if num else 0.0
            left -= share * num
            shares.append(SegmentShare(segment=name, share=share))
        return shares


def _stepped(value: int, p99_ms: float | None, limit_ms: float, *, is_idle: bool) -> int:
    if p99_ms is not None and p99_ms > limit_ms:
        return int(value * _DOWN)
    if is_idle and (p99_ms is None or p99_ms < _LOW_SHARE * limit_ms):
        return int(value * _UP)
    return value


def _splits(limits: CellLimits) -> dict[str, dict[Lever, float]]:
    """Every pool evenly between the levers that run on it; all of it to RMA where there are no terms."""
    splits: dict[str, dict[Lever, float]] = {}
    for terms in limits.levers:
        for fit in terms.fits:
            splits.setdefault(fit.accelerator, {})[terms.lever] = 1.0
    return {name: {lever: 1.0 / len(split) for lever in split} for name, split in splits.items()}


def _powerful_p99_ms(seen: LatencyWindow) -> float | None:
    for route in seen.routes:
        if (route.part, route.route) == ("router", "powerful"):
            return _p99_ms(route.latency)
    return None


def _p99_ms(fields: HistogramFields) -> float | None:
    """p99 from the packed counts; a histogram object would cost more than all the rest of the rule."""
    if fields.count == 0:
        return None
    counts: NDArray[np.int64] = np.frombuffer(fields.counts, dtype="<i8")
    rank = int(np.ceil(0.99 * fields.count)) - fields.zero_count
    bucket = fields.offset + int(np.searchsorted(np.cumsum(counts), rank))
    return float(2.0 ** ((bucket + 0.5) * 2.0**-fields.scale))
