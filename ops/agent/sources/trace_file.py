"""A recorded host: readings with their times, played from the start of the agent on."""

import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import msgspec

from ops.agent.readings import Reading, SourceError
from schemas.records.fields import Quantity


class TraceReading(Reading, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of a trace: a reading, and how many seconds after the trace's start it was made."""

    at_s: Quantity


class TraceFile:
    """JSON lines in order of ``at_s``. Each pool is as its last line says until its next one; the last one stays."""

    name = "trace"

    def __init__(
        self,
        path: Path,
        *,
        every_s: float = 1.0,
        speed: float = 1.0,
        loop: bool = False,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.every_s = every_s
        self._path = path
        self._speed = speed
        self._loop = loop
        self._clock_s = clock_s
        self._zero_s = clock_s()
        self._lines = self._open()
        self._next: TraceReading | None = None
        self._now: dict[str, Reading] = {}
        self._failure: SourceError | None = None

    def read(self, own_pids: frozenset[int]) -> Sequence[Reading]:
        if self._failure is not None:
            raise self._failure
        try:
            self._play((self._clock_s() - self._zero_s) * self._speed)
        except (OSError, UnicodeDecodeError, SourceError) as error:
            # What comes behind a line that cannot be read is not known: the pools grow stale.
            self._failure = error if isinstance(error, SourceError) else SourceError(f"trace: {self._path}: {error}")
            raise self._failure from error
        return list(self._now.values())

    def close(self) -> None:
        """Close the file."""
        self._lines.close()

    def _play(self, at_s: float) -> None:
        while True:
            if self._next is None:
                self._next = next(self._lines, None)
            if self._next is None or self._next.at_s > at_s:
                return
            line, self._next = self._next, None
            self._now[line.pool] = _without_time(line)

    def _open(self) -> Generator[TraceReading, None, None]:
        """Lines of the file, again and again where it loops; times go on from round to round."""
        start_s = 0.0
        while True:
            last_s = 0.0
            with self._path.open(encoding="utf-8") as file:
                for number, text in enumerate(file, start=1):
                    if not text.strip():
                        continue
                    line = self._line(number, text)
                    if line.at_s < last_s:
                        raise SourceError(f"trace: {self._path}, line {number}: at_s: goes back from {last_s:g}")
                    last_s = line.at_s
                    yield msgspec.structs.replace(line, at_s=start_s + line.at_s)
            if not self._loop or last_s == 0.0:
                return
            start_s += last_s

    def _line(self, number: int, text: str) -> TraceReading:
        try:
            return msgspec.json.decode(text, type=TraceReading)
        except msgspec.DecodeError as error:
            raise SourceError(f"trace: {self._path}, line {number}: {error}") from None


def _without_time(line: TraceReading) -> Reading:
    return Reading(**{name: getattr(line, name) for name in Reading.__struct_fields__})
