"""Parts that read the log wait for a schema that is not known yet: they neither refuse its record nor pass over it."""

import asyncio
from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from schemas.avro import encode_body, parsed_schema
from schemas.dead_letters import RawRecord
from schemas.errors import SchemaPendingError
from schemas.framing import use_registry
from schemas.records import CellDeclaration, CellLimits, CellRevision
from streams.control import agent
from streams.control.agent import ControlAgent
from streams.ingest.cells import Cells
from streams.ingest.worker.cell_log import CellLog

FRAME = b"\0\0\0\0\x07"
LIMITS = CellLimits(base_candidates=100, max_candidates=500, latency_limit_ms=200.0)


class FakeRegistry:
    """Knows id 7 after it has been asked some times."""

    def __init__(self) -> None:
        self.num_refusals = 3

    def schema_by_id(self, schema_id: int) -> tuple[str, Any]:
        if self.num_refusals:
            self.num_refusals -= 1
            raise SchemaPendingError("schema id 7 is not known yet")
        return "CellDeclaration", parsed_schema(CellDeclaration)

    def id_of(self, record_type: type) -> int:
        raise AssertionError


@pytest.fixture(autouse=True)
def registry() -> Iterator[FakeRegistry]:
    registry = FakeRegistry()
    use_registry(registry)
    yield registry
    use_registry(None)


def test_control_waits_and_says_why(registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "SCHEMA_LOOK_S", 0.0)
    said = []

    class Agent(SimpleNamespace):
        def __setattr__(self, name: str, value: Any) -> None:
            said.append(value)

    record = RawRecord(
        topic="control.windows", partition=3, offset=1, timestamp_ms=0, timestamp_kind="append", key=b"", value=FRAME
    )
    asyncio.run(ControlAgent._wait_for_schema(Agent(), record))  # type: ignore[arg-type]
    assert said == ["control.windows[3] waits: schema id 7 is not known yet"] * 3 + [None]


class Message:
    """One declaration in the log."""

    def __init__(self, cell: str, *, frame: bytes) -> None:
        revisions = [CellRevision(from_window=0, limits=LIMITS)]
        body = encode_body(CellDeclaration(cell=cell, window_ms=1_000, revisions=revisions))
        self._key, self._value = cell.encode(), frame + body

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes:
        return self._value

    def offset(self) -> int:
        return 0

    def error(self) -> None:
        return None


def test_a_declaration_waits_and_what_is_behind_it_keeps_its_place(registry: FakeRegistry) -> None:
    cells = Cells(window_ms=1_000)
    log = CellLog.__new__(CellLog)
    log._cells, log._topic, log._why_waiting = cells, "control.cells", None
    log._waiting = deque()
    log._take([Message("pending", frame=FRAME), Message("behind", frame=FRAME)])  # type: ignore[list-item]
    assert len(cells) == 0
    assert log.trouble() == "control.cells waits: schema id 7 is not known yet"
    log._take([])
    log._take([])
    assert len(cells) == 0
    log._take([])
    assert cells.knows("pending")
    assert cells.knows("behind")
    assert log.trouble() is None


def test_a_stop_does_not_wait_for_a_record_that_waits_for_its_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    conf = SimpleNamespace(stream_wait_empty=True)

    async def stop() -> None:
        if conf.stream_wait_empty:
            await asyncio.Event().wait()

    def leave(code: int) -> None:
        raise AssertionError(f"left with {code}")

    monkeypatch.setattr(agent, "STOP_TIMEOUT_S", 0.05)
    monkeypatch.setattr("streams.control.agent.os._exit", leave)
    waiting: Any = SimpleNamespace(pending_schema="waits", app=SimpleNamespace(conf=conf, stop=stop))
    asyncio.run(agent._stop(waiting))
    assert not conf.stream_wait_empty
