"""Each rule of the processor of a raw partition, one by one, on a log made for it."""

from typing import Any

import pytest
from msgspec import Struct

from schemas.framing import encode
from schemas.records import CellDeclaration, CellRevision, ClockRecord, ControlWindow
from streams.ingest.capacity import MAX_OFFERS, CapacityKind
from streams.ingest.cells import Cells
from streams.ingest.latency import LatencyKind
from streams.ingest.partition import PartitionProcessor, Processed, RawRecord
from streams.ingest.progress import Progress
from tests.unit.streams.ingest_makers import (
    LIMITS,
    NUM_PARTITIONS,
    TIME,
    RawLog,
    account,
    capacity_of,
    cells_in_one_partition,
    cells_of,
    declaration,
    event,
    foreign_cell,
    histogram,
    interval,
    limits_with,
    offer,
)

HOME, (CELL, OTHER_CELL) = cells_in_one_partition(2)
FOREIGN = foreign_cell(HOME)
CLOCK = ClockRecord(writer="w")


def process(log: RawLog, *, kind: Any = None, cells: Cells | None = None) -> Processed:
    return processor(kind=kind, cells=cells).process(log.records)


def processor(*, kind: Any = None, cells: Cells | None = None, start: Progress | None = None) -> PartitionProcessor:
    return PartitionProcessor(
        kind or CapacityKind(),
        HOME,
        num_partitions=NUM_PARTITIONS,
        time=TIME,
        cells=cells or cells_of(declaration(CELL)),
        start=start,
    )


def by_index(out: Processed, cell: str = CELL) -> dict[int, ControlWindow]:
    return {window.window_index: window for window in out.windows if window.cell == cell}


def reasons(out: Processed) -> list[tuple[int, str, str]]:
    return [(refusal.offset, refusal.error.reason, refusal.error.field) for refusal in out.refusals]


def test_a_window_closes_when_the_watermark_passes_its_end_and_not_before() -> None:
    log = RawLog().add(event(at_ms=1_000), 1_000)
    running = processor()
    assert not running.process(log.records).windows
    # The watermark is 1_099, window 10 ends at 1_100.
    closed = running.process([RawRecord(1, 1_119, None, encode(CLOCK))]).windows
    assert [window.window_index for window in closed] == [9]
    closed += running.process([RawRecord(2, 1_120, None, encode(CLOCK))]).windows
    assert [(window.window_index, window.start_ms, window.end_ms) for window in closed] == [
        (9, 900, 1_000), (10, 1_000, 1_100),
    ]  # fmt: skip
    assert capacity_of(closed[1]).num_events == 1


def test_windows_begin_with_the_first_record_that_counts() -> None:
    log = RawLog().add(b"junk", 500, key=b"x").add(CLOCK, 1_000).add(CLOCK, 1_220)
    assert [window.window_index for window in process(log).windows] == [9, 10, 11]


def test_silence_is_closed_by_clock_records_window_by_window() -> None:
    log = RawLog().add(event(at_ms=1_000, offers=[offer(units=2.0)]), 1_000).add(CLOCK, 1_420)
    windows = by_index(process(log))
    assert list(windows) == [9, 10, 11, 12, 13]
    hosts = {index: capacity_of(window).num_hosts for index, window in windows.items()}
    # Alive while the end of the window is at most 200 ms behind the append time.
    assert hosts == {9: 0, 10: 1, 11: 1, 12: 0, 13: 0}
    assert {index: capacity_of(window).num_hosts_silent for index, window in windows.items()} == {
        9: 0,
        10: 0,
        11: 0,
        12: 1,
        13: 0,
    }
    assert [pool.units_micro for pool in capacity_of(windows[11]).pools] == [2_000_000]
    (gone,) = capacity_of(windows[12]).pools
    assert (gone.num_hosts, gone.units_micro, gone.num_hosts_silent, gone.silent_units_micro) == (0, 0, 1, 2_000_000)
    assert capacity_of(windows[13]).pools == []


def test_the_clock_is_the_largest_append_time() -> None:
    log = RawLog().add(CLOCK, 1_000).add(CLOCK, 1_220).add(event(at_ms=1_010), 1_010).add(CLOCK, 1_320)
    windows = by_index(process(log))
    # The record's own append time is behind the clock: window 10 was closed at the clock, the first open one is 12.
    assert capacity_of(windows[12]).num_late == capacity_of(windows[12]).num_events == 1
    assert capacity_of(windows[10]).num_events == 0


def test_what_is_late_goes_to_the_first_open_window_and_is_flagged() -> None:
    log = RawLog().add(CLOCK, 1_000).add(event(at_ms=1_050), 1_119).add(event(host="h-2", at_ms=1_050), 1_120)
    windows = by_index(process(log.add(CLOCK, 1_220)))
    assert [capacity_of(windows[10]).num_events, capacity_of(windows[10]).num_late] == [1, 0]
    assert [capacity_of(windows[11]).num_events, capacity_of(windows[11]).num_late] == [1, 1]


def test_a_record_ahead_of_its_window_waits_for_it() -> None:
    log = RawLog().add(event(at_ms=1_110, offers=[offer(units=3.0)]), 1_090).add(CLOCK, 1_320)
    windows = by_index(process(log))
    assert capacity_of(windows[10]).num_hosts == 0
    assert [pool.units_micro for pool in capacity_of(windows[11]).pools] == [3_000_000]


def test_a_record_from_a_spool_updates_its_host_by_its_number() -> None:
    """The spooled record arrives in a later window than a newer one was ahead for, and loses to it there."""
    log = RawLog()
    log.add(event(seq=1, at_ms=1_000, offers=[offer(units=1.0)]), 1_000)
    log.add(event(seq=2, at_ms=700, offers=[offer(units=5.0)]), 1_010)
    windows = by_index(process(log.add(CLOCK, 1_220)))
    # Late, in the open window 9 that ends before the newer event's: there the spooled record is all there is.
    assert [pool.units_micro for pool in capacity_of(windows[9]).pools] == [5_000_000]
    # The number, not the event time or the window, says what the host offers last.
    assert [pool.units_micro for pool in capacity_of(windows[10]).pools] == [5_000_000]


def test_duplicates_and_old_sequences_are_counted_and_dropped() -> None:
    log = RawLog()
    log.add(event(seq=5, at_ms=1_000, offers=[offer(units=1.0)]), 1_000)
    for seq in (5, 4):
        log.add(event(seq=seq, at_ms=1_001, offers=[offer(units=9.0)]), 1_000)
    capacity = capacity_of(by_index(process(log.add(CLOCK, 1_120)))[10])
    assert (capacity.num_events, capacity.num_duplicates) == (1, 2)
    assert [pool.units_micro for pool in capacity.pools] == [1_000_000]


def test_a_new_epoch_starts_the_numbering_anew_and_an_old_one_does_not() -> None:
    log = RawLog()
    log.add(event(epoch_ms=900, seq=50, at_ms=1_000), 1_000)
    log.add(event(epoch_ms=950, seq=1, at_ms=1_001, offers=[offer(units=2.0)]), 1_001)
    log.add(event(epoch_ms=900, seq=51, at_ms=1_002, offers=[offer(units=9.0)]), 1_002)
    capacity = capacity_of(by_index(process(log.add(CLOCK, 1_120)))[10])
    assert (capacity.num_events, capacity.num_duplicates) == (2, 1)
    assert [pool.units_micro for pool in capacity.pools] == [2_000_000]


def test_sources_of_two_cells_do_not_meet() -> None:
    cells = cells_of(declaration(CELL), declaration(OTHER_CELL))
    log = RawLog().add(event(CELL, at_ms=1_000), 1_000).add(event(OTHER_CELL, at_ms=1_000), 1_000).add(CLOCK, 1_120)
    out = process(log, cells=cells)
    assert [(w.cell, capacity_of(w).num_events) for w in out.windows if w.window_index == 10] == [
        (CELL, 1),
        (OTHER_CELL, 1),
    ]


@pytest.mark.parametrize(
    ("record", "key", "reason", "field"),
    [
        (None, b"us-east", "empty", ""),
        (b"\x07junk", b"us-east", "bad_framing", ""),
        (encode(event(CELL, at_ms=1_000))[:-2], b"us-east", "truncated", "reason"),
        (encode(declaration(CELL)), b"us-east", "unknown_schema", ""),
        (event(CELL, at_ms=1_000, offers=[offer(units=float("nan"))]), b"us-east", "invalid_field", "offers[0].units"),
        (event(CELL, at_ms=1_000, offers=[offer(units=-1.0)]), b"us-east", "invalid_field", "offers[0].units"),
        (event(CELL, at_ms=1_000, offers=[offer()] * (MAX_OFFERS + 1)), b"us-east", "invalid_field", "offers"),
        (event(CELL, at_ms=1_000), b"us-west", "key_mismatch", "cell"),
        (event(CELL, at_ms=1_000), None, "key_mismatch", "cell"),
        (event(FOREIGN, at_ms=1_000), FOREIGN.encode(), "wrong_partition", "cell"),
        (event(OTHER_CELL, at_ms=1_000), OTHER_CELL.encode(), "unknown_cell", "cell"),
        (event(CELL, at_ms=1_000 + TIME.skew_ms + 1), b"us-east", "future_event", "event_time_ms"),
        (event(CELL, at_ms=1_000, epoch_ms=1_000 + TIME.skew_ms + 1), b"us-east", "future_event", "epoch_ms"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_or_believed_is_refused_and_leaves_no_trace(
    record: Struct | bytes | None, key: bytes | None, reason: str, field: str
) -> None:
    """Not in the clock, not in a count, not in the numbering: the same log without it gives the same windows."""
    after = [event(CELL, at_ms=1_000), CLOCK]
    poisoned = RawLog().add(CLOCK, 1_000).add(record, 1_000, key=key).add(after[0], 1_001).add(after[1], 1_420)
    clean = RawLog().add(CLOCK, 1_000).add(after[0], 1_001).add(after[1], 1_420)
    out = process(poisoned)
    assert reasons(out) == [(1, reason, field)]
    assert out.windows == process(clean).windows
    # Appended far ahead it moves no watermark either.
    assert reasons(process(RawLog().add(CLOCK, 1_000).add(b"junk", 9_000, key=b"x"))) == [(1, "bad_framing", "")]
    assert not process(RawLog().add(CLOCK, 1_000).add(b"junk", 9_000, key=b"x")).windows


def test_an_event_may_be_ahead_by_the_allowed_skew() -> None:
    log = RawLog().add(event(at_ms=1_000 + TIME.skew_ms, epoch_ms=1_000 + TIME.skew_ms), 1_000)
    assert not process(log).refusals


def test_a_believable_but_self_contradicting_interval_is_refused() -> None:
    kind = LatencyKind()
    broken = histogram(1.0, 2.0)
    log = RawLog()
    log.add(interval(at_ms=1_000, latency=type(broken)(**_fields(broken) | {"count": 7})), 1_000)
    log.add(interval(at_ms=1_000, accounts=[_with(account("rma", admitted=3, pressure=2), offered=6)]), 1_000)
    log.add(interval(at_ms=1_000, accounts=[_with(account("rma", admitted=3), offered_value_micro=1)]), 1_000)
    assert reasons(process(log, kind=kind)) == [
        (0, "invalid_field", "latency"), (1, "invalid_field", "accounts[0]"), (2, "invalid_field", "accounts[0]"),
    ]  # fmt: skip


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


def _with(record: Any, **changes: Any) -> Any:
    return type(record)(**_fields(record) | changes)


def test_a_cell_has_windows_from_its_first_to_its_last_and_records_only_there() -> None:
    cells = cells_of(declaration(CELL), declaration(OTHER_CELL, from_window=12, until_window=14))
    log = RawLog().add(CLOCK, 1_000)
    for at_ms in (1_190, 1_200, 1_399, 1_400):
        log.add(event(OTHER_CELL, host=f"h-{at_ms}", at_ms=at_ms), at_ms)
    out = process(log.add(CLOCK, 1_720), cells=cells)
    assert reasons(out) == [(1, "unknown_cell", "cell"), (4, "unknown_cell", "cell")]
    assert {index: capacity_of(window).num_events for index, window in by_index(out, OTHER_CELL).items()} == {
        12: 1,
        13: 1,
    }
    assert list(by_index(out)) == [9, 10, 11, 12, 13, 14, 15, 16]


def test_a_record_for_a_window_that_a_cell_has_not_reached_yet_is_kept() -> None:
    cells = cells_of(declaration(OTHER_CELL, from_window=12))
    log = RawLog().add(CLOCK, 1_150).add(event(OTHER_CELL, at_ms=1_200), 1_160).add(CLOCK, 1_220).add(CLOCK, 1_320)
    windows = by_index(process(log, cells=cells), OTHER_CELL)
    assert {index: capacity_of(window).num_events for index, window in windows.items()} == {12: 1}


def test_a_window_carries_the_limits_in_force_in_it() -> None:
    changed = limits_with(max_candidates=900)
    cells = Cells(window_ms=TIME.window_ms)
    cells.declare(
        CellDeclaration(
            cell=CELL,
            window_ms=TIME.window_ms,
            revisions=[CellRevision(from_window=0, limits=LIMITS), CellRevision(from_window=11, limits=changed)],
        )
    )
    windows = by_index(process(RawLog().add(CLOCK, 1_000).add(CLOCK, 1_220), cells=cells))
    assert [capacity_of(windows[index]).limits for index in (9, 10, 11)] == [LIMITS, LIMITS, changed]


def test_a_declaration_that_comes_while_it_runs_is_in_force_at_once() -> None:
    cells = cells_of(declaration(CELL))
    running = processor(cells=cells)
    running.process(RawLog().add(CLOCK, 1_000).add(event(OTHER_CELL, at_ms=1_000), 1_000).records)
    cells.declare(declaration(OTHER_CELL))
    out = running.process(
        [
            RawRecord(2, 1_010, OTHER_CELL.encode(), encode(event(OTHER_CELL, seq=2, at_ms=1_010))),
            RawRecord(3, 1_120, None, encode(CLOCK)),
        ]
    )
    assert not out.refusals
    assert capacity_of(by_index(out, OTHER_CELL)[10]).num_events == 1


def test_a_declaration_in_other_windows_is_refused_and_the_old_one_stands() -> None:
    cells = cells_of(declaration(CELL))
    other = encode(CellDeclaration(cell=CELL, window_ms=999, revisions=[CellRevision(from_window=0, limits=LIMITS)]))
    with pytest.raises(Exception, match="windows of 999 ms"):
        cells.read(CELL.encode(), other)
    with pytest.raises(Exception, match="key_mismatch"):
        cells.read(b"another", encode(declaration(CELL)))
    assert cells.in_force(3, partition=HOME, num_partitions=NUM_PARTITIONS) == {CELL: LIMITS}
    cells.read(CELL.encode(), None)
    assert len(cells) == 0


def test_a_restart_reads_the_horizon_again_and_no_more() -> None:
    """At most two times to live, the lateness, one window and the spacing of marks behind the clock."""
    log = RawLog()
    for number in range(1_000):
        log.add(event(host=f"h-{number % 7}", seq=number, at_ms=10 * number), 10 * number)
    running = processor()
    running.process(log.records)
    progress = running.progress()
    assert progress.last_offset == 999
    assert progress.next_window == (9_990 - TIME.lateness_ms) // TIME.window_ms
    horizon_ms = progress.next_window * TIME.window_ms - 2 * TIME.host_ttl_ms
    assert horizon_ms - 2 * TIME.window_ms <= log.records[progress.offset].append_ms <= horizon_ms
    assert progress.before_ms == log.records[progress.offset - 1].append_ms


def test_progress_never_forgets_what_is_out_already() -> None:
    """Killed again while it re-reads: the first window not emitted and the last offset stay."""
    start = Progress(offset=0, before_ms=None, last_offset=50, largest_ms=2_000, next_window=19)
    running = processor(start=start)
    assert not running.process(RawLog().add(b"junk", 900, key=b"x").records).refusals
    after_poison = running.progress()
    assert (after_poison.next_window, after_poison.last_offset, after_poison.largest_ms) == (19, 50, 2_000)
    assert not running.process(
        [RawRecord(1, 1_000, None, encode(CLOCK)), RawRecord(2, 1_500, None, encode(CLOCK))]
    ).windows
    assert (running.progress().next_window, running.progress().last_offset) == (19, 50)
    assert [w.window_index for w in running.process([RawRecord(51, 2_120, None, encode(CLOCK))]).windows] == [19, 20]


def test_a_skew_longer_than_the_time_to_live_is_read_again_too() -> None:
    """A record may be that far ahead of its window, and so must its horizon be."""
    time = type(TIME)(**{**_settings(), "skew_ms": 900})
    ahead = event(at_ms=1_850, seq=3)
    log = RawLog().add(CLOCK, 1_000).add(ahead, 1_000)
    for append_ms in range(1_050, 1_800, 50):
        log.add(CLOCK, append_ms)
    arguments: dict[str, Any] = {"num_partitions": NUM_PARTITIONS, "time": time, "cells": cells_of(declaration(CELL))}
    first = PartitionProcessor(CapacityKind(), HOME, **arguments)
    first.process(log.records)
    start = first.progress()
    second = PartitionProcessor(CapacityKind(), HOME, start=start, **arguments)
    tail = [*log.records, RawRecord(len(log.records), 1_920, None, encode(CLOCK))]
    assert capacity_of(by_index(second.process(tail[start.offset :]))[18]).num_events == 1


def _settings() -> dict[str, int]:
    return {name: getattr(TIME, name) for name in TIME.__dataclass_fields__}


def test_windows_shorter_than_the_skew_keep_what_is_far_ahead() -> None:
    """A record two windows ahead, of a cell that begins there, outlives the closing of the windows before."""
    time = type(TIME)(**{**_settings(), "skew_ms": 300})
    cells = cells_of(declaration(OTHER_CELL, from_window=13))
    running = PartitionProcessor(CapacityKind(), HOME, num_partitions=NUM_PARTITIONS, time=time, cells=cells)
    log = RawLog().add(CLOCK, 1_110).add(event(OTHER_CELL, at_ms=1_310), 1_110).add(CLOCK, 1_220).add(CLOCK, 1_420)
    windows = by_index(running.process(log.records), OTHER_CELL)
    assert {index: capacity_of(window).num_events for index, window in windows.items()} == {13: 1}


def test_a_time_to_live_shorter_than_the_window_can_end_before_the_window_does() -> None:
    time = type(TIME)(**{**_settings(), "host_ttl_ms": 100})
    running = PartitionProcessor(
        CapacityKind(), HOME, num_partitions=NUM_PARTITIONS, time=time, cells=cells_of(declaration(CELL))
    )
    log = RawLog().add(CLOCK, 1_000).add(event(at_ms=1_100), 1_050).add(CLOCK, 1_320)
    capacity = capacity_of(by_index(running.process(log.records))[11])
    # It was never alive at a window's end, so it did not fall silent either.
    assert (capacity.num_events, capacity.num_hosts, capacity.num_hosts_silent) == (1, 0, 0)
