"""The page for authors in other languages says what is so: hashes, bytes, reasons, keys, links."""

import json
import re
from pathlib import Path

from schemas.errors import REASONS
from schemas.partition import murmur2, partition_for
from schemas.settings import MeasurementSettings, TimeSettings, env_name
from schemas.topics import TOPICS
from streams.ingest.seen_before import MAX_NAMES

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
PAGE = (DOCS / "other-languages.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """Cells of the table whose first heading is that, without back-ticks."""
    _, _, table = PAGE.partition(f"\n| {heading} |")
    lines = table.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in lines]


def test_hashes_and_partitions() -> None:
    vectors = [(key, int(hashed), int(partition)) for key, hashed, partition in rows("key")]
    assert len(vectors) >= 4
    assert vectors == [(key, murmur2(key.encode()), partition_for(key.encode(), 8)) for key, _, _ in vectors]


def test_every_topic_has_its_key() -> None:
    said: dict[str, str] = {}
    for names, key in rows("topic"):
        said |= {name.strip(): key for name in names.split(",")}
    words = {
        "cell": "the record's cell",
        "user": "the record's user_id",
        "none": "none: the sender names the partition",
    }
    said |= {topic.name: said["ranking.work.*"] for topic in TOPICS if topic.name.startswith("ranking.work.")}
    for topic in TOPICS:
        assert said[topic.name] == words.get(topic.key, topic.key)


def test_every_reason_is_explained() -> None:
    assert tuple(row[0] for row in rows("reason")) == REASONS


def test_the_bytes_of_the_clock_record() -> None:
    golden = json.loads((HERE / "golden_records.json").read_text(encoding="utf-8"))["ClockRecord"]
    assert golden["record"] == {"writer": "ingest-1"}
    match = re.search(r"^(c301 .*)$", PAGE, re.MULTILINE)
    assert match is not None
    assert match[1].replace(" ", "") == golden["bytes"]


def test_settings_are_named_with_their_defaults() -> None:
    time, measurement = TimeSettings(), MeasurementSettings()
    named = set(re.findall(r"INTERTIDAL_[A-Z]+_[A-Z_]*MS", PAGE))
    of_measurement = ("repeat_ms", "attribution_ms")
    assert named == {env_name(name) for name in ("skew_ms", "heartbeat_ms", "host_ttl_ms", *of_measurement)}
    assert (measurement.repeat_ms, measurement.attribution_ms) == (5 * 60_000, 60 * 60_000)
    assert "within five minutes (`INTERTIDAL_REPEAT_MS`)" in PAGE
    assert "within an hour after" in PAGE
    assert f"the last {MAX_NAMES:,} are remembered" in PAGE
    assert "(`INTERTIDAL_HEARTBEAT_MS`)" in PAGE
    assert f"heartbeat every {time.heartbeat_ms // 1000} s" in PAGE
    assert f"appended for {time.host_ttl_ms // 1000} s" in PAGE
    assert f"`INTERTIDAL_SKEW_MS` ({time.skew_ms // 1000} s)" in PAGE


def test_every_link_leads_to_a_file() -> None:
    links = re.findall(r"\]\(([^)]+)\)", PAGE)
    assert len(links) >= 6
    assert [link for link in links if not (DOCS / link).exists()] == []
