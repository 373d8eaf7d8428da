"""The conformance check: an agent as it should be breaks nothing, and each rule is named when it is broken."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

import pytest
from msgspec.structs import replace

from ops.agent.check_document import RULES, CheckDocument, Rule
from ops.agent.conformance import Conformance
from ops.agent.documents import DOCUMENTS, json_schema
from ops.agent.host_agent import HostAgent, HostAgentSettings
from ops.agent.host_reporter import HostReporter
from ops.agent.moments import Now
from schemas.framing import encode
from schemas.partition import partition_for
from schemas.records import CapacityEvent, ClockRecord, Offer
from schemas.settings import TimeSettings
from schemas.topics import FLEET_CAPACITY
from streams.ingest.cells import Cells
from streams.ingest.partition import RawRecord
from tests.unit.streams.ingest_makers import cells_of, declaration

DOCS = Path(__file__).parents[3] / "docs"
TIME = TimeSettings(window_ms=1_000, lateness_ms=200, heartbeat_ms=5_000, host_ttl_ms=30_000)
START_MS = 1_800_000_000_000
CELL = "us-east"
PARTITION = partition_for(CELL.encode(), FLEET_CAPACITY.num_partitions)
OFFER = Offer(accelerator="h200", units=2.0, cpu_cores=1.0, memory_bytes=1, idle_cause="off_peak")


def good(count: int = 8, *, host: str = "h", epoch_ms: int = START_MS) -> list[CapacityEvent]:
    """What this project's own agent says: an offer, beats, and a reclaim at the end."""
    settings = HostAgentSettings(heartbeat_ns=5 * 10**9, renew_ns=10**18, drain_limit_ns=10**10, phase_ns=5 * 10**9)
    now = Now(epoch_ms, 0)
    agent = HostAgent(HostReporter(cell=CELL, host=host, epoch_ms=epoch_ms), ["h200"], settings, now=now)
    records = list(agent.offer("h200", OFFER, now).records)
    for beat in range(1, count - 1):
        records += agent.tick(Now(epoch_ms + 5_000 * beat, 5 * 10**9 * beat)).records
    last = Now(epoch_ms + 5_000 * (count - 1) - 1, 5 * 10**9 * (count - 1) - 1)
    return [*records, *agent.reclaim("h200", last, reason="owner").records]


def raw(offset: int, record: CapacityEvent, **fields: object) -> RawRecord:
    given = {"append_ms": record.event_time_ms + 3, "key": record.cell.encode(), "value": encode(record), **fields}
    return RawRecord(offset=offset, **given)  # type: ignore[arg-type]


def check(
    records: Sequence[CapacityEvent | RawRecord],
    *,
    cells: Cells | None = None,
    host: str = "",
    partition: int = PARTITION,
) -> CheckDocument:
    declared = replace(declaration(CELL), window_ms=TIME.window_ms)
    known = cells_of(declared, window_ms=TIME.window_ms) if cells is None else cells
    conformance = Conformance(
        time=TIME,
        num_partitions=FLEET_CAPACITY.num_partitions,
        cells=known,
        since_ms=START_MS - 60_000,
        host=host,
    )
    for offset, record in enumerate(records):
        conformance.see(partition, record if isinstance(record, RawRecord) else raw(offset, record))
    return conformance.document()


def rules(document: CheckDocument) -> dict[str, int]:
    return {broken.rule: broken.num_records for broken in document.broken}


def test_the_agent_of_this_project_breaks_no_rule() -> None:
    document = check([*good(), *good(epoch_ms=START_MS + 40_000)])
    assert rules(document) == {}
    assert document.is_conformant
    (seen,) = document.hosts
    assert (seen.num_records, seen.num_epochs, seen.num_missing, seen.num_repeats) == (16, 2, 0, 0)


def test_a_spool_that_is_sent_again_breaks_no_rule() -> None:
    document = check([*good(), *good()[3:]])
    assert (rules(document), document.hosts[0].num_repeats) == ({}, 5)


def test_an_old_epoch_that_a_spool_still_held_breaks_no_rule() -> None:
    old, new = good(), good(epoch_ms=START_MS + 60_000)
    late = [raw(offset, record, append_ms=START_MS + 60_003) for offset, record in enumerate(old)]
    assert rules(check([*late, *new])) == {}


Break = Callable[[list[CapacityEvent]], Sequence[CapacityEvent | RawRecord]]


def changed(at: int, **fields: object) -> Break:
    return lambda records: [*records[:at], replace(records[at], **fields), *records[at + 1 :]]


def as_sent(at: int, **fields: object) -> Break:
    return lambda records: [*records[:at], raw(at, records[at], **fields), *records[at + 1 :]]


BREAKS: dict[str, tuple[Break, str]] = {
    "key": (as_sent(2, key=b"us-west.1"), "key is b'us-west.1'"),
    "no key": (as_sent(2, key=None), "key is None"),
    "cut short": (lambda r: [*r[:2], raw(2, r[2], value=encode(r[2])[:-3]), *good()[2:]], "truncated"),
    "garbage": (lambda r: [*r, raw(99, r[-1], value=b"garbage")], "bad_framing"),
    "empty": (lambda r: [*r, raw(99, r[-1], value=b"")], "empty"),
    "bytes behind": (lambda r: [*r, raw(99, r[-1], value=encode(r[-1]) + b"x")], "behind"),
    "value": (
        lambda r: [*r[:2], raw(2, r[2], value=encode(replace(r[2], offers=[replace(OFFER, units=-1.0)]))), *r[2:]],
        "units",
    ),
    "future time": (
        lambda r: [*r[:2], raw(2, replace(r[2], event_time_ms=START_MS + 18_000), append_ms=START_MS + 10_003), *r[3:]],
        "ahead of the append time",
    ),
    "time back": (
        lambda r: [*r[:3], raw(3, replace(r[3], event_time_ms=START_MS - 60_000), append_ms=START_MS + 15_003), *r[4:]],
        "goes back",
    ),
    "epoch later than its records": (
        lambda r: [replace(each, epoch_ms=START_MS + 500_000, event_time_ms=START_MS) for each in r[:1]],
        "later than",
    ),
    "gap": (lambda r: [*r[:2], *r[4:]], "2 records before number 4"),
    "not from zero": (lambda r: r[2:], "2 records before number 2"),
    "out of order": (lambda r: [*r[:2], r[3], r[2], *r[4:]], "comes after"),
    "number used twice": (
        lambda r: [*r[:4], replace(r[3], event_time_ms=r[3].event_time_ms + 1), *r[4:]],
        "another record",
    ),
    "beat without its snapshot": (changed(3, offers=[]), "1 offers, then 0"),
    "beat that changes": (changed(3, offers=[replace(r, units=3.0) for r in [OFFER]]), "says other than"),
    "empty offer": (changed(0, offers=[]), "offers nothing"),
    "silence": (
        lambda r: [*r[:2], *[raw(i, each, append_ms=each.event_time_ms + 40_000) for i, each in enumerate(r[2:])]],
        "nothing was heard",
    ),
    "two agents": (
        lambda r: [each for pair in zip(r, good(epoch_ms=START_MS + 1), strict=True) for each in pair],
        "goes on after another",
    ),
    "epoch back": (lambda r: [*good(epoch_ms=START_MS + 50_000), *r], "went back"),
}
BROKEN_RULES: dict[str, set[Rule]] = {
    "key": {"key"},
    "no key": {"key"},
    "cut short": {"framing"},
    "garbage": {"framing"},
    "empty": {"framing"},
    "bytes behind": {"framing"},
    "value": {"value"},
    "future time": {"times"},
    "time back": {"times", "epoch"},
    "epoch later than its records": {"times", "epoch"},
    "gap": {"sequence"},
    "not from zero": {"sequence"},
    "out of order": {"sequence"},
    "number used twice": {"sequence"},
    "beat without its snapshot": {"snapshot"},
    "beat that changes": {"snapshot"},
    "empty offer": {"snapshot"},
    "silence": {"heartbeat"},
    "two agents": {"one_agent"},
    "epoch back": {"epoch"},
}


@pytest.mark.parametrize("name", BREAKS)
def test_each_rule_is_named_when_it_is_broken_and_no_other(name: str) -> None:
    breaks, detail = BREAKS[name]
    document = check(breaks(good()))
    assert set(rules(document)) == BROKEN_RULES[name]
    assert not document.is_conformant
    details = [example.detail for broken in document.broken for example in broken.examples]
    assert any(detail in each for each in details), details


def test_a_wrong_partition_and_an_undeclared_cell_are_named() -> None:
    other = (PARTITION + 1) % FLEET_CAPACITY.num_partitions
    assert rules(check(good(), partition=other)) == {"partition": 8}
    assert rules(check(good(), cells=Cells(window_ms=TIME.window_ms))) == {"cell": 8}


def test_what_a_missing_record_may_have_said_is_not_held_against_the_beat_behind_it() -> None:
    changed_offers = [replace(OFFER, units=3.0)]
    records = [good()[0], *[replace(record, offers=changed_offers) for record in good()[2:-1]]]
    assert rules(check(records)) == {"sequence": 1}


def test_the_breaks_above_and_these_cover_every_rule() -> None:
    assert {rule for found in BROKEN_RULES.values() for rule in found} | {"partition", "cell"} == set(RULES)
    assert set(RULES) == set(get_args(Rule))


def test_one_host_alone_is_judged_and_ingests_clock_is_nobodys() -> None:
    bad = [replace(record, host="bad", offers=[]) for record in good()]
    clock = RawRecord(offset=90, append_ms=START_MS, key=None, value=encode(ClockRecord(writer="ingest-1")))
    garbage = RawRecord(offset=91, append_ms=START_MS, key=None, value=b"x")
    document = check([clock, *good(), *bad, garbage], host="h")
    assert (rules(document), document.num_records, [seen.host for seen in document.hosts]) == ({}, 8, ["h"])
    assert rules(check([clock, *bad], host="bad")) == {"snapshot": 1}


def test_examples_are_few_and_all_are_counted() -> None:
    records = [raw(offset, record, key=b"x") for offset, record in enumerate(good(30))]
    (broken,) = check(records).broken
    assert (broken.num_records, len(broken.examples)) == (30, 3)
    assert [example.offset for example in broken.examples] == [0, 1, 2]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_committed_schemas_are_current(name: str) -> None:
    committed = json.loads((DOCS / name).read_text(encoding="utf-8"))
    assert committed == json_schema(name), "renew it by `python -m ops.agent.documents docs`"


def test_the_page_has_every_rule_as_the_command_says_it() -> None:
    page = (DOCS / "agent.md").read_text(encoding="utf-8")
    for rule, meaning in RULES.items():
        assert f"| `{rule}` | {meaning} |" in page
