"""Reads sources in a thread of its own: a driver that hangs makes its pools stale, and holds up no reclaim."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ops.agent.readings import Reading, SourceError
from ops.agent.sources.source import Source
from ops.telemetry.logs import get_log

_STOP_S: Final = 5.0

_LOG = get_log(__name__)


class Sampler:
    """Reads each source when it is due; the last readings wait to be taken."""

    def __init__(
        self, sources: Sequence[Source], *, wake: Callable[[], None], clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        """``wake`` is called, from the thread, when there is something to take."""
        self._sources = sources
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
        self._thread = threading.Thread(target=self._run, name="sources", daemon=True)

    @property
    def problems(self) -> Mapping[str, str]:
        """What is wrong with each source that could not be read at the last try."""
        return dict(self._problems)

    def start(self) -> None:
        self._thread.start()

    def take(self) -> list[Reading]:
        """Readings since the last call, the last of each pool."""
        with self._lock:
            taken, self._taken = self._taken, {}
        return list(taken.values())

    def close(self) -> None:
        """End; a source that hangs is left to the end of the process."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(_STOP_S)

    def read_due(self) -> float:
        """Read what is due now; returns how many seconds nothing will be."""
        now_s = self._clock_s()
        for source in self._sources:
            if self._due_s[source.name] > now_s:
                continue
            # From now on, not from when it was due: a slow source is not read the more often for it.
            self._due_s[source.name] = now_s + source.every_s
            self._read(source)
        return max(0.0, min(self._due_s.values()) - self._clock_s())

    def _read(self, source: Source) -> None:
        try:
            readings = source.read(self.own_pids)
        except SourceError as error:
            self.num_failures[source.name] += 1
            if self._problems.get(source.name) != str(error):
                _LOG.warning("a source cannot be read", source=source.name, error=str(error))
            self._problems[source.name] = str(error)
            return
        if self._problems.pop(source.name, None) is not None:
            _LOG.info("a source can be read again", source=source.name)
        if readings:
            with self._lock:
                self._taken.update((reading.pool, reading) for reading in readings)
            self._wake()

    def _run(self) -> None:
        try:
            while not self._stop.wait(self.read_due()):
                pass
        finally:
            for source in self._sources:
                source.close()
