"""Which of several reports of the same figure lie beyond all sense. Pure.

Each report x (a logarithm, so that factors count the same in both directions) is compared with the median m and the
median absolute deviation d of the others:

    off  <=>  |x - m| > min(log FAR, max(log NEAR, Z x 1.4826 x d))

This is Hampel's identifier with each report left out of its own ruler (L. Davies, U. Gather, "The identification of
multiple outliers", JASA 88, 1993); Z is that of B. Iglewicz, D. Hoaglin, "How to detect and handle outliers", 1993.
1.4826 d estimates the standard deviation of a normal distribution. NEAR keeps a fleet of two kinds, four times apart,
as sound as one of a kind, and FAR a lie of a hundred times as wrong in a fleet of two kinds as in one of a kind: told
by the slow ones it is still 25 times what the fast ones say.
"""

import math
from collections.abc import Collection, Mapping, Sequence

# With fewer than so many a median of the others is hardly more than one more opinion.
MIN_REPORTS = 5
NEAR = 8.0
FAR = 24.0
Z = 3.5
_NORMAL = 1.4826


def outliers(logs: Mapping[str, float], *, distrusted: Collection[str] = ()) -> dict[str, float]:
    """Reports that are off, with their distance from the others' median as a logarithm.

    ``distrusted`` are no ruler for others, unless hardly anyone else is left. None are off among fewer than
    MIN_REPORTS, nor where half of them or more would be: then nobody can say who is right.
    """
    if len(logs) < MIN_REPORTS or max(logs.values()) - min(logs.values()) <= math.log(NEAR):
        return {}
    off: dict[str, float] = {}
    for source in sorted(logs):
        others = [source_log for name, source_log in logs.items() if name != source and name not in distrusted]
        if len(others) < 2:
            others = [source_log for name, source_log in logs.items() if name != source]
        middle = median(others)
        spread = Z * _NORMAL * median([abs(other - middle) for other in others])
        if abs(logs[source] - middle) > min(math.log(FAR), max(math.log(NEAR), spread)):
            off[source] = logs[source] - middle
    return off if len(off) <= minority(len(logs)) else {}


def minority(num_reports: int) -> int:
    """The most of so many reports that are fewer than half."""
    return (num_reports - 1) // 2 if num_reports > 0 else 0


def median(values: Sequence[float]) -> float:
    """Median of at least one value; between the two in the middle their mean."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2.0
