"""How fast a replay may read. Pure."""

from collections.abc import Callable


class Pace:
    """Spreads records evenly over time: at most ``rate`` a second, without a limit where it is 0.

    ``clock_s`` gives monotonic seconds, ``sleep`` waits for some.
    """

    def __init__(self, rate: float, *, clock_s: Callable[[], float], sleep: Callable[[float], None]) -> None:
        if rate < 0.0:
            raise ValueError(f"a rate of {rate:g} records a second: 0 is without a limit")
        self._rate = rate
        self._clock_s = clock_s
        self._sleep = sleep
        self._free_at_s = clock_s()

    def batch(self, at_most: int) -> int:
        """Records to read at once, so that the pipeline beside it meets no burst of more than a tenth of a second."""
        return at_most if not self._rate else max(1, min(at_most, round(self._rate / 10.0)))

    def took(self, num_records: int) -> None:
        """Wait until so many records more were not too many."""
        if not self._rate:
            return
        now_s = self._clock_s()
        # Time not used is not saved up.
        self._free_at_s = max(self._free_at_s, now_s) + num_records / self._rate
        if self._free_at_s > now_s:
            self._sleep(self._free_at_s - now_s)
