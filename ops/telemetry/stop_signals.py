"""SIGTERM and SIGINT: what ends every part."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def on_stop_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` on each stop signal; what handled them before does so again when the block ends.

    Outside the main thread, where no handler may be set, nothing is done: whoever started the thread stops it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: stop()) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stop_event(given: threading.Event | None = None) -> Iterator[threading.Event]:
    """An event that the stop signals set; ``given`` itself, without touching signals, where the caller brings one."""
    if given is not None:
        yield given
        return
    event = threading.Event()
    with on_stop_signals(event.set):
        yield event
