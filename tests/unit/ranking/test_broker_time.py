"""Nothing on the request path reads the time of day: somebody may set it, and then every deadline would move."""

import ast
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE

import ranking
from ranking.client.broker_time import learn_broker_time, local_ms, observe
from ranking.clock import BrokerClock
from schemas.records import ClockRecord
from schemas.topics import Namespace

TIME_OF_DAY = {"time", "time_ns", "now", "utcnow", "today"}


def message(kind, timestamp_ms):
    return SimpleNamespace(timestamp=lambda: (kind, timestamp_ms))


def test_no_module_of_ranking_reads_the_time_of_day():
    sources = list(Path(ranking.__path__[0]).rglob("*.py"))
    assert len(sources) > 40
    found = [
        f"{path.name}:{node.lineno}"
        for path in sources
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in TIME_OF_DAY
        and isinstance(node.value, ast.Name)
        and node.value.id in ("time", "datetime", "date")
    ]
    assert found == []


def test_setting_the_clock_moves_no_broker_time(monkeypatch: pytest.MonkeyPatch):
    clock = BrokerClock()
    monkeypatch.setattr(time, "monotonic", lambda: 1_000.0)
    monkeypatch.setattr(time, "time", lambda: 5_000_000.0)
    observe(clock, message(TIMESTAMP_LOG_APPEND_TIME, 7_000_000))
    assert clock.broker_ms(local_ms()) == 7_000_000
    monkeypatch.setattr(time, "monotonic", lambda: 1_002.5)
    monkeypatch.setattr(time, "time", lambda: 5_000_000.0 + 3_600.0)
    assert clock.broker_ms(local_ms()) == 7_002_500


@pytest.mark.parametrize(("kind", "timestamp_ms"), [(TIMESTAMP_CREATE_TIME, 10**12), (TIMESTAMP_NOT_AVAILABLE, 0)])
def test_only_the_brokers_own_time_teaches_a_clock(kind, timestamp_ms):
    """An acknowledgement without an offset carries this host's time of day, which may be wrong by an hour."""
    clock = BrokerClock()
    observe(clock, message(kind, timestamp_ms))
    assert not clock.is_set


def test_the_time_is_learned_from_acknowledgements_before_anything_is_read():
    sent = []

    class Producer:
        def send(self, topic, record, *, partition, on_delivered):
            sent.append((topic, type(record), partition))
            on_delivered(message(TIMESTAMP_LOG_APPEND_TIME, 10**12))

        def drain(self, timeout_s):
            assert timeout_s > 0

    clock = BrokerClock()
    producer: Any = Producer()
    learn_broker_time(clock, producer, Namespace("t."), writer="router-1")
    assert clock.is_set
    assert abs(clock.broker_ms(local_ms()) - 10**12) < 60_000
    assert set(sent) == {("t.serving.latency", ClockRecord, 0)}
