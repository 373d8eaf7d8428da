"""Stop signals reach whoever waits for them, and nobody afterwards."""

import signal
import threading
from collections.abc import Iterator

import pytest

from ops.telemetry.stop_signals import STOP_SIGNALS, on_stop_signals, stop_event


@pytest.fixture(autouse=True)
def caught() -> Iterator[list[int]]:
    """Signals that nobody else handles, so that none ends the tests."""
    numbers: list[int] = []
    before = {number: signal.signal(number, lambda number, _: numbers.append(number)) for number in STOP_SIGNALS}
    yield numbers
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_sets_the_event_and_the_handlers_of_before_come_back(number: int, caught: list[int]) -> None:
    with stop_event() as stop:
        assert not stop.is_set()
        signal.raise_signal(number)
        assert stop.is_set()
    assert not caught
    signal.raise_signal(number)
    assert caught == [number]


def test_an_event_of_the_callers_own_leaves_signals_alone(caught: list[int]) -> None:
    mine = threading.Event()
    with stop_event(mine) as stop:
        assert stop is mine
        signal.raise_signal(signal.SIGTERM)
    assert not mine.is_set()
    assert caught == [signal.SIGTERM]


def test_handlers_come_back_after_a_failure(caught: list[int]) -> None:
    with pytest.raises(RuntimeError, match="broken"), on_stop_signals(lambda: None):
        raise RuntimeError("broken")
    signal.raise_signal(signal.SIGINT)
    assert caught == [signal.SIGINT]


def test_a_thread_sets_no_handlers_and_runs(caught: list[int]) -> None:
    entered = threading.Event()

    def part() -> None:
        with on_stop_signals(lambda: None):
            entered.set()

    thread = threading.Thread(target=part)
    thread.start()
    thread.join(10)
    assert entered.is_set()
    signal.raise_signal(signal.SIGTERM)
    assert caught == [signal.SIGTERM]
