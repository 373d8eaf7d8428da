"""The controllers of one partition of control.windows, replayed. Pure.

It takes the log as the live agent does (``streams.control.step``), and says each record as often as that: a window that
stands twice in the log leads to the same records twice.
"""

from collections.abc import Iterable, Mapping

from ops.replay.said import Said, refused
from schemas.dead_letters import RawRecord
from schemas.errors import RecordError
from schemas.settings import TimeSettings
from schemas.topics import CONTROL_WINDOWS
from streams.control.believe import believed
from streams.control.outputs import destination
from streams.control.settings import ControlSettings
from streams.control.state import CellState
from streams.control.step import applied, letter_of


class ControlReplay:
    """States of the cells of one partition, and what each record makes of them.

    ``passed`` says of cells that begin with a snapshot up to which offset it knows the log already.
    """

    def __init__(
        self,
        *,
        num_partitions: int,
        time: TimeSettings,
        settings: ControlSettings,
        states: Mapping[str, CellState] | None = None,
        passed: Mapping[str, int] | None = None,
    ) -> None:
        self._num_partitions = num_partitions
        self._time = time
        self._settings = settings
        self._states = dict(states or {})
        self._passed = dict(passed or {})
        self._changed: dict[str, CellState] = {}
        self.num_refused = 0

    def take(self, batch: Iterable[RawRecord]) -> list[Said]:
        """Records of the log in order, to what they lead to; however they are cut into batches, it is the same."""
        out: list[Said] = []
        for record in batch:
            try:
                out.extend(self._take(record))
            except RecordError as error:
                self.num_refused += 1
                out.append(refused(CONTROL_WINDOWS, letter_of(record, error)))
        return out

    def changed(self) -> dict[str, CellState]:
        """The states that have changed since this was last asked."""
        changed, self._changed = self._changed, {}
        return changed

    def _take(self, record: RawRecord) -> list[Said]:
        window = believed(record, num_partitions=self._num_partitions, skew_ms=self._time.skew_ms)
        cell = window.cell
        if record.offset <= self._passed.get(cell, -1):
            return []
        state, records = applied(self._states.get(cell) or CellState(cell=cell), window, settings=self._settings)
        self._states[cell] = self._changed[cell] = state
        said = []
        for output in records:
            topic, key = destination(output)
            said.append(Said(topic.name, key, output))
        return said
