"""A Python process with this folder first on PYTHONPATH lives on a host whose wall clock is wrong by WRONG_CLOCK_MS.

Python imports a module of this name before anything else. The monotonic clock is right, as it is on such a host.
"""

import os
import time

_OFFSET_NS = int(os.environ.get("WRONG_CLOCK_MS", "0")) * 1_000_000
_true_ns = time.time_ns


def _wrong_ns() -> int:
    return _true_ns() + _OFFSET_NS


def _wrong_s() -> float:
    return _wrong_ns() / 1e9


time.time_ns = _wrong_ns
time.time = _wrong_s
