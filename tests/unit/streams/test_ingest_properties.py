"""Properties of ingest over random logs: the windows are a function of the log, whatever the reading was like."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.framing import encode
from schemas.settings import TimeSettings
from streams.ingest.aggregate import Kind
from streams.ingest.capacity import CapacityKind
from streams.ingest.latency import LatencyKind
from streams.ingest.partition import PartitionProcessor, Processed, RawRecord, recompute
from streams.ingest.progress import Progress, from_metadata, to_metadata
from tests.unit.streams.ingest_logs import DECLARED, HOME, MakeRecord, capacity_record, latency_record, logs
from tests.unit.streams.ingest_makers import NUM_PARTITIONS, TIME, cells_of
from tests.unit.streams.ingest_oracle import accepted_and_refused, capacity_figures, figures_of

CAPACITY, LATENCY = CapacityKind(), LatencyKind()
# As TIME, but for the time to live.
SHORT_LIVED = replace(TIME, host_ttl_ms=60, heartbeat_ms=30)
SEEDS = st.integers(0, 2**32)
both_kinds = pytest.mark.parametrize(
    ("kind", "make"), [(CAPACITY, capacity_record), (LATENCY, latency_record)], ids=["capacity", "latency"]
)


def processor(kind: Kind, start: Progress | None = None) -> PartitionProcessor:
    return PartitionProcessor(
        kind, HOME, num_partitions=NUM_PARTITIONS, time=TIME, cells=cells_of(*DECLARED), start=start
    )


def once(kind: Kind, log: Sequence[RawRecord], *, time: TimeSettings = TIME) -> Processed:
    return recompute(log, kind, HOME, num_partitions=NUM_PARTITIONS, time=time, cells=cells_of(*DECLARED))


def windows(out: Processed) -> list[bytes]:
    return [encode(window) for window in out.windows]


def refusals(out: Processed) -> list[tuple[int, str]]:
    return [(refusal.offset, refusal.error.reason) for refusal in out.refusals]


@pytest.mark.parametrize("time", [TIME, SHORT_LIVED], ids=["", "hosts live for less than a window"])
@settings(max_examples=300)
@given(log=logs(capacity_record))
def test_capacity_windows_are_what_the_definitions_say(time: TimeSettings, log: list[RawRecord]) -> None:
    out = once(CAPACITY, log, time=time)
    expected = capacity_figures(log, home=HOME, num_partitions=NUM_PARTITIONS, time=time, cells=DECLARED)
    assert {(window.cell, window.window_index): figures_of(window) for window in out.windows} == expected
    _, _, refused, _ = accepted_and_refused(log, home=HOME, num_partitions=NUM_PARTITIONS, time=time, cells=DECLARED)
    assert dict(refusals(out)) == refused


@both_kinds
@settings(max_examples=80)
@given(data=st.data(), seed=SEEDS)
def test_batch_boundaries_change_nothing(kind: Kind, make: MakeRecord, data: st.DataObject, seed: int) -> None:
    log = data.draw(logs(make))
    rng = random.Random(seed)
    whole, cut = once(kind, log), processor(kind)
    sent, refused = [], []
    rest = log
    while rest:
        size = rng.randrange(1, 10)
        out = cut.process(rest[:size])
        sent += windows(out)
        refused += refusals(out)
        rest = rest[size:]
    assert (sent, refused) == (windows(whole), refusals(whole))


@both_kinds
@settings(max_examples=150)
@given(data=st.data(), seed=SEEDS)
def test_a_restart_at_any_commit_sends_the_same_windows_and_dead_letters(
    kind: Kind, make: MakeRecord, data: st.DataObject, seed: int
) -> None:
    """Crashes fall anywhere, between sending and committing too: then what was sent is sent again, byte for byte."""
    log = data.draw(logs(make))
    rng = random.Random(seed)
    whole = once(kind, log)
    sent: set[bytes] = set()
    refused: set[tuple[int, str]] = set()
    start = Progress(offset=0)
    for _ in range(rng.randrange(1, 5)):
        running, position = processor(kind, start), start.offset
        crash_at = rng.randint(position, len(log))
        while position < crash_at:
            end = min(position + rng.randrange(1, 13), crash_at)
            out = running.process(log[position:end])
            position = end
            sent.update(windows(out))
            refused.update(refusals(out))
            if rng.random() < 0.5:
                start = through_the_broker(running.progress())
    last = processor(kind, start).process(log[start.offset :])
    assert sent | {*windows(last)} == {*windows(whole)}
    assert refused | {*refusals(last)} == {*refusals(whole)}
    # What is out already is not sent again.
    assert start.next_window is None or all(window.window_index >= start.next_window for window in last.windows)
    assert all(refusal.offset > start.last_offset for refusal in last.refusals)


def through_the_broker(progress: Progress) -> Progress:
    return from_metadata(progress.offset, to_metadata(progress, window_ms=TIME.window_ms), window_ms=TIME.window_ms)


@settings(max_examples=80)
@given(log=logs(capacity_record), seed=SEEDS)
def test_the_order_of_cells_among_equal_append_times_changes_no_window(log: list[RawRecord], seed: int) -> None:
    """Two records of different cells that were appended together may stand in either order."""
    rng = random.Random(seed)
    other = list(log)
    for _ in range(30):
        index = rng.randrange(len(other))
        if index + 1 < len(other):
            one, two = other[index], other[index + 1]
            if one.append_ms == two.append_ms and one.key != two.key:
                other[index], other[index + 1] = two._replace(offset=one.offset), one._replace(offset=two.offset)
    assert sorted(windows(once(CAPACITY, other))) == sorted(windows(once(CAPACITY, log)))


@settings(max_examples=40)
@given(capacity=logs(capacity_record), latency=logs(latency_record), seed=SEEDS)
def test_the_interleaving_of_partitions_changes_nothing(
    capacity: list[RawRecord], latency: list[RawRecord], seed: int
) -> None:
    rng = random.Random(seed)
    running = {"capacity": processor(CAPACITY), "latency": processor(LATENCY)}
    rest = {"capacity": capacity, "latency": latency}
    sent: dict[str, list[bytes]] = {"capacity": [], "latency": []}
    while any(rest.values()):
        name = rng.choice([name for name, log in rest.items() if log])
        size = rng.randrange(1, 21)
        sent[name] += windows(running[name].process(rest[name][:size]))
        rest[name] = rest[name][size:]
    assert sent == {"capacity": windows(once(CAPACITY, capacity)), "latency": windows(once(LATENCY, latency))}
