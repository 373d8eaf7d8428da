"""SIGTERM and SIGINT as an event that loops look at."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stop_on_signals(stop: threading.Event | None = None) -> Iterator[threading.Event]:
    """An event that the signals set; ``stop`` itself, without touching signals, where the caller brings its own.

    The handlers of before are back when the block ends. In the main thread only, unless ``stop`` is given.
    """
    if stop is not None:
        yield stop
        return
    event = threading.Event()
    wanted = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: event.set()) for number in wanted}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
