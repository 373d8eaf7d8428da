"""Reads each source in a thread of its own: one that hangs makes its pools stale, and holds up nothing else."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ops.agent.readings import Reading, SourceError
from ops.agent.sources.source import Source
from ops.telemetry.logs import get_log

_STOP_S: Final = 5.0
_HANGS_S: Final = 10.0

_LOG = get_log(__name__)


class Sampler:
    """Reads each source when it is due; the last readings of all wait to be taken."""

    def __init__(
        self, sources: Sequence[Source], *, wake: Callable[[], None], clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        """``wake`` is called, from any of the threads, when there is something to take."""
        self._wake = wake
        self._clock_s = clock_s
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._taken: dict[str, Reading] = {}
        self._due_s = {source.name: clock_s() for source in sources}
        # Set by whoever knows the gates; what these processes use is not the owner's.
        self.own_pids: frozenset[int] = frozenset()
        self.num_failures: dict[str, int] = {source.name: 0 for source in sources}
        self._problems: dict[str, str] = {}
        # When the reading under way began.
        self._began_s: dict[str, float] = {}
        self._threads = {
            source.name: threading.Thread(target=self._run, args=(source,), name=f"source-{source.name}", daemon=True)
            for source in sources
        }

    @property
    def problems(self) -> Mapping[str, str]:
        """What is wrong with each source that could not be read at the last try, or is not done with it."""
        now_s = self._clock_s()
        hanging = {
            name: f"{name}: has been read for {now_s - began_s:.0f} s"
            for name, began_s in self._began_s.copy().items()
            if now_s - began_s > _HANGS_S
        }
        return self._problems.copy() | hanging

    def died(self) -> str | None:
        """Which sources nobody reads any more; None while all is well."""
        ended = [name for name, thread in self._threads.items() if thread.ident is not None and not thread.is_alive()]
        return f"the threads of these sources ended: {', '.join(ended)}" if ended else None

    def start(self) -> None:
        for thread in self._threads.values():
            thread.start()

    def take(self) -> list[Reading]:
        """Readings since the last call, the last of each pool."""
        with self._lock:
            taken, self._taken = self._taken, {}
        return list(taken.values())

    def close(self) -> None:
        """End; a source that hangs is left to the end of the process."""
        self._stop.set()
        until_s = time.monotonic() + _STOP_S
        for thread in self._threads.values():
            if thread.ident is not None:
                thread.join(max(0.0, until_s - time.monotonic()))

    def read_due(self, source: Source) -> float:
        """Read a source if it is due now; returns how many seconds it will not be."""
        now_s = self._clock_s()
        if self._due_s[source.name] <= now_s:
            # From now on, not from when it was due: a slow source is not read the more often for it.
            self._due_s[source.name] = now_s + source.every_s
            self._began_s[source.name] = now_s
            self._read(source)
            del self._began_s[source.name]
        return max(0.0, self._due_s[source.name] - self._clock_s())

    def _read(self, source: Source) -> None:
        try:
            readings = source.read(self.own_pids)
        except SourceError as error:
            self._failed(source, str(error))
            return
        except Exception as error:  # noqa: BLE001  # whatever it is, the source has to be read again
            self._failed(source, f"{source.name}: {type(error).__name__}: {error}")
            return
        if self._problems.pop(source.name, None) is not None:
            _LOG.info("a source can be read again", source=source.name)
        if readings:
            with self._lock:
                self._taken.update((reading.pool, reading) for reading in readings)
            self._wake()

    def _failed(self, source: Source, problem: str) -> None:
        self.num_failures[source.name] += 1
        if self._problems.get(source.name) != problem:
            _LOG.warning("a source cannot be read", source=source.name, error=problem)
        self._problems[source.name] = problem

    def _run(self, source: Source) -> None:
        try:
            while not self._stop.wait(self.read_due(source)):
                pass
        finally:
            source.close()
