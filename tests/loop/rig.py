"""Closes the loop: a plant, and the real controller fed with the windows that ingest would close."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
import pytest

from schemas.dead_letters import RawRecord
from schemas.errors import RecordError
from schemas.framing import encode
from schemas.partition import partition_for
from schemas.records import Account, CandidateTarget, CellLimits, ControlWindow, ShedUnits
from streams.control.believe import believed
from streams.control.processor import apply
from streams.control.settings import DEFAULT_SETTINGS, ControlSettings
from streams.control.state import CellState, decode_state, encode_state
from tests.loop.plants import Plant, Seen
from tests.unit.streams.control_makers import capacity_window, command_window, histogram, latency_window

CELL = "us-east"
WINDOW_MS = 10_000
# Far more than any plant here needs, so that the loop and not the budget binds.
PLENTY_UNITS = 1_000.0
LIMITS = CellLimits(base_candidates=100, max_candidates=600, latency_limit_ms=150.0)
SPAN = 500


def seen_window(index: int, seen: Seen, *, window_ms: int = WINDOW_MS) -> ControlWindow:
    """Latency window of what was seen; the pool's own account says that it did what was admitted, at its curve."""
    num_requests = len(seen.latencies_ms)
    made = latency_window(
        index,
        cell=CELL,
        num_requests=num_requests,
        busy_us=round(seen.admitted / 50_000.0 * 1e6),
        units_done=seen.admitted,
        window_ms=window_ms,
    )
    assert made.latency is not None
    dropped = seen.offered - seen.admitted
    account = Account(
        lever="rma",
        offered=seen.offered,
        admitted=seen.admitted,
        late=0,
        lost=0,
        sheds=[ShedUnits(reason="backlog", units=dropped, value_micro=0)] if dropped else [],
    )
    latency = msgspec.structs.replace(
        made.latency,
        latency=histogram(seen.latencies_ms),
        accounts=[account],
        upstream=histogram(seen.upstream_ms) if seen.upstream_ms else None,
    )
    return msgspec.structs.replace(made, latency=latency)


@dataclass(kw_only=True)
class Rig:
    """One cell in closed loop. Its state goes through its bytes at every tick, as between two events of the agent."""

    plant: Plant
    limits: CellLimits = LIMITS
    settings: ControlSettings = DEFAULT_SETTINGS
    units: float = PLENTY_UNITS
    window_ms: int = WINDOW_MS
    index: int = 1_000
    state: CellState = field(default_factory=lambda: CellState(cell=CELL))
    targets: list[CandidateTarget] = field(default_factory=list)

    @property
    def extras(self) -> int:
        return self.targets[-1].candidate_target - self.limits.base_candidates if self.targets else 0

    def capacity(self) -> ControlWindow:
        """Capacity window of the tick to come."""
        return capacity_window(self.index, cell=CELL, units=self.units, limits=self.limits, window_ms=self.window_ms)

    def latency(self) -> ControlWindow:
        """Latency window of the tick to come, from the plant."""
        seen = self.plant.respond(self.extras, window_s=self.window_ms / 1_000)
        return seen_window(self.index, seen, window_ms=self.window_ms)

    def command(self, action: str, *, candidate_target: int | None = None) -> None:
        """An operator's word before the next tick."""
        self.feed([command_window(self.index, action, candidate_target=candidate_target, window_ms=self.window_ms)])

    def tick(self) -> CandidateTarget:
        """One window of both kinds from the plant; the target that follows."""
        self.feed([self.capacity(), self.latency()])
        return self.targets[-1]

    def run(self, num_ticks: int) -> list[int]:
        """Extras after each of so many ticks."""
        return [self.tick().candidate_target - self.limits.base_candidates for _ in range(num_ticks)]

    def feed(self, windows: Iterable[ControlWindow]) -> list[CandidateTarget]:
        """Any windows; the targets that they led to. Goes on to the next index when there was one."""
        made = []
        for window in windows:
            state, records = apply(self.state, window, settings=self.settings)
            self.state = decode_state(encode_state(state))
            made += [record for record in records if isinstance(record, CandidateTarget)]
        self.targets += made
        self.index += 1 if made else 0
        return made


def assert_refused(window: ControlWindow) -> None:
    """The controller's edge refuses the window, wherever in the log it stands."""
    key = window.cell.encode()
    record = RawRecord(
        topic="control.windows",
        partition=partition_for(key, 8),
        offset=0,
        timestamp_ms=window.end_ms,
        timestamp_kind="append",
        key=key,
        value=encode(window),
    )
    with pytest.raises(RecordError):
        believed(record, num_partitions=8, skew_ms=0)
