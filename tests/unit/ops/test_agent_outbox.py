"""From the agent to the client: in order, acknowledged one by one, and a client that is replaced when it fails."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ops.agent.capacity_reporter import MAX_OFFERS, CapacityReporter
from ops.agent.outbox import WINDOW, Outbox
from ops.agent.spool import Spool
from schemas.errors import RecordError
from schemas.framing import decode_as
from schemas.kafka.producer import DeliveryError
from schemas.records import CapacityEvent

CONFIG = {"bootstrap.servers": "127.0.0.1:1"}


class FakeBroker:
    """Takes what its producers send once it is ``there``; refuses the next so many of them."""

    def __init__(self) -> None:
        self.there = threading.Event()
        self.taken: list[bytes] = []
        self.num_refused = 0
        self.num_producers = 0
        self.most_in_flight = 0
        self.num_closed = 0

    def connect(self, config: dict[str, Any]) -> "FakeProducer":
        self.num_producers += 1
        return FakeProducer(self)


class FakeProducer:
    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self._queue: list[tuple[bytes, Callable[[object], None]]] = []

    def send(self, topic: str, record: bytes, *, key: bytes, on_delivered: Callable[[object], None]) -> None:
        assert (topic, key) == ("t", b"c")
        self._queue.append((record, on_delivered))
        self._broker.most_in_flight = max(self._broker.most_in_flight, len(self._queue))

    def poll(self, timeout_s: float) -> None:
        if not self._broker.there.wait(min(timeout_s, 0.001)):
            return
        if self._queue and self._broker.num_refused:
            self._broker.num_refused -= 1
            raise DeliveryError("refused")
        while self._queue:
            record, on_delivered = self._queue.pop(0)
            self._broker.taken.append(record)
            on_delivered(None)

    def drop_queued(self, topics: set[str]) -> None:
        self._queue.clear()

    def __exit__(self, *_: object) -> None:
        self._broker.num_closed += 1


def event(seq: int, kind: str = "heartbeat") -> CapacityEvent:
    return CapacityEvent(cell="c", host="h", epoch_ms=1, seq=seq, event_time_ms=1, kind=kind, offers=[])  # type: ignore[arg-type]


def outbox(folder: Path | None, broker: FakeBroker) -> Outbox:
    return Outbox(Spool(folder, limit_bytes=1 << 20), CONFIG, "t", connect=broker.connect)  # type: ignore[arg-type]


def seqs(broker: FakeBroker) -> list[int]:
    return [decode_as(value, CapacityEvent).seq for value in broker.taken]


def test_everything_put_arrives_once_and_in_order(tmp_path: Path) -> None:
    broker = FakeBroker()
    broker.there.set()
    box = outbox(tmp_path, broker)
    box.start()
    for seq in range(3 * WINDOW):
        box.put(event(seq))
    box.close()
    assert seqs(broker) == list(range(3 * WINDOW))
    assert broker.most_in_flight <= WINDOW
    assert broker.num_closed == broker.num_producers == 1
    assert box.state.num_waiting == 0
    assert box.state.num_acknowledged == 3 * WINDOW


def test_what_a_broker_that_is_away_does_not_take_is_sent_by_the_next_process_first(tmp_path: Path) -> None:
    away, there = FakeBroker(), FakeBroker()
    first = outbox(tmp_path, away)
    first.start()
    for seq in range(10):
        first.put(event(seq))
    first.close(timeout_s=0.0)
    assert away.taken == []
    there.there.set()
    second = outbox(tmp_path, there)
    second.put(event(10))
    second.start()
    second.close()
    assert seqs(there) == list(range(11))


def test_after_a_refusal_a_new_client_begins_with_the_first_that_was_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ops.agent.outbox._FIRST_PAUSE_S", 0.0)
    broker = FakeBroker()
    broker.num_refused = 2
    broker.there.set()
    box = outbox(tmp_path, broker)
    box.start()
    for seq in range(20):
        box.put(event(seq))
    box.close(timeout_s=60.0)
    assert seqs(broker) == list(range(20))
    assert broker.num_producers == broker.num_closed == 3


def test_a_spooled_record_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    spool = Spool(tmp_path, limit_bytes=1 << 20)
    spool.append("changes", b"no record")
    spool.close()
    broker = FakeBroker()
    broker.there.set()
    box = outbox(tmp_path, broker)
    box.put(event(0))
    box.start()
    box.close()
    assert seqs(broker) == [0]


def test_a_setting_that_the_client_does_not_know_is_named_at_once() -> None:
    with pytest.raises(ValueError, match=r"no\.such"):
        Outbox(Spool(None, limit_bytes=1 << 20), {**CONFIG, "no.such": "x"}, "t")


def test_a_registrys_wrong_setting_and_a_record_that_cannot_be_spooled_end_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ops.agent.outbox._FIRST_PAUSE_S", 0.0)
    wrong = [ValueError("SCHEMA_REGISTRY_CONFIG: no such file")]

    def connect_registry() -> None:
        if wrong:
            raise wrong.pop()

    monkeypatch.setattr("ops.agent.outbox.connect_registry", connect_registry)
    broker = FakeBroker()
    broker.there.set()
    spool = Spool(tmp_path, limit_bytes=1 << 20)
    append, failures = spool.append, [OSError("no disk")]

    def fail_once(log: str, body: bytes) -> int:
        if failures:
            raise failures.pop()
        return append(log, body)

    monkeypatch.setattr(spool, "append", fail_once)
    box = Outbox(spool, CONFIG, "t", connect=broker.connect)  # type: ignore[arg-type]
    for seq in range(3):
        box.put(event(seq))
    box.start()
    assert box.died() is None
    box.close(timeout_s=60.0)
    assert seqs(broker) == [1, 2]


def test_a_thread_that_ended_by_itself_is_missed() -> None:
    box = outbox(None, FakeBroker())
    box._is_over = lambda: True  # type: ignore[method-assign]
    assert box.died() is None
    box.start()
    box._thread.join()
    assert box.died() == "the thread that sends has ended"
    box.close()
    assert box.died() is None


@pytest.fixture
def reporter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CapacityReporter:
    monkeypatch.setattr(Outbox, "start", lambda _: None)
    quiet = tmp_path / "kafka.properties"
    quiet.write_text("log_level=0\n")
    environ = {"KAFKA_BOOTSTRAP": "127.0.0.1:1", "KAFKA_CONFIG": str(quiet)}
    return CapacityReporter(cell="us-east", host="h", environ=environ)


def put_by(reporter: CapacityReporter) -> list[CapacityEvent]:
    inbox, found = reporter._outbox._inbox, []
    while not inbox.empty():
        record = inbox.get()
        assert record is not None
        found.append(record)
    return found


def test_a_reporter_numbers_full_snapshots(reporter: CapacityReporter) -> None:
    reporter.offer("h200", units=4, idle_cause="off_peak", cpu_cores=8, memory_bytes=5)
    reporter.offer("h200-b", accelerator="h200", units=1, idle_cause="off_peak", cpu_cores=0, memory_bytes=0)
    reporter.update("h200", units=3)
    reporter.heartbeat()
    reporter.reclaim("h200", reason="launch")
    records = put_by(reporter)
    assert [record.seq for record in records] == [0, 1, 2, 3, 4]
    assert [record.kind for record in records] == ["offer", "offer", "update", "heartbeat", "reclaim"]
    assert [[offer.units for offer in record.offers] for record in records] == [[4], [4, 1], [3, 1], [3, 1], [1]]
    assert records[-1].reason == "launch"
    assert records[2].offers[0].offered_since_ms == records[0].offers[0].offered_since_ms > 0


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"units": -1.0}, "units"),
        ({"units": float("nan")}, "units"),
        ({"idle_cause": "lunch"}, "idle_cause"),
        ({"memory_bytes": 1.5}, "memory_bytes"),
        ({"colour": "red"}, "colour"),
        ({"unusable": "tired"}, "unusable"),
    ],
)
def test_what_no_reader_would_believe_does_not_leave_the_host(
    reporter: CapacityReporter, fields: dict[str, object], field: str
) -> None:
    good = {"units": 4.0, "idle_cause": "off_peak", "cpu_cores": 8.0, "memory_bytes": 5}
    with pytest.raises(RecordError, match=field):
        reporter.offer("h200", **{**good, **fields})  # type: ignore[arg-type]
    with pytest.raises(KeyError):
        reporter.update("h200", units=1.0)
    with pytest.raises(KeyError):
        reporter.reclaim("h200")
    assert put_by(reporter) == []
    reporter.heartbeat()
    assert put_by(reporter)[0].offers == []


def test_a_name_that_is_no_cell_is_refused_at_once() -> None:
    with pytest.raises(RecordError, match="cell"):
        CapacityReporter(cell="US East", host="h", environ={"KAFKA_BOOTSTRAP": "127.0.0.1:1"})


def test_what_no_bytes_can_say_and_more_pools_than_are_read_are_refused_at_the_call(reporter: CapacityReporter) -> None:
    fields: dict[str, Any] = {"units": 1, "idle_cause": "off_peak", "cpu_cores": 8, "memory_bytes": 5}
    with pytest.raises(RecordError, match="is no text"):
        reporter.offer("a\ud800", **fields)
    for number in range(MAX_OFFERS):
        reporter.offer(f"h200-{number}", **fields)
    assert len(put_by(reporter)) == MAX_OFFERS
    with pytest.raises(RecordError, match="257 pools of one host, at most 256"):
        reporter.offer("one-more", **fields)
    reporter.heartbeat()
    (beat,) = put_by(reporter)
    assert len(beat.offers) == MAX_OFFERS
