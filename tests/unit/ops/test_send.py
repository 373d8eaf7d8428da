"""JSON lines to records: right key and partition, bad lines named and kept, nothing counted that is not in the log."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Message
from msgspec import Struct

from ops import cli
from ops.errors import UserError
from ops.intake import BY_NAME, Intake, key_of
from ops.record_json import to_json
from ops.send.lines import complaint, outgoing, pieces, record_of
from ops.send.sender import Rejects, Sender
from schemas.avro import parsed_schema
from schemas.errors import RecordError
from schemas.framing import Decoder, use_registry
from schemas.kafka.producer import DeliveryError, DurableProducer
from schemas.partition import partition_for
from schemas.records import CellDeclaration, CellLimits, CellRevision
from schemas.registered import contract_types
from schemas.settings import TimeSettings
from schemas.topics import FLEET_CAPACITY, RANKING_ANSWERS, RANKING_OUTCOMES, RANKING_REQUESTS, TOPICS, Topic

GOLDEN = json.loads((Path(__file__).parents[2] / "contract" / "golden_records.json").read_text(encoding="utf-8"))
NOW_MS = 1_800_000_000_000
TIME = TimeSettings()
CELL = CellDeclaration(
    cell="us-east",
    window_ms=TIME.window_ms,
    revisions=[
        CellRevision(from_window=0, limits=CellLimits(base_candidates=64, max_candidates=512, latency_limit_ms=150.0))
    ],
)
INTAKE = Intake({topic.name: topic.num_partitions for topic in TOPICS}, time=TIME, declarations=[CELL])


def golden(topic: Topic) -> Struct:
    record_type = topic.record_types[0]
    return msgspec.convert(GOLDEN[record_type.__name__]["record"], record_type, strict=True)


def line(topic: Topic, **changed: Any) -> bytes:
    return json.dumps(to_json(golden(topic)) | changed).encode() + b"\n"


class FakeProducer(DurableProducer):
    """Acknowledges what it is given when asked to drain, in order; refuses from the ``fails_at``-th record on."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.sent: list[tuple[str, bytes, bytes | None, int]] = []
        self._reports: list[Callable[[Any], None]] = []
        self._fails_at = fails_at

    def send(self, topic: str, record: Any, **given: Any) -> None:
        if len(self.sent) == self._fails_at:
            self._deliver()
            raise DeliveryError("the broker is away")
        self.sent.append((topic, record, given["key"], given["partition"]))
        self._reports.append(given["on_delivered"])

    def poll(self, timeout_s: float = 0.0) -> None:
        pass

    def drain(self, timeout_s: float = 30.0) -> None:
        self._deliver()

    def _deliver(self) -> None:
        for report in self._reports:
            report(Message())
        self._reports.clear()


def sender(producer: DurableProducer, topic: Topic = RANKING_OUTCOMES) -> Sender:
    return Sender(producer, topic, INTAKE, full_name=f"t.{topic.name}", partition=None)


@pytest.mark.parametrize("topic", [topic for topic in TOPICS if topic.key != "none"], ids=lambda topic: topic.name)
def test_each_topics_record_has_its_key_and_partition(topic: Topic) -> None:
    record = golden(topic)
    made = outgoing(line(topic), topic, INTAKE, partition=None, now_ms=NOW_MS)
    fields: Any = record
    expected = {
        "cell": lambda: fields.cell,
        "user": lambda: fields.user_id,
        "cell/accelerator": lambda: f"{fields.cell}/{fields.accelerator}",
        "cell/segment": lambda: f"{fields.cell}/{fields.segment}",
    }[topic.key]()
    assert made.key == expected.encode() == key_of(topic, record)
    assert made.partition == partition_for(made.key, topic.num_partitions)
    assert Decoder(topic.record_types).decode(made.value) == record


def test_records_without_a_key_go_where_they_are_told() -> None:
    made = outgoing(line(RANKING_ANSWERS), RANKING_ANSWERS, INTAKE, partition=5, now_ms=NOW_MS)
    assert (made.key, made.partition) == (None, 5)


class OwnIds:
    """A registry that has our schemas under numbers of its own."""

    def __init__(self) -> None:
        self._types = contract_types()

    def id_of(self, record_type: type[Struct]) -> int:
        return self._types.index(record_type)

    def schema_by_id(self, schema_id: int) -> tuple[str, Any]:
        return self._types[schema_id].__name__, parsed_schema(self._types[schema_id])


def test_where_a_registry_is_in_use_records_are_framed_with_its_ids() -> None:
    registry = OwnIds()
    use_registry(registry)
    try:
        made = outgoing(line(RANKING_OUTCOMES), RANKING_OUTCOMES, INTAKE, partition=None, now_ms=NOW_MS)
        schema_id = registry.id_of(RANKING_OUTCOMES.record_types[0])
        assert made.value[:5] == b"\0" + schema_id.to_bytes(4, "big")
        assert Decoder(RANKING_OUTCOMES.record_types).decode(made.value) == golden(RANKING_OUTCOMES)
    finally:
        use_registry(None)


def test_what_read_says_of_the_log_is_left_out() -> None:
    read = line(RANKING_OUTCOMES, _record="RankingOutcome", _partition=3, _offset=9, _time_ms=1, _key="x")
    plain = outgoing(line(RANKING_OUTCOMES), RANKING_OUTCOMES, INTAKE, partition=None, now_ms=NOW_MS)
    assert outgoing(read, RANKING_OUTCOMES, INTAKE, partition=None, now_ms=NOW_MS) == plain
    for other in ("ClockRecord", None):
        with pytest.raises(RecordError) as refused:
            outgoing(line(FLEET_CAPACITY, _record=other), FLEET_CAPACITY, INTAKE, partition=None, now_ms=NOW_MS)
        assert refused.value.field == "_record"


@pytest.mark.parametrize(
    ("topic", "changed", "field", "reason"),
    [
        (FLEET_CAPACITY, {"cell": "eu-west"}, "cell", "unknown_cell"),
        (FLEET_CAPACITY, {"event_time_ms": NOW_MS + 60_000}, "event_time_ms", "future_event"),
        (FLEET_CAPACITY, {"kind": "gone"}, "kind", "invalid_field"),
        (RANKING_REQUESTS, {"bids": ["NaN"] * 4}, "bids", "invalid_field"),
        (RANKING_REQUESTS, {"intake_ms": NOW_MS + 60_000}, "intake_ms", "future_event"),
        (RANKING_OUTCOMES, {"kind": "view", "valeu": 1}, "valeu", "invalid_field"),
    ],
)
def test_what_a_reader_would_refuse_is_named_before_it_is_sent(
    topic: Topic, changed: dict[str, Any], field: str, reason: str
) -> None:
    num_ads = len(to_json(golden(topic)).get("ad_ids", ()))
    if "bids" in changed:
        changed = {"bids": ["NaN"] * num_ads}
    with pytest.raises(RecordError) as refused:
        outgoing(line(topic, **changed), topic, INTAKE, partition=None, now_ms=NOW_MS)
    assert (refused.value.field, refused.value.reason) == (field, reason)
    assert complaint(7, refused.value).startswith(f"line 7: {field}: {reason}: ")


def test_a_bad_line_is_named_and_kept_and_the_others_are_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = [b"{\n", line(RANKING_OUTCOMES, kind="gone"), b"\xff\xfe\n", b"[1]\n"]
    stream = b"".join([line(RANKING_OUTCOMES), bad[0], b"\n", bad[1], line(RANKING_OUTCOMES), bad[2], bad[3]])
    producer = FakeProducer()
    kept = tmp_path / "bad.jsonl"
    with Rejects(str(kept)) as rejects:
        counts = sender(producer).send(io.BytesIO(stream), rejects, done=lambda _: None)
    assert (counts.num_sent, counts.num_rejected) == (2, 4)
    assert len(producer.sent) == 2
    assert kept.read_bytes() == b"".join(bad)
    said = capsys.readouterr().err.splitlines()
    assert [words.partition(":")[0] for words in said] == ["line 2", "line 4", "line 6", "line 7"]
    assert said[1].startswith("line 4: kind: invalid_field: ")


def test_without_a_file_bad_lines_are_kept_on_stderr(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    with Rejects(None) as rejects:
        sender(FakeProducer()).send(io.BytesIO(b'{"a": 1'), rejects, done=lambda _: None)
    assert capsysbinary.readouterr().err.splitlines()[1:] == [b'{"a": 1']


def test_a_file_that_exists_is_not_written_over(tmp_path: Path) -> None:
    kept = tmp_path / "bad.jsonl"
    kept.write_text("mine")
    with Rejects(str(kept)) as rejects, pytest.raises(UserError, match="cannot be kept"):
        sender(FakeProducer()).send(io.BytesIO(b"{\n"), rejects, done=lambda _: None)
    assert kept.read_text() == "mine"


def test_no_file_is_made_where_nothing_is_bad(tmp_path: Path) -> None:
    with Rejects(str(tmp_path / "bad.jsonl")) as rejects:
        sender(FakeProducer()).send(io.BytesIO(line(RANKING_OUTCOMES)), rejects, done=lambda _: None)
    assert not (tmp_path / "bad.jsonl").exists()


def test_a_line_without_end_is_held_in_pieces_and_told_once() -> None:
    found = list(pieces(io.BytesIO(b"a\n" + b"b" * 25 + b"\nc\n   \nd"), max_bytes=10))
    assert b"".join(piece.text for piece in found) == b"a\n" + b"b" * 25 + b"\nc\nd"
    assert [piece.number for piece in found if piece.is_first] == [1, 2, 3, 5]
    assert [piece.number for piece in found if piece.is_whole] == [1, 3, 5]
    assert max(len(piece.text) for piece in found) <= 10


def test_a_failure_says_from_which_line_to_go_on() -> None:
    stream = line(RANKING_OUTCOMES) * 5
    started = sender(FakeProducer(fails_at=3))
    with Rejects(None) as rejects, pytest.raises(UserError, match="every line before line 4 is done"):
        started.send(io.BytesIO(stream), rejects, done=lambda _: None)
    assert started.counts.num_sent == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "no topic nothing"),
        (["ranking.answers"], "give --partition"),
        (["fleet.capacity", "--partition", "1"], "--partition"),
        (["fleet.capacity", "--partition", "-1"], "--partition"),
        ([], "TOPIC"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_code_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["send", *arguments]) == 2
    said = capsys.readouterr().err.strip()
    assert words in said
    assert len(said.splitlines()) == 1


def test_every_topic_is_known_by_its_name() -> None:
    assert set(BY_NAME) == {topic.name for topic in TOPICS}


def test_a_line_nested_without_end_is_a_bad_line_like_any_other() -> None:
    with pytest.raises(RecordError, match="no JSON"):
        record_of(b"[" * 100_000, FLEET_CAPACITY)
