"""Windows merged until they say something: a p99 of few samples is noise, and histograms merge exactly. Pure.

Without it a cell of little traffic would hold for ever, as no window of its own is ever enough.
"""

from schemas.histogram import ExponentialHistogram
from schemas.records import HistogramFields, WindowRef
from streams.control.facts import MAX_COUNT, histogram_of
from streams.control.state import Evidence, LatencyFacts

LATENCY_QUANTILE = 0.99
# Older than this many windows it says nothing of today: 21 minutes at ten seconds each. A cell with fewer requests
# than ``min_samples`` in that time stays where it is.
MAX_WINDOWS = 128
# p99 goes through a power of two, which two C libraries may round apart in the last bit; to the nanosecond they agree.
P99_DECIMALS = 6


def gathered(evidence: Evidence, latency: LatencyFacts) -> Evidence:
    """Evidence with one more window; without what came before where that is too old, or too much for one histogram."""
    if latency.latency.count == 0 and latency.offered == 0:
        return evidence
    alone = Evidence(
        windows=(
            WindowRef(kind="latency", source_partition=latency.source_partition, window_index=latency.window_index),
        ),
        latency=latency.latency,
        offered=latency.offered,
        dropped=latency.dropped,
    )
    if not evidence.windows or latency.window_index - evidence.windows[0].window_index >= MAX_WINDOWS:
        return alone
    merged = _histogram(evidence)
    try:
        merged.add(_histogram(alone))
    except ValueError:
        return alone
    return Evidence(
        windows=(*evidence.windows, *alone.windows),
        latency=HistogramFields(**merged.to_fields()),
        offered=min(MAX_COUNT, evidence.offered + latency.offered),
        dropped=min(MAX_COUNT, evidence.dropped + latency.dropped),
    )


def num_samples(evidence: Evidence) -> int:
    """Latencies in the evidence."""
    return evidence.latency.count if evidence.latency is not None else 0


def p99_ms(evidence: Evidence) -> float | None:
    """p99 of the evidence in milliseconds; None where it has no sample."""
    quantile = _histogram(evidence).quantile(LATENCY_QUANTILE)
    return None if quantile is None else round(quantile, P99_DECIMALS)


def shed_share(evidence: Evidence) -> float:
    """What was dropped of the extras offered, 0 where none were."""
    return evidence.dropped / evidence.offered if evidence.offered else 0.0


def _histogram(evidence: Evidence) -> ExponentialHistogram:
    return histogram_of(evidence.latency) if evidence.latency is not None else ExponentialHistogram()
