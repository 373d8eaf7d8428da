"""The table of metrics and the registry over it."""

from typing import Any

import pytest

from ops.telemetry.declared import METRICS
from ops.telemetry.metrics import Metric, Metrics

COUNTER = Metric("intertidal_things_total", "counter", "Things.", ("kind",))
GAUGE = Metric("intertidal_level", "gauge", "Level.")
HISTOGRAM = Metric("intertidal_wait_seconds", "histogram", "Wait.", buckets=(0.1, 1.0))


def test_the_table_can_be_registered_whole() -> None:
    metrics = Metrics(METRICS)
    for metric in METRICS:
        getattr(metrics, metric.kind)(metric.name)
    text = metrics.render().decode()
    for metric in METRICS:
        assert f"# TYPE {metric.name} {metric.kind}\n" in text
        assert metric.meaning in text


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (("things_total", "counter", "x"), "must start with intertidal_"),
        (("intertidal_things", "counter", "x"), "end in _total"),
        (("intertidal_things_total", "gauge", "x"), "end in _total"),
        (("intertidal_wait_seconds", "histogram", "x"), "have buckets"),
        (("intertidal_level", "gauge", "x", (), (1.0,)), "have buckets"),
        (("intertidal_level", "gauge", " "), "meaning is missing"),
    ],
)
def test_rules_of_a_declaration(metric: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Metric(*metric)


def test_a_name_is_declared_once() -> None:
    with pytest.raises(ValueError, match="declared twice"):
        Metrics([GAUGE, GAUGE])


def test_only_what_is_declared_can_be_asked_for() -> None:
    metrics = Metrics([COUNTER])
    with pytest.raises(ValueError, match="intertidal_lost is not declared"):
        metrics.gauge("intertidal_lost")
    with pytest.raises(ValueError, match="is a counter, not a gauge"):
        metrics.gauge(COUNTER.name)


def test_asked_for_twice_it_is_the_same_metric() -> None:
    metrics = Metrics([COUNTER, GAUGE, HISTOGRAM])
    for _ in range(2):
        metrics.counter(COUNTER.name).labels(kind="a").inc()
        metrics.gauge(GAUGE.name).set(3)
        metrics.histogram(HISTOGRAM.name).observe(0.5)
    text = metrics.render().decode()
    assert 'intertidal_things_total{kind="a"} 2.0' in text
    assert "intertidal_level 3.0" in text
    assert 'intertidal_wait_seconds_bucket{le="1.0"} 2.0' in text


def test_two_parts_in_one_process_do_not_clash() -> None:
    first, second = Metrics([GAUGE]), Metrics([GAUGE])
    first.gauge(GAUGE.name).set(1)
    second.gauge(GAUGE.name).set(2)
    assert b"intertidal_level 1.0" in first.render()
