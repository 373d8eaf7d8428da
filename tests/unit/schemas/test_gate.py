"""The gate on a fake clock: its bytes, who is let through, who is waited for, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from schemas.gate import (
    GATE_SIZE_BYTES,
    NUM_SLOTS,
    TAKEN,
    FlipReason,
    GateError,
    GateHeader,
    RankerSlot,
    pack_gate,
    unpack_gate,
)
from schemas.gate_reader import ATTACH_EVERY_NS
from tests.unit.schemas.gate_host import BOOT, Host, killed


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "run")


def test_golden_bytes_of_the_layout() -> None:
    """Any change of the layout changes this, and must change VERSION."""
    header = GateHeader(
        boot_id=BOOT,
        is_open=True,
        lease_until_ns=0x0102030405060708,
        generation=3,
        opened_ns=4,
        closed_ns=5,
        reason=FlipReason.OFFERED,
        notice_ns=6,
        agent_pid=7,
    )
    slot = RankerSlot(
        pid=1,
        pid_start=2,
        state=TAKEN,
        generation=4,
        last_chunk_end_ns=5,
        drained_ns=0x0A0B0C0D0E0F0102,
        heartbeat_ns=8,
    )

    assert header.pack().hex(" ", 8) == (
        "4954444c47415445 0100000040000000 0100000000000000 0807060504030201 0300000000000000 0400000000000000 "
        "0500000000000000 0100000000000000 0600000000000000 0700000000000000 0001020304050607 08090a0b0c0d0e0f "
        "0000000000000000 0000000000000000 0000000000000000 0000000000000000"
    )
    assert slot.pack().hex(" ", 8) == (
        "0100000000000000 0200000000000000 0100000000000000 0400000000000000 0500000000000000 02010f0e0d0c0b0a "
        "0800000000000000 0000000000000000"
    )
    assert len(pack_gate(header)) == GATE_SIZE_BYTES == 128 + 64 * 64
    assert unpack_gate(Path("x"), pack_gate(header)) == (header, (RankerSlot(),) * NUM_SLOTS)


def test_live_words_are_the_packed_fields(host: Host) -> None:
    """Agent and rankers write single words in place; they must be those of the layout."""
    writer, reader = host.writer(), host.reader()
    host.pass_s(1)
    writer.open(lease_s=3)
    writer.notice(9_000_000_000)
    reader.acknowledge(0, last_chunk_end_ns=11, drained_ns=12)

    header, slots = host.read()
    assert header == GateHeader(
        boot_id=BOOT,
        is_open=True,
        lease_until_ns=5_000_000_000,
        generation=1,
        opened_ns=2_000_000_000,
        reason=FlipReason.OFFERED,
        notice_ns=9_000_000_000,
        agent_pid=os.getpid(),
    )
    assert slots[0] == RankerSlot(os.getpid(), 77, TAKEN, 0, 11, 12, 2_000_000_000)
    assert slots[1:] == (RankerSlot(),) * (NUM_SLOTS - 1)
    assert writer.rankers() == (slots[0],)

    host.pass_s(1)
    writer.close()
    header, _ = host.read()
    assert header == GateHeader(
        boot_id=BOOT,
        generation=2,
        opened_ns=2_000_000_000,
        closed_ns=3_000_000_000,
        reason=FlipReason.RECLAIMED,
        agent_pid=os.getpid(),
    )


def test_a_flip_is_seen_at_once_and_counted(host: Host) -> None:
    writer, reader = host.writer(), host.reader()
    assert not reader.is_open()
    assert writer.open(lease_s=5) == 1
    assert (reader.is_open(), reader.generation, reader.reason) == (True, 1, FlipReason.OFFERED)

    writer.notice(host.now_ns + 7)
    assert reader.notice_ns == host.now_ns + 7
    host.pass_s(1)
    assert writer.close(FlipReason.OPERATOR) == 2
    assert (reader.is_open(), reader.generation, reader.reason) == (False, 2, FlipReason.OPERATOR)
    assert (reader.closed_ns, reader.notice_ns) == (host.now_ns, 0)
    # Closed and opened again between two looks: the generation tells.
    writer.open(lease_s=5)
    assert (reader.is_open(), reader.generation) == (True, 3)


def test_flipping_to_what_it_is_already_is_no_flip(host: Host) -> None:
    writer = host.writer()
    assert (writer.open(lease_s=5), writer.open(lease_s=9)) == (1, 1)
    assert host.read()[0].lease_until_ns == host.now_ns + 9_000_000_000
    assert writer.close(FlipReason.RECLAIMED) == 2
    closed_ns = host.now_ns
    host.pass_s(1)
    assert writer.close(FlipReason.OPERATOR) == 2
    header, _ = host.read()
    assert (header.reason, header.closed_ns) == (FlipReason.RECLAIMED, closed_ns)


def test_a_gate_whose_lease_ran_out_is_closed(host: Host) -> None:
    writer, reader = host.writer(), host.reader()
    writer.open(lease_s=2)
    assert reader.is_open(host.now_ns + 1_999_999_999)
    assert not reader.is_open(host.now_ns + 2_000_000_000)

    host.pass_s(1.5)
    assert writer.renew(lease_s=2)
    host.pass_s(1.5)
    assert reader.is_open()


def test_a_lease_that_ran_out_is_not_renewed_but_opened_anew(host: Host) -> None:
    writer, reader = host.writer(), host.reader()
    writer.open(lease_s=2)
    host.pass_s(2)
    assert not writer.renew(lease_s=2)
    assert (reader.is_open(), reader.generation, reader.reason) == (False, 2, FlipReason.LEASE_EXPIRED)
    assert not writer.renew(lease_s=2)
    assert writer.open(lease_s=2) == 3
    assert reader.is_open()

    host.pass_s(2)
    assert writer.open(lease_s=2) == 5


@pytest.mark.parametrize("lease_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_lease_must_be_a_time(host: Host, lease_s: float) -> None:
    writer = host.writer()
    with pytest.raises(ValueError, match="lease_s"):
        writer.open(lease_s=lease_s)
    assert not host.reader().is_open()


def test_every_order_of_an_openings_writes_reads_as_closed_until_complete(host: Host) -> None:
    """The byte alone does not open a gate: a closed one has no lease, so that even reordered stores are safe."""
    writer, reader = host.writer(), host.reader()
    writer.open(lease_s=100)
    writer.close()
    header, _ = host.read()
    assert header.lease_until_ns == 0
    with host.path.open("r+b") as file:
        file.write(replace(header, is_open=True).pack())
    assert not reader.is_open()
    with host.path.open("r+b") as file:
        file.write(replace(header, lease_until_ns=host.now_ns + 10**9).pack())
    assert not reader.is_open()


def test_a_reader_before_its_agent_is_blind_and_attaches_later(host: Host) -> None:
    reader = host.reader()
    assert (reader.is_open(), reader.is_attached, reader.generation) == (False, False, 0)
    assert "does not exist" in (reader.problem or "")
    reader.acknowledge(1, last_chunk_end_ns=1, drained_ns=1)

    writer = host.writer()
    writer.open(lease_s=60)
    assert not reader.is_open(host.now_ns + ATTACH_EVERY_NS - 1)  # not a system call per look
    assert not reader.is_attached
    reader.is_open(host.now_ns + ATTACH_EVERY_NS)
    assert (reader.is_attached, reader.problem) == (True, None)
    assert reader.is_open()


NEWER = pack_gate(GateHeader(BOOT))[:8] + b"\x02" + pack_gate(GateHeader(BOOT))[9:]


def lay(host: Host, image: bytes) -> None:
    host.folder.mkdir(mode=0o700)
    host.path.write_bytes(image)
    host.path.chmod(0o600)


@pytest.mark.parametrize("image", [NEWER, NEWER[:2_000]], ids=["whole", "shorter"])
def test_a_file_of_another_version_is_refused_by_name_and_left_alone(host: Host, image: bytes) -> None:
    """It may be in use: by programs that speak that version."""
    lay(host, image)
    with pytest.raises(GateError, match="version 2") as caught:
        host.writer()
    assert caught.value.path == host.path
    assert str(host.path) in str(caught.value)
    reader = host.reader()
    assert not reader.is_open()
    assert "version 2" in (reader.problem or "")
    assert host.path.read_bytes() == image


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (b"", "too short"),
        (pack_gate(GateHeader(BOOT))[:-1], "4223 bytes"),
        (pack_gate(GateHeader(BOOT)) + b"x", "4225 bytes"),
        (b"NOTAGATE" + pack_gate(GateHeader(BOOT))[8:], "not a gate"),
    ],
)
def test_a_broken_file_reads_as_closed_and_is_made_anew_by_its_agent(
    host: Host, image: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    lay(host, image)
    reader = host.reader()
    assert not reader.is_open()
    assert reason in (reader.problem or "")

    writer = host.writer()
    assert reason in caplog.text
    assert host.read()[0] == GateHeader(BOOT, agent_pid=os.getpid())
    writer.open(lease_s=60)
    host.pass_s(1)
    reader.is_open()
    assert reader.is_open()
    with pytest.raises(GateError, match="another agent holds it"):
        host.writer()


@pytest.mark.parametrize("size", [0, 20, 130, GATE_SIZE_BYTES - 8, GATE_SIZE_BYTES + 8])
def test_a_file_cut_short_in_use_closes_the_gate_and_ends_nobody(host: Host, size: int) -> None:
    writer, reader = host.writer(), host.reader()
    writer.open(lease_s=60)
    assert reader.is_open()
    os.truncate(host.path, size)
    assert not reader.is_open()
    assert reader.problem
    assert (reader.generation, reader.is_attached, reader.closing_to_acknowledge()) == (0, False, None)
    reader.acknowledge(1, last_chunk_end_ns=1, drained_ns=1)
    reader.heartbeat()
    assert host.path.stat().st_size == size, "a write behind the end would fill the file with nothing"

    # The agent makes it anew, closed, and numbers on; whoever waits for rankers waits for none that cannot answer.
    assert writer.close() == 2
    assert writer.wait_drained(1.0, sleep=lambda _: pytest.fail("waited for nobody")).pending_pids == ()
    host.pass_s(1)
    assert not reader.is_open()
    assert reader.is_attached
    assert writer.open(lease_s=60) == 3
    assert reader.is_open()
    writer.close()
    assert writer.wait_drained(0.0).pending_pids == (os.getpid(),)
    reader.close()
    writer.shutdown()


def test_a_file_cut_short_between_two_looks_is_no_reason_to_write_to_it(host: Host) -> None:
    host.writer()
    reader = host.reader()
    os.truncate(host.path, 100)
    reader.heartbeat()
    assert (reader.is_attached, host.path.stat().st_size) == (False, 100)


@pytest.mark.parametrize("how", ["open", "renew", "notice", "rankers", "shutdown"])
def test_an_agent_whose_file_was_broken_goes_on_with_a_new_one(host: Host, how: str) -> None:
    writer = host.writer()
    host.path.write_bytes(b"spilled over it")
    calls: dict[str, Callable[[], object]] = {
        "open": lambda: writer.open(lease_s=5),
        "renew": lambda: writer.renew(lease_s=5),
        "notice": lambda: writer.notice(7),
        "rankers": writer.rankers,
        "shutdown": writer.shutdown,
    }
    calls[how]()
    assert host.read()[0].is_open == (how == "open")


def test_a_replaced_file_is_found(host: Host) -> None:
    """Somebody cleared the folder, and an agent made a new file: the old mapping must not be the last word."""
    writer, reader = host.writer(), host.reader()
    writer.shutdown()
    host.path.unlink()
    host.writer().open(lease_s=60)

    host.pass_s(1)
    reader.is_open()
    assert reader.is_open()
    assert host.read()[1][0].state == TAKEN


def test_a_second_agent_is_refused_until_the_first_lets_go(host: Host) -> None:
    first = host.writer()
    with pytest.raises(GateError, match=f"another agent holds it, pid {os.getpid()}"):
        host.writer()
    first.shutdown()
    first.shutdown()
    host.writer().shutdown()


def test_shutting_down_closes(host: Host) -> None:
    with host.writer() as writer:
        writer.open(lease_s=60)
        reader = host.reader()
        assert reader.is_open()
    assert (reader.is_open(), reader.reason) == (False, FlipReason.AGENT_STOPPED)


def test_a_restarted_agent_closes_what_a_killed_one_left_open(host: Host) -> None:
    killed_writer, reader = host.writer(), host.reader()
    killed_writer.open(lease_s=60)
    with killed(killed_writer):
        assert reader.is_open()
    host.writer()
    assert (reader.is_open(), reader.generation, reader.reason) == (False, 2, FlipReason.AGENT_RESTARTED)


@pytest.mark.parametrize("is_open", [False, True])
def test_a_restarted_agent_finishes_a_flip_that_was_cut_short(host: Host, is_open: bool) -> None:
    host.writer().shutdown()
    header, _ = host.read()
    with host.path.open("r+b") as file:
        file.write(replace(header, lease_until_ns=host.now_ns + 10**9, is_open=is_open, generation=1).pack())
    host.writer()
    header, _ = host.read()
    assert (header.is_open, header.generation, header.lease_until_ns) == (False, 2, 0)


def test_a_lease_from_before_a_boot_is_not_believed(host: Host) -> None:
    """The monotonic clock starts again: an old deadline would lie far ahead."""
    writer = host.writer()
    host.reader()
    host.now_ns = 10**15
    writer.open(lease_s=60)
    with killed(writer):
        host.boot, host.now_ns = bytes(16), 10**9
        reader = host.reader()
    assert not reader.is_open()
    assert "boot" in (reader.problem or "")

    host.writer()
    header, slots = host.read()
    assert (header.is_open, header.boot_id, header.generation) == (False, bytes(16), 0)
    assert slots == (RankerSlot(),) * NUM_SLOTS
