"""`intertidal report` against a real broker: windows and uplift put there by hand, told as a page and as JSON."""

import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from ops.cli import main
from ops.times import iso_time
from schemas.kafka.admin import TopicAdmin
from schemas.kafka.config import BOOTSTRAP_ENV, NAMESPACE_ENV, client_config, producer_config
from schemas.kafka.producer import DurableProducer
from schemas.topics import CONTROL_WINDOWS, SEGMENT_UPLIFT, Namespace
from tests.unit.ops.report_makers import WINDOW_MS, effect, full_range, full_uplift, uplift

SCHEMA = Path(__file__).parents[2] / "docs" / "report.schema.json"
NUM_WINDOWS = 30


@pytest.fixture(autouse=True)
def namespace(kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Namespace]:
    made = Namespace(topic_prefix)
    monkeypatch.setenv(BOOTSTRAP_ENV, kafka)
    monkeypatch.setenv(NAMESPACE_ENV, topic_prefix)
    admin = TopicAdmin({"bootstrap.servers": kafka})
    admin.create(made)
    yield made
    admin.delete(made)


def test_a_range_of_the_logs_becomes_a_page_and_a_document(
    namespace: Namespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report"]) == 0
    assert "not known" in capsys.readouterr().out

    with DurableProducer(producer_config(client_config("t"))) as producer:
        for window in full_range(NUM_WINDOWS):
            producer.send(namespace.topic(CONTROL_WINDOWS), window, key=b"us-east")
        # Said again after a crash, and not one of ours.
        for window in full_range(NUM_WINDOWS)[-4:]:
            producer.send(namespace.topic(CONTROL_WINDOWS), window, key=b"us-east")
        producer.send(namespace.topic(CONTROL_WINDOWS), b"not one of ours", key=b"us-east")
        older = uplift(effects=[effect(size=0.09)], window_index=2)
        for record in (older, *full_uplift()):
            producer.send(namespace.topic(SEGMENT_UPLIFT), record, key=f"us-east/{record.segment}".encode())

    assert main(["report", "--json", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr()
    report = json.loads(said.out)
    jsonschema.validate(report, json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8")) == report
    assert report["headline"]["sentence"] in (tmp_path / "report.html").read_text(encoding="utf-8").replace("\xa0", " ")
    assert "17 % more value" in report["headline"]["sentence"]
    assert report["covered"]["num_windows"] == 4 * NUM_WINDOWS
    assert (report["covered"]["num_repeated_windows"], report["covered"]["num_unreadable"]) == (4, 1)
    assert "bad_framing" in said.err

    # Windows that end by then; the whole cell's record is younger, so its gain is not known of that range.
    until = iso_time(10 * WINDOW_MS)
    assert main(["report", "--json", "--until", until]) == 0
    early = json.loads(capsys.readouterr().out)
    assert early["covered"]["num_windows"] == 4 * 10
    assert [gains["segment"] for gains in early["gains"]] == ["(all)"]
    assert early["gains"][0]["effects"][0]["effect"] == pytest.approx(0.09)

    assert main(["report", "--json", "--cell", "us-west"]) == 0
    assert json.loads(capsys.readouterr().out)["covered"]["cells"] == []
