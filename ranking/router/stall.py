"""Whether this process has stood still so long that its partitions may have gone to another. Pure.

A process that was stopped (SIGSTOP, a frozen machine) sends no heartbeats. Its session ends, another router takes its
partitions over, and when it goes on it still believes that they are its own: a result sent then can be a second one.
The monotonic clock goes on meanwhile, so a loop that looks at it before whatever must not be done twice finds out. What
it then does (`ranking.router.worker`):

1. Ask the broker: it takes a commit from the last generation of the group alone, and prolongs the session of whoever
   commits. Taken, nobody else can own what we own for a session to come, and all goes on.
2. Refused, or without an answer: forget all that was taken in; the next owner answers it.
3. Drop what is queued and has not left for the broker yet.
4. Join the group again.

What stays possible is a second result where the first of these holds at the very moment at which the process stops:
it lies between the look and the write to the broker's socket (some ten microseconds), or behind other records in the
client's queue, as the broker is slow to acknowledge them. The client's own thread sends it when the process goes on.
Readers remove it by its request id.
"""


class StallGuard:
    """Looked at before each result; doubts from a gap on, until ownership has been proved again.

    The session ends `session_ms` after the last heartbeat that arrived, and that one left at most `heartbeat_ms` before
    the process stood still. limit = session - 2 heartbeats: one for that, one for a heartbeat's way.
    """

    def __init__(self, *, session_ms: float, heartbeat_ms: float) -> None:
        self._limit_ms = session_ms - 2.0 * heartbeat_ms
        if self._limit_ms <= 0.0:
            raise ValueError(f"a session of {session_ms} ms is too short for a heartbeat every {heartbeat_ms} ms")
        self._last_ms: float | None = None
        self._is_in_doubt = False

    def is_in_doubt(self, now_ms: float) -> bool:
        """Whether ownership must be proved before anything is done in its name; ``now_ms`` is the monotonic clock's."""
        if self._last_ms is not None and now_ms - self._last_ms > self._limit_ms:
            self._is_in_doubt = True
        self._last_ms = now_ms
        return self._is_in_doubt

    def proved(self, now_ms: float) -> None:
        """Ownership was proved by the broker, which also prolongs the session; or there is nothing left to own."""
        self._last_ms = now_ms
        self._is_in_doubt = False
