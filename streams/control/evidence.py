"""Windows merged until they say something: a p99 of few samples is noise, and histograms merge exactly. Pure.

Without it a cell of little traffic would hold for ever, as no window of its own is ever enough.
"""

from msgspec import Struct

from schemas.histogram import ExponentialHistogram
from schemas.records import HistogramFields, WindowRef
from schemas.records.fields import Count
from streams.control.facts import MAX_COUNT, LatencyFacts, histogram_of

LATENCY_QUANTILE = 0.99
# Older than this many windows it says nothing of today: 21 minutes at ten seconds each. A cell with fewer requests
# than ``min_samples`` in that time stays where it is.
MAX_WINDOWS = 128
# p99 goes through a power of two, which two C libraries may round apart in the last bit; to the nanosecond they agree.
P99_DECIMALS = 6


class Evidence(Struct, frozen=True, kw_only=True):
    """What the latency windows since a loop last moved say, merged; ``windows`` are those that say anything.

    ``offered`` and ``dropped`` are of the loop's optional work; ``upstream`` is what callers spent before ranking.
    """

    windows: tuple[WindowRef, ...] = ()
    latency: HistogramFields | None = None
    offered: Count = 0
    dropped: Count = 0
    upstream: HistogramFields | None = None


def of_requests(latency: LatencyFacts) -> Evidence:
    """What one window says to the candidate loop."""
    return Evidence(
        windows=(_ref(latency),),
        latency=latency.latency,
        offered=latency.offered,
        dropped=latency.dropped,
        upstream=latency.upstream,
    )


def of_powerful(latency: LatencyFacts) -> Evidence:
    """What one window says to the coverage loop."""
    powerful = latency.powerful
    return Evidence(
        windows=(_ref(latency),), latency=powerful.latency, offered=powerful.offered, dropped=powerful.dropped
    )


def gathered(evidence: Evidence, seen: Evidence) -> Evidence:
    """Evidence with one more window; without what came before where that is too old, or too much for one histogram."""
    if num_samples(seen) == 0 and seen.offered == 0 and num_upstream_samples(seen) == 0:
        return evidence
    (newest,) = seen.windows
    if not evidence.windows or newest.window_index - evidence.windows[0].window_index >= MAX_WINDOWS:
        return seen
    try:
        latency = _merged(evidence.latency, seen.latency)
        upstream = _merged(evidence.upstream, seen.upstream)
    except ValueError:
        return seen
    return Evidence(
        windows=(*evidence.windows, newest),
        latency=latency,
        offered=min(MAX_COUNT, evidence.offered + seen.offered),
        dropped=min(MAX_COUNT, evidence.dropped + seen.dropped),
        upstream=upstream,
    )


def num_samples(evidence: Evidence) -> int:
    """Latencies in the evidence."""
    return evidence.latency.count if evidence.latency is not None else 0


def num_upstream_samples(evidence: Evidence) -> int:
    """Upstream times in the evidence."""
    return evidence.upstream.count if evidence.upstream is not None else 0


def p99_ms(evidence: Evidence) -> float | None:
    """p99 of the evidence in milliseconds; None where it has no sample."""
    return _p99_ms(evidence.latency)


def upstream_p99_ms(evidence: Evidence) -> float | None:
    """p99 of what callers spent before ranking, in milliseconds; None where no caller said it."""
    return _p99_ms(evidence.upstream)


def shed_share(evidence: Evidence) -> float:
    """What was dropped of the optional work offered, 0 where none was."""
    return evidence.dropped / evidence.offered if evidence.offered else 0.0


def _ref(latency: LatencyFacts) -> WindowRef:
    return WindowRef(kind="latency", source_partition=latency.source_partition, window_index=latency.window_index)


def _p99_ms(packed: HistogramFields | None) -> float | None:
    quantile = _histogram(packed).quantile(LATENCY_QUANTILE)
    return None if quantile is None else round(quantile, P99_DECIMALS)


def _merged(one: HistogramFields | None, other: HistogramFields | None) -> HistogramFields | None:
    """Both histograms in one; raises ValueError where their totals are too much for one."""
    if one is None or other is None:
        return one if other is None else other
    merged = histogram_of(one)
    merged.add(histogram_of(other))
    return HistogramFields(**merged.to_fields())


def _histogram(packed: HistogramFields | None) -> ExponentialHistogram:
    return histogram_of(packed) if packed is not None else ExponentialHistogram()
