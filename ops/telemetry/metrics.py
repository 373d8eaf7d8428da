"""Metrics by declared name: a part asks for one by its name and kind and cannot invent another.

The declarations themselves stand in `ops.telemetry.declared`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

Kind = Literal["counter", "gauge", "histogram"]

# From half a millisecond, one hop between processes, to the ten seconds of a window.
LATENCY_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its name, kind, meaning and labels. `buckets` are a histogram's upper bounds.

    Raises:
        ValueError: the declaration breaks the naming rules of Prometheus.
    """

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.name.startswith("intertidal_"):
            raise ValueError(f"metric {self.name}: the name must start with intertidal_")
        if (self.kind == "counter") != self.name.endswith("_total"):
            raise ValueError(f"metric {self.name}: counters, and only counters, end in _total")
        if (self.kind == "histogram") != bool(self.buckets):
            raise ValueError(f"metric {self.name}: histograms, and only histograms, have buckets")
        if not self.meaning.strip():
            raise ValueError(f"metric {self.name}: the meaning is missing")


class Metrics:
    """The metrics of one process, in a registry of its own so that two parts in one process do not clash."""

    def __init__(self, declared: Iterable[Metric]) -> None:
        """Takes the declarations.

        Raises:
            ValueError: a name is declared twice.
        """
        self._registry = CollectorRegistry()
        self._declared: dict[str, Metric] = {}
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        for metric in declared:
            if metric.name in self._declared:
                raise ValueError(f"metric {metric.name} is declared twice")
            self._declared[metric.name] = metric

    def counter(self, name: str) -> Counter:
        """Returns the counter of that name; raises ValueError when none is declared."""
        metric = self._find(name, "counter")
        if name not in self._counters:
            self._counters[name] = Counter(name, metric.meaning, metric.labels, registry=self._registry)
        return self._counters[name]

    def gauge(self, name: str) -> Gauge:
        """Returns the gauge of that name; raises ValueError when none is declared."""
        metric = self._find(name, "gauge")
        if name not in self._gauges:
            self._gauges[name] = Gauge(name, metric.meaning, metric.labels, registry=self._registry)
        return self._gauges[name]

    def histogram(self, name: str) -> Histogram:
        """Returns the histogram of that name; raises ValueError when none is declared."""
        metric = self._find(name, "histogram")
        if name not in self._histograms:
            self._histograms[name] = Histogram(
                name, metric.meaning, metric.labels, buckets=metric.buckets, registry=self._registry
            )
        return self._histograms[name]

    def render(self) -> bytes:
        """Returns the text exposition of every metric asked for so far."""
        return generate_latest(self._registry)

    def _find(self, name: str, kind: Kind) -> Metric:
        metric = self._declared.get(name)
        if metric is None:
            raise ValueError(f"metric {name} is not declared")
        if metric.kind != kind:
            raise ValueError(f"metric {name} is a {metric.kind}, not a {kind}")
        return metric
