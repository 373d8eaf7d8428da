"""Dead letters, and a log of them in memory that can die at any step."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ops.dlq.letters import Letter
from ops.dlq.marks import Marks, Run, marks_of
from ops.dlq.redrive import Place, Redriven, place_in
from ops.intake import Intake
from ops.record_json import from_json
from schemas.dead_letters import Headers, RawRecord, envelope
from schemas.errors import RecordError
from schemas.framing import encode
from schemas.partition import partition_for
from schemas.records import CapacityEvent, CellDeclaration, CellLimits, CellRevision, DeadLetter, Offer
from schemas.settings import TimeSettings
from schemas.topics import FLEET_CAPACITY, TOPICS

NOW_MS = 1_800_000_000_000
TIME = TimeSettings()
CELL = CellDeclaration(
    cell="us-east",
    window_ms=TIME.window_ms,
    revisions=[
        CellRevision(from_window=0, limits=CellLimits(base_candidates=64, max_candidates=512, latency_limit_ms=150.0))
    ],
)
NUM_PARTITIONS = {topic.name: topic.num_partitions for topic in TOPICS}
INTAKE = Intake(NUM_PARTITIONS, time=TIME, declarations=[CELL])
HOME = partition_for(b"us-east", FLEET_CAPACITY.num_partitions)


def event(host: str = "h1", **changed: Any) -> CapacityEvent:
    offer = Offer(accelerator="l4", units=1.0, cpu_cores=4.0, memory_bytes=2**30, idle_cause="off_peak")
    fields: dict[str, Any] = {
        "cell": "us-east",
        "host": host,
        "epoch_ms": NOW_MS - 1_000,
        "seq": 1,
        "event_time_ms": NOW_MS,
        "kind": "offer",
        "offers": [offer],
    }
    return CapacityEvent(**(fields | changed))


def letter(
    offset: int,
    value: bytes | None,
    error: RecordError,
    *,
    key: bytes | None = b"us-east",
    partition: int = HOME,
    headers: Headers = (),
    origin_offset: int | None = None,
) -> Letter:
    raw = RawRecord(
        topic=FLEET_CAPACITY.name,
        partition=partition,
        offset=100 + offset if origin_offset is None else origin_offset,
        timestamp_ms=NOW_MS - 5_000,
        timestamp_kind="append",
        key=key,
        value=value,
        headers=headers,
    )
    said = envelope(raw, error, part="ingest", stage="read")
    return Letter(partition=0, offset=offset, append_ms=NOW_MS - 4_000, letter=said)


def undeclared(offset: int, **given: Any) -> Letter:
    """A letter of a cell that was not declared then, and is by now."""
    return letter(offset, encode(event(f"h{offset}")), RecordError("unknown_cell", "us-east", field="cell"), **given)


def garbage(offset: int) -> Letter:
    return letter(offset, b"zz", RecordError("bad_framing", "starts with 7a7a", position=0))


def repaired(shown: dict[str, Any]) -> CapacityEvent:
    return from_json(CapacityEvent, shown["record"])


class KilledError(Exception):
    """The process died here."""


class MemoryLog:
    """A dead-letter topic and its origin; what is handed over is in the log, and acknowledged by `drain`.

    ``dies_at`` is the number of the step (a hand-over, an acknowledgement, a commit) before which the process dies;
    every step before it has happened. What outlives that is ``sent``, ``notes`` and ``committed``.
    """

    def __init__(self, found: Iterable[Letter]) -> None:
        self.found = list(found)
        self.sent: list[Redriven] = []
        self.notes: list[DeadLetter] = []
        self.committed: tuple[int, str] | None = None
        self.dies_at: int | None = None
        self.num_steps = 0
        self._acks: list[Callable[[], None]] = []

    def marks(self) -> dict[int, Marks]:
        """As the next process finds them."""
        self._acks.clear()
        self.num_steps = 0
        return {0: marks_of(*(self.committed or (None, None)))}

    def letters(self, marks: Mapping[int, Marks]) -> Iterator[Letter]:
        yield from (found for found in self.found if found.offset >= marks[0].position)

    def newest_ms(self) -> int:
        return NOW_MS - 1

    def sent_by(self, run: Run) -> Iterable[Place]:
        return [place for sent in self.sent if (place := place_in(sent.headers, run.name)) is not None]

    def send(self, record: Redriven, *, on_acked: Callable[[], None]) -> None:
        self._step()
        self.sent.append(record)
        self._acks.append(on_acked)

    def note(self, letter: DeadLetter) -> Place:
        self._step()
        self.notes.append(letter)
        offset = max((found.offset for found in self.found), default=-1) + 1
        self.found.append(Letter(partition=0, offset=offset, append_ms=NOW_MS, letter=letter))
        return 0, offset

    def drain(self) -> None:
        while self._acks:
            self._step()
            self._acks.pop(0)()

    def commit(self, marks: Mapping[int, Marks]) -> None:
        assert not self._acks, "nothing is committed that is not acknowledged"
        self._step()
        self.committed = marks[0].position, marks[0].metadata()

    def _step(self) -> None:
        if self.num_steps == self.dies_at:
            raise KilledError
        self.num_steps += 1
