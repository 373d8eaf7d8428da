"""Who is waited for until a gate has drained, and whose slot it is, on a fake clock."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from schemas.gate import (
    NUM_SLOTS,
    GateError,
)
from schemas.gate_drain import RankerDrain
from schemas.gate_folder import GateFolder
from tests.unit.schemas.gate_host import Host


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "run")


def test_draining_reports_each_rankers_times(host: Host) -> None:
    writer = host.writer()
    working, idle, late = host.reader(), host.reader(), host.reader()
    writer.open(lease_s=60)
    host.pass_s(1)
    generation = writer.close()
    closed_ns = host.now_ns
    idle.acknowledge(generation, last_chunk_end_ns=closed_ns - 500, drained_ns=closed_ns + 9)
    sleeps = []

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        host.pass_s(seconds)
        if len(sleeps) == 3:
            working.acknowledge(generation, last_chunk_end_ns=closed_ns + 2_000, drained_ns=closed_ns + 7_000)

    report = writer.wait_drained(0.010, poll_s=0.001, sleep=sleep)
    assert (report.generation, report.closed_ns, report.dead_pids) == (generation, closed_ns, ())
    assert report.drained == (RankerDrain(os.getpid(), 2_000, 7_000), RankerDrain(os.getpid(), 0, 9))
    assert report.pending_pids == (os.getpid(),)
    assert sum(sleeps) == pytest.approx(0.010)

    late.close()
    newcomer = host.reader()
    report = writer.wait_drained(0.010, sleep=sleep)
    assert (len(report.drained), report.pending_pids) == (2, ())
    # The newcomer had nothing to give back then, but has to at the next closing.
    writer.open(lease_s=60)
    next_generation = writer.close()
    assert len(writer.wait_drained(0.0, sleep=sleep).pending_pids) == 3
    for ranker in [working, idle, newcomer]:
        ranker.acknowledge(next_generation, last_chunk_end_ns=host.now_ns, drained_ns=host.now_ns)
    assert len(writer.wait_drained(0.0, sleep=sleep).drained) == 3


def test_a_ranker_that_has_drained_and_left_is_reported(host: Host) -> None:
    writer = host.writer()
    leaving, silent = host.reader(), host.reader()
    writer.open(lease_s=60)
    generation = writer.close()
    leaving.acknowledge(generation, last_chunk_end_ns=host.now_ns + 3, drained_ns=host.now_ns + 5)
    for ranker in [leaving, silent]:
        ranker.close()
    report = writer.wait_drained(0.0)
    assert (report.drained, report.pending_pids) == ((RankerDrain(os.getpid(), 3, 5),), ())

    # Not at the next closing again.
    writer.open(lease_s=60)
    writer.close()
    assert writer.wait_drained(0.0).drained == ()


def test_a_ranker_is_asked_for_each_closing_once_and_only_when_it_has_its_number(host: Host) -> None:
    reader = host.reader()
    assert reader.closing_to_acknowledge() is None
    writer = host.writer()
    host.pass_s(1)
    reader.is_open()
    assert reader.closing_to_acknowledge() is None
    writer.open(lease_s=60)
    assert reader.closing_to_acknowledge() is None
    opened, _ = host.read()
    with host.path.open("r+b") as file:
        file.write(replace(opened, is_open=False).pack())  # the closing's first step
    assert not reader.is_open()
    assert reader.closing_to_acknowledge() is None
    with host.path.open("r+b") as file:
        file.write(opened.pack())

    writer.close()
    assert reader.closing_to_acknowledge() == 2
    reader.acknowledge(2, last_chunk_end_ns=1, drained_ns=1)
    assert reader.closing_to_acknowledge() is None


def test_dead_rankers_and_reused_pids_do_not_block(host: Host) -> None:
    writer = host.writer()
    host.reader(), host.reader()
    host.rewrite_slots(lambda n, slot: replace(slot, pid=[400, 401][n]) if n < 2 else slot)
    host.started |= {401: 999}  # 400 is gone; 401 is another process by now
    writer.open(lease_s=60)
    writer.close()
    report = writer.wait_drained(1.0, sleep=lambda _: pytest.fail("waited for the dead"))
    assert (report.dead_pids, report.pending_pids) == ((400, 401), ())


def test_draining_an_open_gate_is_refused(host: Host) -> None:
    writer = host.writer()
    writer.open(lease_s=60)
    with pytest.raises(GateError, match="is open"):
        writer.wait_drained(1.0)


def test_slots_are_released_and_those_of_the_dead_claimed_again(host: Host) -> None:
    writer = host.writer()
    readers = [host.reader() for _ in range(NUM_SLOTS)]
    assert len(writer.rankers()) == NUM_SLOTS
    writer.open(lease_s=600)
    one_more = host.reader()
    assert not one_more.is_open(), "a ranker that the agent cannot wait for must not work"
    assert f"all {NUM_SLOTS} slots" in (one_more.problem or "")

    readers[5].close()
    assert not readers[5].is_open()
    host.pass_s(1)
    one_more.is_open()
    assert one_more.is_open()
    host.rewrite_slots(lambda n, slot: replace(slot, pid=400) if n == 9 else slot)
    assert host.reader().is_open()
    assert len(writer.rankers()) == NUM_SLOTS
    assert host.read()[1][9].pid == os.getpid()


def test_a_closed_reader_never_attaches_again(host: Host) -> None:
    writer, reader = host.writer(), host.reader()
    writer.open(lease_s=10_000)
    reader.close()
    reader.close()
    host.pass_s(60)
    assert not reader.is_open()
    assert not reader.is_open()
    assert writer.rankers() == ()


def test_a_held_lock_does_not_hold_up_a_look(host: Host) -> None:
    writer = host.writer()
    writer.open(lease_s=60)
    folder = GateFolder(host.folder, create=False)
    with folder.locked(wait=True):
        reader = host.reader()
        assert not reader.is_open()
    assert "locked" in (reader.problem or "")
    host.pass_s(1)
    reader.is_open()
    assert reader.is_open()
