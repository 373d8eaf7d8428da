"""What one partition of one part has said since it was last written, and when that is due."""

import time
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from ops.replay.run_log import PartProgress, Place, progress_key, state_records
from ops.replay.said import Said
from ops.replay.sink import Sink
from streams.control.state import CellState

# A crash costs at most so much work; a transaction costs milliseconds.
_EVERY_S: Final = 1.0
_MAX_SAID: Final = 5_000


class Stretch:
    """Collects records, and writes them in one transaction with the progress behind them."""

    def __init__(self, sink: Sink, *, part: str, partition: int, before: PartProgress) -> None:
        self._sink = sink
        self._key = progress_key(part, partition)
        self._progress = before
        self._said: list[Said] = []
        self._num_read = 0
        self._since_s = time.monotonic()

    def add(self, said: Sequence[Said], *, num_read: int) -> None:
        """Note what a batch led to."""
        self._said += said
        self._num_read += num_read

    @property
    def is_due(self) -> bool:
        return len(self._said) >= _MAX_SAID or time.monotonic() - self._since_s >= _EVERY_S

    def write(
        self, places: Mapping[str, Place], *, num_refused: int, states: Mapping[str, CellState], is_done: bool = False
    ) -> None:
        """Write everything noted so far. ``num_refused`` counts since the start; raises DeliveryError."""
        self._progress = PartProgress(
            places=dict(places),
            num_read=self._progress.num_read + self._num_read,
            num_said=self._progress.num_said + len(self._said),
            num_refused=num_refused,
            is_done=is_done,
        )
        log = {self._key: msgspec.json.encode(self._progress)}
        for state in states.values():
            log |= state_records(state)
        self._sink.write(self._said, log)
        self._said = []
        self._num_read = 0
        self._since_s = time.monotonic()
