"""A status on a terminal, in a pipe and in JSON: nothing is cut, nothing is wider than the terminal."""

import io
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from rich.console import Console, RenderableType

from ops.demo.ledger import Ledger
from ops.demo.view import glance, in_full
from ops.status.build import DeadLetterFacts, PartFacts
from ops.status.document import json_schema, to_json
from ops.status.line import status_line
from ops.status.model import Status
from ops.status.parts import PartitionFacts
from ops.status.render import render
from ops.status.words import age, number, size
from tests.unit.ops.status_makers import (
    ALL_WELL,
    NOW_MS,
    WELL,
    capacity_window,
    declaration,
    facts_of,
    interval,
    latency_window,
    part,
    pool,
    status_of,
    target,
)

SCHEMA = Path(__file__).parents[3] / "docs" / "status.schema.json"
LONG = "eu-central-with-a-rather-long-name.shard-17"
WIDTHS = (80, 120)


def crowded() -> Status:
    """Long names, large figures, and something wrong of every kind."""
    records = [
        *WELL,
        declaration(LONG),
        declaration("us-west"),
        target(candidates=1_234_567, cell=LONG, reason="latency", detail="p99 987.6 ms over the limit " * 8),
        capacity_window(cell=LONG, pools=[pool("an-accelerator-with-a-name", units=1_234_567.89), pool("b")]),
        latency_window(cell=LONG, latency_ms=987.6, sheds=[("gate_closed", 1_234_567), ("pressure", 7_654_321)]),
        interval("router-with-a-very-long-name-of-its-host.example", cell=LONG),
    ]
    facts = facts_of(records)
    facts.add_unreadable("t.control.targets", "partition 0, offset 1234567: bad_framing: " + "x" * 90)
    behind = PartitionFacts(
        partition=11, low=0, end=98_765_432, committed=123, newest_ms=NOW_MS, first_ms=NOW_MS - 7_777_000
    )
    letters = DeadLetterFacts(
        topic="t.ranking.work.powerful.dlq", count=1_234_567, num_open=1_234_567, newest_ms=NOW_MS - 61_000
    )
    stalled = PartFacts(part=part("ranker.powerful"), num_members=123, partitions=[behind])
    return status_of(facts=facts, parts=[*ALL_WELL, stalled], dead_letters=[letters], now_ms=NOW_MS + 40_000)


def shown(renderable: RenderableType, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def unwrapped(text: str) -> str:
    """Without what wrapping adds: a figure that is cut is found no more."""
    return re.sub(r"\s+", "", text)


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_and_nothing_is_too_wide(width: int) -> None:
    seen = crowded()
    text = shown(render(seen, with_partitions=True), width)
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= width
    for cell in seen.cells:
        assert cell.cell in text
        for at in cell.pools:
            assert unwrapped(f"{number(at.usable_units)} of {number(at.units)} units usable") in unwrapped(text)
    assert unwrapped("1,234,567 gate_closed, 7,654,321 pressure") in unwrapped(text)
    assert "98,765,309" in text
    assert unwrapped("1234567 candidates") in unwrapped(text)
    for trouble in seen.troubles:
        assert unwrapped(f"{trouble.subject}: {trouble.detail}") in unwrapped(text)


@pytest.mark.parametrize("width", WIDTHS)
def test_each_part_stands_on_one_line(width: int) -> None:
    lines = [line.split() for line in shown(render(status_of()), width).splitlines()]
    for known in ALL_WELL:
        assert any(line[:3] == [known.part.name, known.part.topic.name, "running,"] for line in lines), known.part


@pytest.mark.parametrize("width", WIDTHS)
def test_a_cell_tells_target_reason_latency_sheds_pools_and_reclaims(width: int) -> None:
    text = unwrapped(shown(render(status_of()), width))
    for words in (
        "ok: 1 cell, targets valid",
        "64 to 256 candidates, p99 at most 150 ms, windows of 2 s",
        "112 candidates, was 100; budget 28,000 extras/s; valid for 5.5 s more",
        "rising: p99 leaves",
        "200 samples, 200 requests; window ended 0.5 s ago",
        "37 shed (32 gate_closed, 5 pressure)",
        "2, last 4 s",
        "2 of 3 units usable on 2 hosts; unusable 1 missing_cpu; idle by 3 off_peak; beside them 8 cores and 5 GiB",
        "wide 2 replicas, pressure 0.00",
        "1 router, 1 replica",
        "dead letters none",
    ):
        assert unwrapped(words) in text, words


def test_markup_in_a_name_is_shown_as_it_is() -> None:
    seen = status_of([*WELL, target(100, detail="[red]freeze[/red] by ops")])
    assert "[red]freeze[/red] by ops" in shown(render(seen), 120)


def test_a_line_holds_one_look() -> None:
    assert status_line(status_of()) == (
        "1970-01-01T00:03:20+00:00  ok         us-east 2 units target 112 (rising) p50/p99 40/40 of 150 ms "
        "shed gate_closed=32 pressure=5 reclaims 2  lag ingest 0.0 s control 0.0 s router 0.0 s ranker 0.0 s  "
        "dead letters 0"
    )
    line = status_line(crowded())
    assert "\n" not in line
    assert line.endswith(crowded().verdict.line)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_demos_view_shows_the_same_cells(width: int) -> None:
    facts = facts_of(WELL, append_ms=NOW_MS)
    seen = glance(Ledger(), facts, now_ms=NOW_MS, start_ms=NOW_MS - 5_000, phase="before", restarts={"wide-1": 2})
    text = shown(in_full(seen), width)
    assert "Intertidal, 5 s, before" in text
    assert "wide-1 2 times" in text
    status = shown(render(status_of(facts=facts)), width)
    for label in ("limits", "target", "why", "latency", "extras", "pool"):
        (line,) = [line for line in status.splitlines() if line.startswith(label)]
        assert line in text


def test_the_demos_line_keeps_its_form() -> None:
    seen = glance(Ledger(), facts_of(WELL), now_ms=NOW_MS, start_ms=NOW_MS, phase="before", restarts={})
    assert seen.line() == ("   0.0 s  before     0.0 req/s  p50/p99 -    extras admitted 0 shed 0  late 0  reclaims 0")


def test_the_committed_schema_is_that_of_the_model() -> None:
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == json_schema()


@pytest.mark.parametrize("seen", [status_of(), crowded(), status_of([], parts=[])], ids=["well", "crowded", "empty"])
def test_output_is_valid_by_the_committed_schema(seen: Status) -> None:
    document = json.loads(to_json(seen))
    jsonschema.validate(document, json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", document["time"])


@pytest.mark.parametrize(
    "change", [{"version": 2}, {"cells": None}, {"surprise": 1}, {"verdict": {"state": "fine", "line": ""}}]
)
def test_the_schema_refuses_what_is_not_documented(change: dict[str, Any]) -> None:
    document = json.loads(to_json(status_of())) | change
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, json_schema())


def test_words() -> None:
    assert [number(value) for value in (0, 2.0, 0.125, 1_234_567.891)] == ["0", "2", "0.12", "1,234,567.89"]
    assert [age(value) for value in (-1, 3.14, 150, 9_000, 10**6)] == ["0.0 s", "3.1 s", "2 min", "2 h", "12 days"]
    assert [size(value) for value in (5 << 30, 1 << 20)] == ["5 GiB", "1 MiB"]
