"""A program of one's own that prints readings, a JSON line each: for devices and schedulers unknown here."""

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Final

from ops.agent.readings import Reading, SourceError, readings_of_json
from ops.telemetry.logs import get_log
from schemas.errors import RecordError

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
_MAX_LINE_BYTES: Final = 1 << 16
_CHUNK_BYTES: Final = 1 << 16
# A program that prints faster than it is read is read so far at a time; the rest waits in the pipe, and it with it.
_MAX_CHUNKS: Final = 16
_END_S: Final = 2.0

_LOG = get_log(__name__)


class Command:
    """Kept running: one that ends is started again after a pause. A pool of which it says nothing grows stale."""

    name = "command"

    def __init__(
        self, argv: Sequence[str], *, every_s: float = 1.0, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.every_s = every_s
        self._argv = list(argv)
        self._clock_s = clock_s
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._start_at_s = clock_s()
        self._pause_s = _FIRST_PAUSE_S
        self.num_bad_lines = 0

    def read(self, own_pids: frozenset[int]) -> Sequence[Reading]:
        process = self._process or self._start()
        latest: dict[str, Reading] = {}
        is_over = False
        for line in self._lines(process):
            if line is None:
                is_over = True
                break
            for reading in self._parsed(line):
                latest[reading.pool] = reading
        if latest:
            self._pause_s = _FIRST_PAUSE_S
        if is_over:
            self._end(process)
            if not latest:
                raise SourceError(f"command: {self._argv[0]} ended with {process.returncode}, is started again")
        return list(latest.values())

    def close(self) -> None:
        """The program is told to end, and killed where it does not."""
        if self._process is not None:
            self._end(self._process)

    def _start(self) -> subprocess.Popen[bytes]:
        if self._clock_s() < self._start_at_s:
            raise SourceError(f"command: {self._argv[0]} is started again after a pause")
        self._start_at_s = self._clock_s() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        try:
            self._process = subprocess.Popen(self._argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        except OSError as error:
            raise SourceError(f"command: {self._argv[0]}: {error.strerror}") from error
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._rest = b""
        return self._process

    def _lines(self, process: "subprocess.Popen[bytes]") -> Sequence[bytes | None]:
        """Whole lines printed since the last look; None at the end when the program has closed its output."""
        assert process.stdout is not None
        lines: list[bytes | None] = []
        for _ in range(_MAX_CHUNKS):
            try:
                chunk = os.read(process.stdout.fileno(), _CHUNK_BYTES)
            except BlockingIOError:
                break
            if not chunk:
                lines.append(None)
                break
            *whole, self._rest = (self._rest + chunk).split(b"\n")
            lines += whole
            if len(self._rest) > _MAX_LINE_BYTES:
                self._bad(f"a line is longer than {_MAX_LINE_BYTES} bytes")
                self._rest = b""
        return lines

    def _parsed(self, line: bytes) -> list[Reading]:
        if not line.strip():
            return []
        try:
            return readings_of_json(line)
        except RecordError as error:
            self._bad(str(error))
            return []

    def _bad(self, why: str) -> None:
        self.num_bad_lines += 1
        # One in a while says enough.
        if self.num_bad_lines & (self.num_bad_lines - 1) == 0:
            _LOG.warning("a line of the command is no reading", why=why, so_far=self.num_bad_lines)

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = None
        assert process.stdout is not None
        process.stdout.close()
        # It may have closed its output and gone on.
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
