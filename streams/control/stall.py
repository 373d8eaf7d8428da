"""Whether this process has stood still for so long that another may have taken its work over. Pure.

A process that is stopped, or swapped out, does not notice: it goes on with the record in hand when it wakes, long
after its group has given its partitions to another, and would put an older target behind a newer one. Only the time
between two of its own moments tells. What is checked right before a write bounds the danger to the few milliseconds
between the check and the socket.
"""

from collections.abc import Callable


class StallGuard:
    """Beats while the process runs; a gap of ``limit_s`` between two beats, or since the last, is never forgiven.

    ``clock`` gives monotonic seconds.
    """

    def __init__(self, *, clock: Callable[[], float], limit_s: float) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._beat_at_s = clock()
        self._stalled_s: float | None = None

    def beat(self) -> None:
        """Note that the process runs."""
        self.stalled_s()
        self._beat_at_s = self._clock()

    def stalled_s(self) -> float | None:
        """How long the process stood still when it did so for too long; None while it never has."""
        gap_s = self._clock() - self._beat_at_s
        if self._stalled_s is None and gap_s >= self._limit_s:
            self._stalled_s = gap_s
        return self._stalled_s
